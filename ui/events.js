// SPDX-License-Identifier: Apache-2.0
// The audit log, newest first, with new events as they happen.

import { objects, pause, send } from "./api.js";
import { button, empty, guest, h, plain, sheet } from "./dom.js";
import { stream } from "./stream.js";

export const title = "Events";
export const nav = true;

const MOST = 1000,
  AGAIN_MS = 5000;

// What has no column of its own, in the order in which it is shown.
const FACTS = { parent: "of", winner: "winner", space: "Space", key: "key", previous: "replaces" };

// Returns the newest events of the log, oldest first. With since, they are those of the host that is followed.
async function newest(signal) {
  const events = [];
  const answer = await send("GET", `v1/events?since=0&newest_first=1&limit=${MOST}`, { signal });
  for await (const event of objects(answer)) events.unshift(event);
  return events;
}

function sandbox(id) {
  if (!id) return null;
  const short = guest(id, {}, 13);
  return /^sbx_[0-9a-f]{32}$/.test(id) ? h("a", { href: `#/sandbox/${id}` }, short) : short;
}

function row(event) {
  const facts = Object.entries(FACTS).filter(([field]) => event[field]);
  const element = h(
    "tr",
    { "data-id": event.id },
    h("td", { title: plain(event.time) }, plain(event.time.replace("T", " ").replace(/\.\d+Z$/, ""))),
    h("td", {}, guest(event.event)),
    h("td", { class: "mono" }, sandbox(event.sandbox)),
    h(
      "td",
      {},
      event.text ? guest(event.text) : null,
      ...facts.map(([field, label]) => h("small", {}, ` ${label} `, guest(event[field], {}, 13))),
    ),
    h("td", { class: "wide" }, event.template ? guest(event.template, {}, 40) : null),
    h("td", { class: "wide" }, guest(event.tenant, {}, 13)),
  );
  return Object.assign(element, {
    n: event.n,
    begin: stream.begin,
    words: Object.values(event).join(" ").toLowerCase(),
  });
}

let text = ""; // the filter, kept while other pages are shown

export function show(root, _, signal) {
  const rows = h("tbody"),
    error = h("p", { class: "error", role: "alert" }),
    total = h("span", { class: "muted total" });
  const table = sheet(
    ["Time (UTC)", "Event", "Sandbox", "Details", ["Template", "wide"], ["Tenant", "wide"]],
    rows,
  );
  const filter = h("input", {
    type: "search",
    placeholder: "Search events",
    "aria-label": "Search events",
    value: text,
    input: () => ((text = filter.value), all()),
  });
  const none = empty(
    "No events",
    "How each sandbox and each key begins and ends is listed here.",
    h("a", { class: "button", href: "#/" }, "To the tree"),
  );
  const nothing = empty(
    "Nothing fits",
    "None of the newest events fits this search.",
    button("Show all", () => {
      text = filter.value = "";
      all();
    }),
  );
  root.append(h("div", { class: "tools" }, h("h1", {}, title), total, filter), error, table, none, nothing);

  let loaded = 0, // stream.begin when the list was read
    loading = false,
    shown = 0; // rows that fit the filter
  const fit = (element) => {
    element.hidden = !element.words.includes(text.trim().toLowerCase());
    if (!element.hidden) shown++;
  };
  function states() {
    const n = rows.childElementCount;
    total.textContent = n ? (shown < n ? `${shown} of ${n}` : n === MOST ? `the newest ${n}` : `${n}`) : "";
    table.hidden = !shown;
    none.hidden = !loaded || n > 0;
    nothing.hidden = !n || shown > 0;
  }
  function all() {
    shown = 0;
    for (const element of rows.children) fit(element);
    states();
  }
  // Nearly always the newest. One that came while the list was read is in both.
  function add(event) {
    let next = rows.firstChild;
    while (next && next.n > event.n) next = next.nextSibling;
    if (next?.n === event.n) return;
    const element = row(event);
    rows.insertBefore(element, next);
    fit(element);
    if (rows.childElementCount <= MOST) return;
    if (!rows.lastChild.hidden) shown--;
    rows.lastChild.remove();
  }
  // Reads the list once the stream is open, so that no event is missing between the two.
  async function load() {
    if (loading) return;
    loading = true;
    while (!signal.aborted && loaded !== stream.begin) {
      const { begin } = stream;
      try {
        const events = await newest(signal);
        if (begin === stream.begin) {
          // Rows of an earlier beginning may be of another tenant.
          rows.replaceChildren(...[...rows.children].filter((element) => element.begin === begin));
          events.forEach(add);
          loaded = begin;
          error.textContent = stream.error;
          all();
        }
      } catch (problem) {
        if (signal.aborted) return;
        error.textContent = problem.message;
        await pause(AGAIN_MS, signal);
      }
    }
    loading = false;
  }
  function came(event) {
    if (!event) {
      error.textContent = stream.error;
      return load();
    }
    add(event);
    states();
  }
  error.textContent = stream.error;
  states();
  stream.watchers.add(came);
  signal.addEventListener("abort", () => stream.watchers.delete(came));
  load();
}
