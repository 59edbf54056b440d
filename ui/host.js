// SPDX-License-Identifier: Apache-2.0
// The host: its checks, and the figures of /metrics, which operators may see.

import { pause, send } from "./api.js";
import { bytes, h, plain, sheet, span } from "./dom.js";

export const title = "Host";
export const nav = true;

async function readiness(signal) {
  try {
    return await (await send("GET", "readyz", { signal })).json();
  } catch (problem) {
    if (typeof problem.body?.ready === "boolean") return problem.body; // 503 with the checks
    throw problem;
  }
}

// Returns the samples of Prometheus' text format: [name, labels, value].
function samples(text) {
  return [...text.matchAll(/^([a-z_]+)(?:\{([^}]*)\})? ([^\s]+)$/gm)].map(([, name, labels, value]) => [
    name,
    labels ?? "",
    Number(value),
  ]);
}

const shown = (name, value) =>
  name.endsWith("_bytes") || name.endsWith("_bytes_total")
    ? bytes(value)
    : name.endsWith("_seconds")
      ? span(value)
      : value.toLocaleString("en");

export async function show(root, _, signal) {
  const checks = h("div", { class: "sheet checks" }),
    figures = h("tbody"),
    error = h("p", { class: "error", role: "alert" });
  const filter = h("input", {
    type: "search",
    placeholder: "Search figures",
    "aria-label": "Search figures",
    input: () => draw(),
  });
  root.append(
    h("h1", {}, title),
    error,
    h("h2", {}, "Checks"),
    checks,
    h("div", { class: "tools" }, h("h2", { class: "grow" }, "Figures"), filter),
    sheet(["Figure", ["Value", "num"]], figures),
  );
  let all = [];
  const draw = () => {
    const text = filter.value.trim().toLowerCase();
    const fitting = all.filter(
      ([name, labels]) => !name.endsWith("_bucket") && `${name} ${labels}`.toLowerCase().includes(text),
    );
    figures.replaceChildren(
      ...fitting
        .slice(0, 300)
        .map(([name, labels, value]) =>
          h(
            "tr",
            {},
            h("td", { class: "mono" }, plain(name), labels ? h("small", {}, ` ${plain(labels)}`) : null),
            h("td", { class: "num" }, shown(name, value)),
          ),
        ),
    );
  };
  while (!signal.aborted) {
    try {
      const ready = await readiness(signal);
      const rows = Object.entries(
        ready.checks ?? { service: ready.ready ? "ok" : "not ready; the checks are for operators" },
      );
      checks.replaceChildren(
        h(
          "table",
          {},
          h(
            "tbody",
            {},
            ...rows.map(([name, text]) =>
              h(
                "tr",
                {},
                h("td", {}, plain(name)),
                h(
                  "td",
                  {},
                  h("span", { class: `state ${text === "ok" ? "ready" : "failed"}` }, plain(text, 500)),
                ),
              ),
            ),
          ),
        ),
      );
      all = samples(await (await send("GET", "metrics", { signal })).text());
      error.textContent = "";
      draw();
    } catch (problem) {
      if (signal.aborted) return;
      error.textContent = problem.message;
    }
    await pause(5000, signal);
  }
}
