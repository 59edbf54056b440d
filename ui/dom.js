// SPDX-License-Identifier: Apache-2.0
// Elements, and texts of guests. Text is only ever set as text: there is no HTML made of strings.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "text", "g", "rect"]);

// Makes an element. Functions in `props` are listeners, other values attributes; children are nodes,
// texts, or null for none.
export function h(tag, props = {}, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "value") element.value = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export function button(label, action, props = {}) {
  return h("button", { type: "button", click: action, ...props }, label);
}

// Characters that are invisible or change the direction of others would let a name look like another.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const SIGN = "\ufffd";

// Returns a text of a guest for one line, with a visible sign for each of these characters.
export function plain(text, most = 200) {
  const all = String(text);
  const part = all.length > most ? all.slice(0, most - 1) + "\u2026" : all;
  return part.replace(HIDDEN, SIGN);
}

// The same for output of several lines; colours and other escape sequences are left out.
export function printed(text) {
  return text
    .replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])/g, "")
    .replace(/\r\n/g, "\n")
    .replace(HIDDEN, (c) => (c === "\n" || c === "\t" ? c : c === "\r" ? "\n" : SIGN));
}

// An element for a name or text that a guest chose, whose direction ends with it.
export const guest = (text, props = {}, most = 200) =>
  h("bdi", { title: plain(text, 1000), ...props }, plain(text, most));

export function bytes(n) {
  if (n == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i && n < 10 ? Number(n.toFixed(1)) : Math.round(n)} ${units[i]}`;
}

// Returns a span of seconds in its largest unit.
export function span(seconds) {
  for (const [unit, size] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ])
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}
export const since = (time) => span((Date.now() - Date.parse(time)) / 1000);

// A key that is unique; crypto.randomUUID exists only on pages with TLS or on loopback.
export function unique() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
}

// Texts that are being typed survive a reload of the page, in this tab.
export const draft = {
  get: (key) => sessionStorage.getItem(`draft ${key}`),
  set(key, text) {
    try {
      if (text == null) sessionStorage.removeItem(`draft ${key}`);
      else sessionStorage.setItem(`draft ${key}`, text);
    } catch {
      // The storage is full: the text is still in its field.
    }
  },
};

export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h("textarea", { value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// A text to copy, with a button for it.
export function snippet(label, text) {
  const done = button(
    "Copy",
    async () => {
      await copy(text);
      done.textContent = "Copied";
      setTimeout(() => (done.textContent = "Copy"), 1500);
    },
    { class: "small quiet", "aria-label": `Copy: ${label}` },
  );
  return h(
    "figure",
    { class: "snippet" },
    h("figcaption", {}, label, done),
    h("pre", { tabindex: "0" }, text),
  );
}

export function empty(title, text, ...more) {
  return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), ...more);
}

// A table that scrolls in its own box, with what stands below it. A column is a label, or a label and the
// class of its cells; `rows` is a tbody.
export function sheet(columns, rows, props = {}, ...below) {
  const cells = columns.map((column) => [column].flat());
  const head = cells.map(([label, kind]) => h("th", { scope: "col", class: kind }, label));
  return h(
    "div",
    { class: "sheet" },
    h("table", props, h("thead", {}, h("tr", {}, ...head)), rows),
    ...below,
  );
}
