// SPDX-License-Identifier: Apache-2.0
// What can be done with sandboxes and Spaces: each asks first if something is lost by it.

import { post, send } from "./api.js";
import { ask, field, toast } from "./dialog.js";
import { guest, h, plain, unique } from "./dom.js";
import { feed, name, refresh, templates } from "./feed.js";

const once = () => ({ headers: { "idempotency-key": unique() } });
const several = (ids, word) =>
  ids.length === 1 ? `this ${word}` : `these ${ids.length} ${word === "sandbox" ? "sandboxes" : "Spaces"}`;
const named = (ids, all) =>
  h(
    "ul",
    { class: "names" },
    ...ids.slice(0, 5).map((id) => h("li", {}, guest(all.has(id) ? name(all.get(id)) : id))),
    ids.length > 5 ? h("li", {}, `and ${ids.length - 5} more`) : null,
  );

export async function create() {
  const list = await templates().catch(() => []);
  const options = list.map((t) => h("option", { value: t.name }, t.name));
  return ask({
    title: "New sandbox",
    action: "Create",
    body: [
      field(
        "Name",
        h("input", { name: "name", maxlength: "100", autocomplete: "off" }),
        "Optional; kept in its metadata.",
      ),
      field("Template", h("select", { name: "template" }, ...options)),
      h(
        "div",
        { class: "pair" },
        field(
          "CPUs",
          h("input", { name: "vcpus", type: "number", min: "1", max: "32", placeholder: "default" }),
        ),
        field(
          "Memory (MiB)",
          h("input", { name: "ram_mib", type: "number", min: "128", max: "65536", placeholder: "default" }),
        ),
      ),
    ],
    async act(data) {
      const spec = {};
      for (const key of ["vcpus", "ram_mib"]) if (data.get(key)) spec[key] = Number(data.get(key));
      if (data.get("template")) spec.template = data.get("template");
      if (data.get("name").trim()) spec.metadata = { name: data.get("name").trim() };
      await post("v1/sandboxes", spec, once());
      refresh();
    },
  });
}

export function fork(id) {
  const one = feed.sandboxes.get(id);
  return ask({
    title: `Fork ${plain(name(one), 40)}`,
    action: "Fork",
    body: [
      h(
        "p",
        {},
        "Each child begins with the memory, processes and files that the sandbox has now. The sandbox goes on.",
      ),
      field(
        "Children",
        h("input", { name: "n", type: "number", min: "1", max: "1000", value: "1", required: true }),
      ),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "reseed" }),
        "New random seeds in each child",
      ),
    ],
    async act(data) {
      const made = await post(
        `v1/sandboxes/${id}/fork`,
        { n: Number(data.get("n")), reseed: data.has("reseed") },
        once(),
      );
      toast(
        `${made.children.length} ${made.children.length === 1 ? "child" : "children"}; the parent was paused for ${(made.pause_us / 1000).toFixed(1)} ms.`,
      );
      refresh();
    },
  });
}

async function each(ids, act) {
  for (const id of ids) await act(id);
  refresh();
}

export const freeze = (ids) =>
  ask({
    title: `Freeze ${several(ids, "sandbox")}?`,
    action: "Freeze",
    body: [
      named(ids, feed.sandboxes),
      h(
        "p",
        {},
        "A Space on disk keeps memory, processes and files. The sandbox's id ends, and so do connections to its ports.",
      ),
    ],
    act: () => each(ids, (id) => post(`v1/sandboxes/${id}/freeze`, {}, once())),
  });

export const remove = (ids) =>
  ask({
    title: `Delete ${several(ids, "sandbox")}?`,
    action: "Delete",
    danger: true,
    body: [
      named(ids, feed.sandboxes),
      h("p", {}, "Memory, processes and files are lost, and running calls end. Children live on."),
    ],
    act: () => each(ids, (id) => send("DELETE", `v1/sandboxes/${id}`)),
  });

export const resume = (ids) =>
  each(ids, async (id) => {
    await post(`v1/spaces/${id}/resume`, {}, once());
  });

export const discard = (ids) =>
  ask({
    title: `Delete ${several(ids, "space")}?`,
    action: "Delete",
    danger: true,
    body: [named(ids, feed.spaces), h("p", {}, "What it holds cannot be restored.")],
    act: () => each(ids, (id) => send("DELETE", `v1/spaces/${id}`)),
  });

function losses(diff) {
  const list = (title, paths) =>
    paths.length
      ? h(
          "div",
          {},
          h("h3", {}, `${title}: ${paths.length}`),
          h(
            "ul",
            { class: "names mono" },
            ...paths.slice(0, 8).map((p) => h("li", {}, guest(p))),
            paths.length > 8 ? h("li", {}, `and ${paths.length - 8} more`) : null,
          ),
        )
      : null;
  const all = [
    list("Files that only it has", diff.removed),
    list("Files that become the child's version", diff.modified),
  ];
  return all.some(Boolean) ? all : [h("p", {}, "No file in /root and /tmp: the child has all of them.")];
}

// A merge replaces the parent's state: says first what of it is lost.
export function merge(parent, child) {
  const shown = h(
    "div",
    { class: "losses", "aria-live": "polite" },
    h("p", { class: "muted" }, "Comparing files …"),
  );
  post(`v1/sandboxes/${parent}/diff/${child}`).then(
    (diff) => shown.replaceChildren(...losses(diff).filter(Boolean)),
    (problem) =>
      shown.replaceChildren(
        h("p", { class: "error" }, `The files could not be compared: ${problem.message}`),
      ),
  );
  const [into, from] = [parent, child].map((id) => name(feed.sandboxes.get(id)));
  return ask({
    title: "Merge a child into its parent?",
    action: "Merge",
    danger: true,
    body: [
      h(
        "p",
        {},
        guest(into, { class: "strong" }),
        " goes on as ",
        guest(from, { class: "strong" }),
        ", which loses its own id. Lost of ",
        guest(into),
        ": its variables, processes and running call, and",
      ),
      shown,
    ],
    async act() {
      await send("POST", `v1/sandboxes/${parent}/merge_into/${child}`);
      refresh();
    },
  });
}
