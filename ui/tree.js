// SPDX-License-Identifier: Apache-2.0
// All sandboxes as trees of forks, and the Spaces. Only the rows in view exist as elements.

import { create, discard, fork, freeze, merge, remove, resume } from "./actions.js";
import { attempt } from "./dialog.js";
import { button, bytes, empty, guest, h, plain, since, snippet } from "./dom.js";
import { descends, feed, name } from "./feed.js";

export const title = "Tree";
export const nav = true;

const STATES = { all: "All", ready: "Ready", running: "Running", freezing: "Freezing", frozen: "Frozen" };
const AROUND = 6; // rows above and below those in view

// What stays while other pages are shown.
const kept = { closed: new Set(), chosen: new Set(), text: "", state: "all", active: null, scroll: 0 };
const seen = new Set(); // ids that were shown before: others are new, and move into place

const isSpace = (one) => one.id.startsWith("spc_");
const stateOf = (one) => (isSpace(one) && one.state === "frozen" ? "frozen" : one.state);
const words = (one) => `${one.id} ${one.template} ${JSON.stringify(one.metadata)}`.toLowerCase();

/* --- which rows there are --- */

function forest() {
  const all = [...feed.sandboxes.values(), ...feed.spaces.values()];
  const below = new Map();
  for (const one of all) {
    const parent = feed.sandboxes.has(one.parent) ? one.parent : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(one);
  }
  return below;
}

// Returns the rows in their order. With a filter, those that fit it and their ancestors.
function rows() {
  const below = forest(),
    text = kept.text.trim().toLowerCase(),
    all = !text && kept.state === "all",
    out = [];
  const fits = (one) =>
    (kept.state === "all" || stateOf(one) === kept.state) && (!text || words(one).includes(text));
  function add(parent, level, lines) {
    const list = below.get(parent) ?? [];
    let any = false;
    list.forEach((one, i) => {
      const at = out.length,
        more = (below.get(one.id) ?? []).length,
        last = i === list.length - 1;
      const row = { one, level, lines, last, more, fits: all || fits(one), of: list.length, at: i + 1 };
      out.push(row);
      const open = !all || !kept.closed.has(one.id);
      const inner = more && open ? add(one.id, level + 1, level ? [...lines, !last] : []) : false;
      row.open = more ? open : null;
      if (row.fits || inner) any = true;
      else out.length = at;
    });
    return any;
  }
  add(null, 0, []);
  return out;
}

/* --- a row --- */

function lines(row) {
  const marks = row.lines.map((goes) => h("i", { class: goes ? "line" : "" }));
  if (row.level) marks.push(h("i", { class: row.last ? "line last" : "line branch" }));
  return h("span", { class: "lines", "aria-hidden": "true" }, ...marks);
}

function cells(row) {
  const { one } = row,
    state = stateOf(one),
    space = isSpace(one);
  const caret =
    row.open === null
      ? h("span", { class: "caret" })
      : button(row.open ? "▾" : "▸", () => fold(one.id), {
          class: "caret",
          tabindex: "-1",
          "aria-label": row.open ? "Close" : "Open",
        });
  const title = space
    ? guest(name(one), { class: "name" }, 80)
    : h("a", { href: `#/sandbox/${one.id}`, class: "name", tabindex: "-1" }, guest(name(one), {}, 80));
  const progress = one.freeze_bytes
    ? ` ${Math.min(99, Math.floor((100 * one.frozen_bytes) / one.freeze_bytes))} %`
    : "";
  return [
    h(
      "span",
      { role: "gridcell", class: "who" },
      h("input", {
        type: "checkbox",
        tabindex: "-1",
        checked: kept.chosen.has(one.id),
        "aria-label": `Select ${plain(name(one), 60)}`,
        change: () => choose(one.id),
      }),
      lines(row),
      caret,
      title,
      one.metadata?.name ? h("span", { class: "ref" }, one.id.slice(0, 8)) : null,
      row.more ? h("span", { class: "count", title: `${row.more} children` }, row.more) : null,
    ),
    h("span", { role: "gridcell", class: `state ${state}` }, (STATES[state] ?? plain(state)) + progress),
    h("span", { role: "gridcell", class: "size" }, `${one.vcpus} CPU · ${bytes(one.ram_mib * 1048576)}`),
    h(
      "span",
      {
        role: "gridcell",
        class: "own",
        title: space ? "on disk" : "memory that it shares with no other sandbox",
      },
      bytes(space ? one.size_bytes : one.memory_private_bytes || null),
    ),
    h("span", { role: "gridcell", class: "template" }, guest(one.template, {}, 40)),
    h("span", { role: "gridcell", class: "age", title: one.created_at }, since(one.created_at)),
  ];
}

