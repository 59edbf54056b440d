// SPDX-License-Identifier: Apache-2.0
// The Spaces: what is frozen on disk.

import { discard, resume } from "./actions.js";
import { attempt } from "./dialog.js";
import { button, bytes, empty, guest, h, sheet, since } from "./dom.js";
import { feed, name } from "./feed.js";

export const title = "Spaces";
export const nav = true;

function row(space) {
  const start = button(
    "Resume",
    async () => {
      start.disabled = true;
      await attempt(() => resume([space.id]));
      start.disabled = false;
    },
    { class: "small", disabled: space.state !== "frozen" },
  );
  const why = space.damage ? h("small", { class: "error" }, " ", guest(space.damage)) : null;
  return h(
    "tr",
    { "data-id": space.id },
    h("td", {}, guest(name(space), {}, 60)),
    h("td", {}, h("span", { class: `state ${space.state}` }, space.state), why),
    h("td", { class: "num" }, bytes(space.size_bytes)),
    h("td", {}, `${space.vcpus} CPU · ${bytes(space.ram_mib * 1048576)}`),
    h("td", {}, guest(space.template, {}, 40)),
    h("td", { title: space.created_at }, since(space.created_at)),
    h(
      "td",
      {},
      h(
        "div",
        { class: "buttons" },
        start,
        button("Delete …", () => discard([space.id]), { class: "small danger" }),
      ),
    ),
  );
}

export function show(root, _, signal) {
  const rows = h("tbody");
  const table = sheet(
    ["Name", "State", ["On disk", "num"], "Size", "Template", "Frozen for", ""],
    rows,
  );
  const none = empty(
    "No Spaces",
    "A Space is a sandbox that was frozen to disk with its memory, processes and files. Select a sandbox in the tree and freeze it.",
    h("a", { class: "button", href: "#/" }, "To the tree"),
  );
  root.append(h("div", { class: "tools" }, h("h1", {}, title)), table, none);
  const draw = () => {
    const spaces = [...feed.spaces.values()];
    rows.replaceChildren(...spaces.map(row));
    table.hidden = !spaces.length;
    none.hidden = !feed.known || spaces.length > 0;
  };
  draw();
  feed.watchers.add(draw);
  signal.addEventListener("abort", () => feed.watchers.delete(draw));
}
