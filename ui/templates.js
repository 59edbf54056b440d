// SPDX-License-Identifier: Apache-2.0
// The templates, and how far their preparation is.

import { get, pause } from "./api.js";
import { guest, h, bytes, sheet } from "./dom.js";

export const title = "Templates";
export const nav = true;

const size = (t) => `${t.vcpus} CPU · ${bytes(t.ram_mib * 1048576)} · ${t.rootfs_gb} GB disk`;

function row(t) {
  return h(
    "tr",
    {},
    h("td", {}, guest(t.name, { class: "strong" })),
    h(
      "td",
      {},
      h("span", { class: `state ${t.state === "building" ? "running" : t.state}` }, t.state),
      t.why ? h("small", { class: "error" }, " ", guest(t.why)) : null,
    ),
    h("td", {}, size(t)),
    h("td", {}, t.sizes.length ? t.sizes.map(size).join(", ") : "none"),
    h("td", {}, guest(t.description)),
  );
}

export async function show(root, _, signal) {
  const rows = h("tbody"),
    error = h("p", { class: "error", role: "alert" });
  root.append(
    h("div", { class: "tools" }, h("h1", {}, title)),
    error,
    sheet(["Name", "State", "Default size", "Prepared sizes", "Description"], rows),
  );
  while (!signal.aborted) {
    try {
      rows.replaceChildren(...(await get("v1/templates", { signal })).map(row));
      error.textContent = "";
    } catch (problem) {
      if (signal.aborted) return;
      error.textContent = problem.message;
    }
    await pause(5000, signal);
  }
}