/* --- the page --- */

let page = null; // elements and rows of the page, while it is shown

function fold(id) {
  if (!kept.closed.delete(id)) kept.closed.add(id);
  draw();
}

function choose(id) {
  if (!kept.chosen.delete(id)) kept.chosen.add(id);
  draw();
}

const elementKey = (row) =>
  [
    row.level,
    row.lines,
    row.last,
    row.open,
    row.fits,
    row.more,
    kept.chosen.has(row.one.id),
    since(row.one.created_at),
    JSON.stringify(row.one),
  ].join("|");

function place(row, i, fresh) {
  const { one } = row;
  let element = page.elements.get(one.id);
  const born = !element && fresh && !seen.has(one.id);
  if (!element) {
    element = h("div", { role: "row", "data-id": one.id });
    page.elements.set(one.id, element);
    page.space.append(element);
  }
  const key = elementKey(row);
  if (element.key !== key) {
    element.key = key;
    element.className = `row${row.fits ? "" : " around"}${kept.chosen.has(one.id) ? " chosen" : ""}${born ? " born" : ""}`;
    element.replaceChildren(...cells(row));
    element.setAttribute("aria-level", row.level + 1);
    element.style.setProperty("--level", row.level);
    element.setAttribute("aria-setsize", row.of);
    element.setAttribute("aria-posinset", row.at);
    element.setAttribute("aria-selected", kept.chosen.has(one.id));
    if (row.open === null) element.removeAttribute("aria-expanded");
    else element.setAttribute("aria-expanded", row.open);
  }
  element.setAttribute("aria-rowindex", i + 2);
  element.tabIndex = one.id === kept.active ? 0 : -1;
  element.style.transform = `translateY(${i * page.height}px)`;
}

// Makes elements for the rows in view, and for the active one, which may have the focus.
function window_(fresh) {
  const { rows, body, height } = page;
  const first = Math.max(0, Math.floor(body.scrollTop / height) - AROUND);
  const end = Math.min(rows.length, Math.ceil((body.scrollTop + body.clientHeight) / height) + AROUND);
  const wanted = new Set();
  const want = (i) => (wanted.add(rows[i].one.id), place(rows[i], i, fresh));
  for (let i = first; i < end; i++) want(i);
  const active = page.index.get(kept.active);
  if (active != null && !wanted.has(kept.active)) want(active);
  for (const [id, element] of page.elements)
    if (!wanted.has(id)) {
      if (element.contains(document.activeElement)) page.body.focus({ preventScroll: true });
      element.remove();
      page.elements.delete(id);
    }
}

function draw() {
  if (!page) return;
  for (const id of kept.chosen) if (!feed.sandboxes.has(id) && !feed.spaces.has(id)) kept.chosen.delete(id);
  page.rows = rows();
  page.index = new Map(page.rows.map((row, i) => [row.one.id, i]));
  if (!page.index.has(kept.active)) kept.active = page.rows[0]?.one.id ?? null;
  page.height = matchMedia("(max-width: 640px)").matches ? 64 : 40;
  page.space.style.height = `${page.rows.length * page.height}px`;
  page.grid.setAttribute("aria-rowcount", page.rows.length + 1);
  window_(seen.size > 0);
  for (const id of [...feed.sandboxes.keys(), ...feed.spaces.keys()]) seen.add(id);
  states();
  bar();
}

