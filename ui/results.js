// SPDX-License-Identifier: Apache-2.0
// Results of calls. All of it comes from code that nobody trusts: pictures are shown as pictures, data as
// text, and HTML in a frame without scripts, whose origin is its own.

import { h, plain, printed, sheet } from "./dom.js";

const PICTURES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/svg+xml"];
const MOST_ROWS = 100,
  MOST_COLUMNS = 50;
const frames = globalThis.trustedTypes?.createPolicy("ramet-frame", { createHTML: (text) => text });

function picture(kind, data) {
  const url =
    kind === "image/svg+xml"
      ? `data:${kind};charset=utf-8,${encodeURIComponent(data)}`
      : `data:${kind};base64,${data}`;
  return h("img", { src: url, alt: "Picture that the call made" });
}

// A frame of data: an object of columns, or a list of pairs of name and column.
function data(value) {
  const columns = (Array.isArray(value) ? value : Object.entries(value)).slice(0, MOST_COLUMNS);
  const n = Math.max(0, ...columns.map(([, cells]) => cells.length));
  const rows = Array.from({ length: Math.min(n, MOST_ROWS) }, (_, i) =>
    h(
      "tr",
      {},
      ...columns.map(([, cells]) =>
        h("td", { class: typeof cells[i] === "number" ? "num" : null }, plain(cells[i] ?? "–")),
      ),
    ),
  );
  return sheet(
    columns.map(([name, cells]) => [plain(name), typeof cells[0] === "number" ? "num" : null]),
    h("tbody", {}, ...rows),
    {},
    n > MOST_ROWS ? h("small", {}, `${n - MOST_ROWS} more rows`) : null,
  );
}

function framed(text) {
  const frame = h("iframe", { sandbox: "", title: "HTML that the call made", referrerpolicy: "no-referrer" });
  frame.srcdoc = frames ? frames.createHTML(text) : text;
  return frame;
}

function body(mime) {
  const kind = PICTURES.find((one) => typeof mime[one] === "string");
  if (kind) return picture(kind, mime[kind].trim());
  const table = mime["application/vnd.ramet.data+json"];
  if (table && typeof table === "object" && Object.values(table).every((cells) => Array.isArray(cells)))
    return data(table);
  if (typeof mime["text/html"] === "string" && !mime["application/vnd.plotly.v1+json"])
    return framed(mime["text/html"]);
  if (mime["application/json"] !== undefined)
    return h("pre", {}, printed(JSON.stringify(mime["application/json"], null, 2)));
  const text = mime["text/plain"] ?? Object.entries(mime).find(([name]) => name.startsWith("text/"))?.[1];
  return h(
    "pre",
    {},
    printed(typeof text === "string" ? text : `a result of the types ${Object.keys(mime).join(", ")}`),
  );
}

export function result(event) {
  const note = event.mime["text/vnd.ramet.note"];
  return h(
    "div",
    { class: "result" },
    body(event.mime),
    typeof note === "string" ? h("small", {}, plain(note, 500)) : null,
  );
}
