// SPDX-License-Identifier: Apache-2.0
// The files of a sandbox. Names are bytes: a place has its text to show, and its bytes for a request.

import { get, send } from "./api.js";
import { ask, attempt, field } from "./dialog.js";
import { button, bytes, draft, empty, guest, h, plain, sheet, since } from "./dom.js";

const MOST_TEXT = 1 << 20;
const places = new Map(); // by sandbox: the folder shown last

const percent = (text) => encodeURIComponent(text.toWellFormed?.() ?? text);
const root = { text: "/", query: "%2F", above: null, name: "/" };

function inside(folder, entry) {
  const name = entry.name_b64
    ? Array.from(atob(entry.name_b64), (c) => `%${c.charCodeAt(0).toString(16).padStart(2, "0")}`).join("")
    : percent(entry.name);
  const top = folder.above === null;
  return {
    text: `${top ? "" : folder.text}/${entry.name}`,
    query: `${top ? "" : folder.query}%2F${name}`,
    above: folder,
    name: entry.name,
  };
}

const place = (path) =>
  path
    .split("/")
    .filter(Boolean)
    .reduce((folder, name) => inside(folder, { name }), root);

export function show(panel, id, signal) {
  const url = (what, at) => `v1/sandboxes/${id}/files${what}?path=${at.query}`;
  let here = places.get(id) ?? place(draft.get(`folder ${id}`) ?? "/root");
  const crumbs = h("div", { class: "crumbs", "aria-label": "Folder" }),
    error = h("p", { class: "error", role: "alert" }),
    view = h("div", { class: "drop" });
  const picker = h("input", {
    type: "file",
    multiple: true,
    hidden: true,
    change: () => upload([...picker.files]),
  });
  const note = h("span", { class: "muted", role: "status" });

  function head(at) {
    const parts = [];
    for (let one = at; one; one = one.above) parts.unshift(one);
    crumbs.replaceChildren(
      ...parts.flatMap((one, i) =>
        [i > 1 ? "/" : null, button("", () => list(one), { class: "small quiet" })].filter(Boolean),
      ),
    );
    crumbs.querySelectorAll("button").forEach((one, i) => one.append(guest(parts[i].name, {}, 60)));
  }

  async function list(at = here) {
    error.textContent = "";
    try {
      const { entries } = await get(url("/list", at), { signal });
      here = at;
      places.set(id, at);
      draft.set(`folder ${id}`, at.text);
      head(at);
      entries.sort((a, b) => (b.type === "directory") - (a.type === "directory"));
      view.replaceChildren(
        entries.length ? table(entries) : empty("An empty folder", "Drop files here to upload them."),
      );
    } catch (problem) {
      if (!signal.aborted) error.textContent = problem.message;
    }
  }

  function table(entries) {
    return sheet(
      ["Name", ["Size", "num"], ["Changed", "wide"], ["Mode", "wide"], ["Owner", "wide"], ""],
      h("tbody", {}, ...entries.slice(0, 2000).map(row)),
      {},
      entries.length > 2000 ? h("p", { class: "muted" }, `and ${entries.length - 2000} more`) : null,
    );
  }

  function row(entry) {
    const at = inside(here, entry),
      folder = entry.type === "directory";
    const open = button("", () => (folder ? list(at) : read(at)), {
      class: "small quiet",
      "aria-label": `${folder ? "Open folder" : "Open"} ${plain(entry.name, 80)}`,
    });
    open.append(
      h("span", { "aria-hidden": "true" }, folder ? "▸" : "·"),
      guest(entry.name, { class: folder ? "strong" : "" }, 120),
    );
    return h(
      "tr",
      {},
      h("td", {}, open, entry.target ? h("small", {}, " → ", guest(entry.target)) : null),
      h("td", { class: "num" }, folder ? "" : bytes(entry.size)),
      h("td", { class: "wide" }, since(new Date(entry.mtime * 1000).toISOString())),
      h("td", { class: "wide mono" }, entry.mode),
      h("td", { class: "wide" }, guest(entry.user, {}, 30)),
      h(
        "td",
        {},
        h(
          "div",
          { class: "buttons" },
          entry.type === "file"
            ? button("Download", () => attempt(() => download(at)), { class: "small" })
            : null,
          button("Delete …", () => remove(at, folder), { class: "small danger" }),
        ),
      ),
    );
  }

  async function download(at) {
    note.textContent = "Downloading …";
    try {
      const data = await (await send("GET", url("", at), { signal })).blob();
      const link = h("a", {
        href: URL.createObjectURL(new Blob([data], { type: "application/octet-stream" })),
        download: at.name,
      });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    } finally {
      note.textContent = "";
    }
  }

  const remove = (at, folder) =>
    ask({
      title: folder ? "Delete this folder?" : "Delete this file?",
      action: "Delete",
      danger: true,
      body: h("p", {}, guest(at.text), folder ? " and all that is in it are lost." : " is lost."),
      act: () => send("DELETE", `${url("", at)}${folder ? "&recursive=1" : ""}`),
    }).then((done) => done && list());

  async function upload(files) {
    let done = 0;
    const folder = here;
    for (const file of files) {
      note.textContent = `Uploading ${++done} of ${files.length}: ${plain(file.name, 60)} …`;
      await attempt(() => send("PUT", url("", inside(folder, { name: file.name })), { body: file }));
    }
    note.textContent = "";
    picker.value = "";
    if (!signal.aborted) list();
  }

  const folder = () =>
    ask({
      title: "New folder",
      action: "Create",
      body: field(
        "Name",
        h("input", { name: "name", required: true, maxlength: "255", autocomplete: "off" }),
      ),
      act: (data) => send("POST", url("/mkdir", inside(here, { name: data.get("name") }))),
    }).then((done) => done && list());
  const file = () =>
    ask({
      title: "New file",
      action: "Create",
      body: field(
        "Name",
        h("input", { name: "name", required: true, maxlength: "255", autocomplete: "off" }),
      ),
      async act(data) {
        const at = inside(here, { name: data.get("name") });
        const there = await send("GET", url("/stat", at)).catch((problem) =>
          problem.code === "no_such_file" ? null : Promise.reject(problem),
        );
        if (there) throw new Error("There is a file of this name already.");
        await send("PUT", url("", at), { body: "" });
      },
    }).then((done) => done && list());

  async function read(at) {
    error.textContent = "";
    try {
      const stat = await get(url("/stat", at), { signal });
      if (stat.size > MOST_TEXT) return unshown(at, "It has more than 1 MiB.");
      const data = await (await send("GET", url("", at), { signal })).arrayBuffer();
      let text;
      try {
        text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
      } catch {
        return unshown(at, "It is not a text in UTF-8.");
      }
      if (text.includes("\0") || text.includes("\r"))
        return unshown(at, "It has characters that a text field would change.");
      return edit(at, text, stat.mtime);
    } catch (problem) {
      if (!signal.aborted) error.textContent = problem.message;
    }
    return undefined;
  }

  function unshown(at, why) {
    head(at);
    view.replaceChildren(
      empty(
        "Not shown",
        why,
        button("Download", () => attempt(() => download(at))),
        button("Back", () => list()),
      ),
    );
  }

  function edit(at, text, mtime) {
    const key = `file ${id} ${at.text}`,
      area = h("textarea", { "aria-label": "Content", spellcheck: "false", value: draft.get(key) ?? text });
    const save = button("Save", () => attempt(write), { class: "primary" }),
      state = h("span", { class: "muted grow", role: "status" });
    const changed = () => area.value !== text;
    const mark = () => (
      (save.disabled = !changed()),
      (state.textContent = changed() ? "Not saved" : "Saved")
    );
    async function write() {
      const now = await get(url("/stat", at)).catch((problem) =>
        problem.code === "no_such_file" ? null : Promise.reject(problem),
      );
      if (
        now &&
        now.mtime !== mtime &&
        !(await ask({
          title: "Replace a newer version?",
          action: "Replace",
          danger: true,
          body: h("p", {}, "The file has changed in the sandbox since it was opened here."),
          act: () => {},
        }))
      )
        return;
      const value = area.value;
      await send("PUT", url("", at), { body: value });
      text = value;
      mtime = (await get(url("/stat", at))).mtime;
      if (!changed()) draft.set(key, null);
      mark();
    }
    area.addEventListener("input", () => (draft.set(key, changed() ? area.value : null), mark()));
    area.addEventListener("keydown", (event) => {
      if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      if (changed()) attempt(write);
    });
    head(at);
    view.replaceChildren(
      h(
        "div",
        { class: "editor" },
        h(
          "div",
          { class: "tools" },
          state,
          button("Back", () => list()),
          button("Download", () => attempt(() => download(at))),
          save,
        ),
        area,
      ),
    );
    mark();
    area.focus({ preventScroll: true });
  }

  const over = (event, on) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    view.classList.toggle("over", on);
  };
  panel.addEventListener("dragover", (event) => over(event, true));
  panel.addEventListener("dragleave", (event) =>
    over(event, event.relatedTarget !== null && panel.contains(event.relatedTarget)),
  );
  panel.addEventListener("drop", (event) => {
    over(event, false);
    if (event.dataTransfer?.files.length) upload([...event.dataTransfer.files]);
  });
  panel.append(
    h(
      "div",
      { class: "tools" },
      h("div", { class: "grow" }, crumbs),
      note,
      button("Upload …", () => picker.click()),
      button("New file …", file),
      button("New folder …", folder),
      button("Refresh", () => list()),
      picker,
    ),
    error,
    view,
  );
  list().then(() => error.textContent && here.text === "/root" && !signal.aborted && list(root));
}