function states() {
  const none = feed.known && !feed.sandboxes.size && !feed.spaces.size;
  page.grid.hidden = none || !feed.known;
  page.first.hidden = !none;
  page.waiting.hidden = feed.known;
  page.nothing.hidden = none || !feed.known || page.rows.length > 0;
  const n = feed.sandboxes.size,
    m = feed.spaces.size;
  page.total.textContent = feed.known
    ? `${n} ${n === 1 ? "sandbox" : "sandboxes"}, ${m} ${m === 1 ? "Space" : "Spaces"}`
    : "";
}

/* --- what can be done with the chosen ones --- */

let shownBar = "";
function bar() {
  const ids = [...kept.chosen],
    boxes = ids.filter((id) => feed.sandboxes.has(id)),
    spaces = ids.filter((id) => feed.spaces.has(id));
  const line =
    ids.length === 2 && boxes.length === 2
      ? descends(ids[1], ids[0])
        ? ids
        : descends(ids[0], ids[1])
          ? [ids[1], ids[0]]
          : null
      : null;
  const now = [...ids, line].join();
  if (now === shownBar && page.bar.isConnected && page.bar.children.length) return;
  shownBar = now;
  page.bar.hidden = !ids.length;
  if (!ids.length) return page.bar.replaceChildren();
  const acts = [];
  if (ids.length === 1 && boxes.length)
    acts.push(
      h("a", { class: "button", href: `#/sandbox/${ids[0]}` }, "Open"),
      button("Fork …", () => fork(ids[0])),
    );
  if (ids.length === 2 && boxes.length === 2)
    acts.push(h("a", { class: "button", href: `#/diff/${(line ?? ids).join("/")}` }, "Diff"));
  if (line) acts.push(button("Merge …", () => merge(line[0], line[1])));
  if (boxes.length && !spaces.length)
    acts.push(
      button("Freeze …", () => freeze(boxes)),
      button("Delete …", () => remove(boxes), { class: "danger" }),
    );
  if (spaces.length && !boxes.length)
    acts.push(
      button("Resume", () => attempt(() => resume(spaces))),
      button("Delete …", () => discard(spaces), { class: "danger" }),
    );
  page.bar.replaceChildren(
    h("span", { class: "muted" }, `${ids.length} selected`),
    ...acts,
    button("Clear", () => (kept.chosen.clear(), draw()), { class: "quiet" }),
  );
}

/* --- keyboard --- */

function activate(i) {
  const row = page.rows[Math.max(0, Math.min(i, page.rows.length - 1))];
  if (!row) return;
  kept.active = row.one.id;
  const top = page.index.get(row.one.id) * page.height,
    { body } = page;
  if (top < body.scrollTop) body.scrollTop = top;
  else if (top + page.height > body.scrollTop + body.clientHeight)
    body.scrollTop = top + page.height - body.clientHeight;
  draw();
  page.elements.get(row.one.id).focus({ preventScroll: true });
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !page.rows.length) return;
  const at = page.index.get(kept.active) ?? 0,
    row = page.rows[at],
    { one } = row;
  const paged = Math.max(1, Math.floor(page.body.clientHeight / page.height) - 1);
  const keys = {
    ArrowDown: () => activate(at + 1),
    ArrowUp: () => activate(at - 1),
    PageDown: () => activate(at + paged),
    PageUp: () => activate(at - paged),
    Home: () => activate(0),
    End: () => activate(page.rows.length - 1),
    ArrowRight: () => (row.open === false ? fold(one.id) : row.open ? activate(at + 1) : null),
    ArrowLeft: () =>
      row.open ? fold(one.id) : page.index.has(one.parent) ? activate(page.index.get(one.parent)) : null,
    " ": () => choose(one.id),
    Enter: () => (isSpace(one) ? null : (location.hash = `#/sandbox/${one.id}`)),
    f: () => (isSpace(one) ? null : fork(one.id)),
    Delete: () => (isSpace(one) ? discard([one.id]) : remove([one.id])),
  };
  if (
    !keys[event.key] ||
    (event.target.closest("button, input, a") &&
      event.key !== "Delete" &&
      event.key.length > 1 &&
      !event.key.startsWith("Arrow"))
  )
    return;
  event.preventDefault();
  keys[event.key]();
}

