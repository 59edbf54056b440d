// SPDX-License-Identifier: Apache-2.0
// One sandbox: its head, and a panel for each subject.

import { fork, freeze, remove } from "./actions.js";
import { get } from "./api.js";
import { button, bytes, empty, guest, h, plain } from "./dom.js";
import { feed, name } from "./feed.js";
import * as code from "./code.js";
import * as files from "./files.js";
import * as panels from "./panels.js";
import * as terminal from "./terminal.js";

export const title = "Sandbox";

const tabs = {
  code: ["Code", code.show],
  terminal: ["Terminal", terminal.show],
  files: ["Files", files.show],
  processes: ["Processes", panels.processes],
  contexts: ["Contexts", panels.contexts],
  ports: ["Ports", panels.ports],
  metrics: ["Metrics", panels.metrics],
  settings: ["Settings", panels.settings],
  use: ["Use it", panels.use],
};

export function show(root, [id, tab = "code"], signal) {
  if (!/^sbx_[0-9a-f]{32}$/.test(id ?? "")) return unknown(root);
  const [, open] = tabs[tab] ?? tabs.code;
  const title = h("h1"),
    state = h("span", { class: "state" }),
    facts = h("span", { class: "muted" });
  const acts = h(
    "div",
    { class: "buttons" },
    button("Fork …", () => fork(id)),
    button("Freeze …", () => freeze([id])),
    button("Delete …", () => remove([id]), { class: "danger" }),
  );
  const gone = h("p", { class: "error", role: "alert" });
  const panel = h("section", { class: "panel", role: "tabpanel", "aria-label": tabs[tab]?.[0] ?? "Code" });
  const bar = h(
    "div",
    { class: "tabs", role: "tablist", keydown: arrows },
    ...Object.entries(tabs).map(([key, [label]]) =>
      h(
        "a",
        {
          role: "tab",
          href: `#/sandbox/${id}/${key}`,
          "aria-selected": String(key === tab),
          tabindex: key === tab ? 0 : -1,
        },
        label,
      ),
    ),
  );
  root.append(
    h("div", { class: "title" }, title, state, h("span", { class: "id" }, plain(id)), facts, acts),
    gone,
    bar,
    panel,
  );
  let shown = "",
    asked = false;

  function head() {
    const one = feed.sandboxes.get(id),
      now = JSON.stringify(one ?? feed.known);
    if (now === shown) return;
    shown = now;
    acts.hidden = !one;
    if (!one) {
      title.replaceChildren(plain(id.slice(0, 12)));
      if (feed.known) ended();
      return;
    }
    gone.textContent = "";
    document.title = `${plain(name(one), 40)} · Ramet`;
    title.replaceChildren(guest(name(one), {}, 60));
    state.className = `state ${one.state}`;
    state.replaceChildren(one.state);
    const parent = feed.sandboxes.get(one.parent);
    facts.replaceChildren(
      `${one.vcpus} CPU · ${bytes(one.ram_mib * 1048576)} · own ${bytes(one.memory_private_bytes || null)}`,
      ...(parent
        ? [" · child of ", h("a", { href: `#/sandbox/${parent.id}` }, guest(name(parent), {}, 40))]
        : []),
    );
  }
  async function ended() {
    state.className = "state ended";
    state.replaceChildren("ended");
    if (asked) return;
    asked = true;
    gone.textContent = await get(`v1/sandboxes/${id}`, { signal }).then(
      () => "",
      (problem) => problem.message,
    );
  }
  head();
  feed.watchers.add(head);
  signal.addEventListener("abort", () => feed.watchers.delete(head));
  bar.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  return open(panel, id, signal);
}

function unknown(root) {
  root.append(
    h("h1", {}, title),
    empty(
      "No sandbox",
      "The address of this page has no id of a sandbox.",
      h("a", { class: "button", href: "#/" }, "To the tree"),
    ),
  );
}

function arrows(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const all = [...event.currentTarget.querySelectorAll("a")],
    at = all.indexOf(event.target);
  all[(at + step + all.length) % all.length].focus();
}
