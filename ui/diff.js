// SPDX-License-Identifier: Apache-2.0
// What differs between two sandboxes: their files, and the lines of a file side by side.

import { merge } from "./actions.js";
import { post, send } from "./api.js";
import { button, draft, empty, guest, h, printed, sheet } from "./dom.js";
import { descends, feed, listed, name } from "./feed.js";
import { sides } from "./lines.js";

export const title = "Diff";

const MOST_BYTES = 512 << 10,
  MOST_PATHS = 2000;

// Returns a file's text, "" if there is no such file, or null if it is not a text or is too long.
async function text(id, path, signal) {
  const range = { range: `bytes=0-${MOST_BYTES}` };
  let answer;
  try {
    answer = await send("GET", `v1/sandboxes/${id}/files?path=${encodeURIComponent(path)}`, {
      headers: range,
      signal,
    });
  } catch (problem) {
    if (problem.code === "no_such_file" || problem.status === 416) return "";
    throw problem;
  }
  const data = await answer.arrayBuffer();
  if (data.byteLength > MOST_BYTES) return null;
  try {
    const found = new TextDecoder("utf-8", { fatal: true }).decode(data);
    return found.includes("\0") ? null : found;
  } catch {
    return null;
  }
}

function table(before, after, names) {
  const cell = (line, other, kind) => [
    h("td", { class: "n" }, line ? line.n : ""),
    h("td", { class: line ? (other ? null : kind) : "none" }, line ? printed(line.text) || "\u200a" : ""),
  ];
  const rows = sides(before, after).map((row) =>
    row.skipped
      ? h(
          "tr",
          {},
          h("td", { class: "n" }),
          h("td", { class: "muted", colspan: "3" }, `${row.skipped} equal ${row.skipped === 1 ? "line" : "lines"}`),
        )
      : h("tr", {}, ...cell(row.left, row.same, "gone"), ...cell(row.right, row.same, "new")),
  );
  return sheet(["", guest(names[0]), "", guest(names[1])], h("tbody", {}, ...rows), { class: "sides" });
}

export async function show(root, [first = "", second = ""], signal) {
  await listed; // an address that is opened directly
  if (signal.aborted) return;
  const names = [first, second].map((id) =>
    feed.sandboxes.has(id) ? name(feed.sandboxes.get(id)) : id.slice(0, 12),
  );
  const list = h("div", { class: "card changes" }),
    file = h("div", { "aria-live": "polite" }),
    error = h("p", { class: "error", role: "alert" });
  const paths = h("input", {
    "aria-label": "Folders to compare",
    value: draft.get("diff") ?? "/root /tmp",
    size: "30",
  });
  const acts = descends(second, first)
    ? button("Merge …", async () => (await merge(first, second)) && (location.hash = "#/"))
    : null;

  async function open(path, chosen) {
    for (const one of list.querySelectorAll("button")) one.setAttribute("aria-pressed", one === chosen);
    file.replaceChildren(h("p", { class: "muted" }, "Reading …"));
    try {
      const [before, after] = await Promise.all([text(first, path, signal), text(second, path, signal)]);
      if (chosen.getAttribute("aria-pressed") !== "true") return;
      file.replaceChildren(
        before === null || after === null
          ? empty("No text", "The file is not a text, or has more than 512 KiB.")
          : before === after
            ? empty("Equal content", "Its type, mode or owner differs.")
            : table(before, after, names),
      );
    } catch (problem) {
      if (!signal.aborted) file.replaceChildren(h("p", { class: "error" }, problem.message));
    }
  }
  function group(label, sign, found) {
    if (!found.length) return [];
    const buttons = found.slice(0, MOST_PATHS).map((path) => {
      const one = h(
        "button",
        { type: "button", "aria-pressed": "false", click: () => open(path, one) },
        h("span", { "aria-hidden": "true" }, sign),
        guest(path, {}, 300),
      );
      return one;
    });
    return [
      h("h2", {}, `${label} (${found.length})`),
      ...buttons,
      found.length > MOST_PATHS ? h("p", { class: "muted" }, `and ${found.length - MOST_PATHS} more`) : null,
    ];
  }
  async function compare(event) {
    event?.preventDefault();
    error.textContent = "";
    list.replaceChildren(h("h2", {}, "Comparing …"));
    file.replaceChildren();
    try {
      const all = paths.value.split(/\s+/).filter(Boolean);
      const found = await post(`v1/sandboxes/${first}/diff/${second}`, all.length ? { paths: all } : {}, {
        signal,
      });
      const groups = [
        ...group("Only in the second", "+", found.added),
        ...group("Changed", "~", found.modified),
        ...group("Only in the first", "−", found.removed),
      ];
      list.replaceChildren(
        ...(groups.length ? groups.filter(Boolean) : [h("h2", {}, "No difference in these folders")]),
      );
      list.querySelector("button")?.click();
    } catch (problem) {
      if (signal.aborted) return;
      list.replaceChildren();
      error.textContent = problem.message;
    }
  }
  paths.addEventListener("input", () => draft.set("diff", paths.value));
  root.append(
    h(
      "form",
      { class: "tools", submit: compare },
      h("h1", { class: "grow" }, guest(names[0], {}, 40), " → ", guest(names[1], {}, 40)),
      paths,
      h("button", { type: "submit" }, "Compare"),
      acts,
    ),
    error,
    h("div", { class: "two" }, list, file),
  );
  compare();
}