/* --- the first sandbox --- */

function first() {
  const here = location.origin;
  return empty(
    "No sandbox yet",
    "Paste one of these, and the sandbox appears here.",
    snippet("curl", `curl -s -X POST ${here}/v1/sandboxes -d '{}'`),
    snippet(
      "Python",
      `from ramet import Sandbox\n\nsbx = Sandbox(host="${here}")\nprint(sbx.run_code("print(1 + 1)").stdout)`,
    ),
    snippet("Command line", `RAMET_HOST=${here} ramet create`),
    button("Create a sandbox …", create, { class: "primary" }),
  );
}

export function show(root, _, signal) {
  const search = h("input", {
    type: "search",
    placeholder: "Search name, id, metadata",
    "aria-label": "Search",
    value: kept.text,
    input: () => ((kept.text = search.value), draw()),
  });
  const filter = h(
    "select",
    { "aria-label": "State", change: () => ((kept.state = filter.value), draw()) },
    ...Object.entries(STATES).map(([value, label]) =>
      h("option", { value, selected: value === kept.state }, label),
    ),
  );
  const total = h("span", { class: "muted total" });
  const space = h("div", { class: "space", role: "none" });
  const body = h("div", { class: "scroll", role: "rowgroup", tabindex: "-1" }, space);
  const head = h(
    "div",
    { role: "row", class: "head", "aria-rowindex": "1" },
    ...["Sandbox", "State", "Size", "Own", "Template", "Age"].map((label, i) =>
      h(
        "span",
        { role: "columnheader", class: ["who", "state", "size", "own", "template", "age"][i] },
        label,
      ),
    ),
  );
  const grid = h(
    "div",
    {
      role: "treegrid",
      class: "tree",
      "aria-label": "Sandboxes and Spaces",
      "aria-multiselectable": "true",
      keydown: pressed,
    },
    h("div", { role: "rowgroup" }, head),
    body,
  );
  grid.addEventListener("focusin", (event) => {
    const id = event.target.closest(".row")?.dataset.id;
    if (!id || id === kept.active) return;
    page.elements.get(kept.active)?.setAttribute("tabindex", -1);
    kept.active = id;
    event.target.closest(".row").tabIndex = 0;
  });
  const nothing = empty(
    "Nothing fits",
    "No sandbox or Space fits this search.",
    button("Show all", () => {
      Object.assign(kept, { text: "", state: "all" });
      search.value = "";
      filter.value = "all";
      draw();
    }),
  );
  const waiting = h(
    "div",
    { class: "waiting", "aria-busy": "true" },
    ...Array.from({ length: 6 }, () => h("div", { class: "ghost" })),
  );
  const actions = h("div", { class: "bar", role: "toolbar", "aria-label": "Selected" });
  page = {
    elements: new Map(),
    rows: [],
    index: new Map(),
    grid,
    body,
    space,
    total,
    nothing,
    waiting,
    bar: actions,
    first: first(),
    height: 40,
  };
  root.append(
    h(
      "div",
      { class: "tools" },
      h("h1", {}, "Sandboxes"),
      total,
      search,
      filter,
      button("New …", create, { class: "primary" }),
    ),
    grid,
    page.waiting,
    page.nothing,
    page.first,
    actions,
  );
  shownBar = null;
  draw();
  body.scrollTop = kept.scroll;
  let due = false;
  const scrolled = () => {
    kept.scroll = body.scrollTop;
    if (due) return;
    due = true;
    requestAnimationFrame(() => ((due = false), page && window_(false)));
  };
  body.addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", draw, { signal });
  addEventListener(
    "keydown",
    (event) => {
      if (event.key !== "/" || event.target.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      search.focus();
    },
    { signal },
  );
  const clock = setInterval(() => document.hidden || draw(), 30000);
  feed.watchers.add(draw);
  signal.addEventListener("abort", () => {
    clearInterval(clock);
    feed.watchers.delete(draw);
    page = null;
  });
}
