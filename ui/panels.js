// SPDX-License-Identifier: Apache-2.0
// The smaller panels of a sandbox: processes, contexts, ports, metrics, settings, and lines to copy.

import { get, objects, pause, post, send } from "./api.js";
import { ask, attempt, field, toast } from "./dialog.js";
import { button, bytes, empty, guest, h, plain, printed, sheet, since, snippet } from "./dom.js";
import { feed, refresh } from "./feed.js";

const at = (id) => `v1/sandboxes/${id}`;

// Asks for a list each few seconds while its panel is shown; `draw` gets it. Returns a function that asks
// at once.
function live(read, draw, error, signal, ms = 2000) {
  let wake = () => {};
  (async () => {
    while (!signal.aborted) {
      try {
        if (!document.hidden) draw(await read());
        error.textContent = "";
      } catch (problem) {
        if (signal.aborted) return;
        error.textContent = problem.message;
        if (problem.status === 404) return;
      }
      const woken = new AbortController();
      wake = () => woken.abort();
      signal.addEventListener("abort", wake, { once: true });
      await pause(ms, woken.signal);
    }
  })();
  return () => wake();
}

// Shows a list under its tools: a table with `labels`, or `none` while it is empty. Returns a function that
// asks for it at once.
function listed(panel, tools, { path, labels, row, none, signal, newest = false }) {
  const error = problemLine(),
    rows = h("tbody"),
    table = sheet(labels, rows);
  table.hidden = none.hidden = true;
  panel.append(tools, error, table, none);
  let shown = "";
  const draw = (all) => {
    // New rows would take the focus from a button.
    const now = JSON.stringify(all);
    if (now === shown && rows.contains(document.activeElement)) return;
    shown = now;
    table.hidden = !all.length;
    none.hidden = all.length > 0;
    rows.replaceChildren(...(newest ? all.reverse() : all).map(row));
  };
  return live(() => get(path, { signal }), draw, error, signal);
}

const problemLine = () => h("p", { class: "error", role: "alert" });

export function processes(panel, id, signal) {
  const output = h("div");
  const command = h("input", {
    "aria-label": "Command",
    placeholder: "Command, run by bash",
    size: "40",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
  });
  const start = async (event) => {
    event.preventDefault();
    const made = await attempt(() => post(`${at(id)}/processes`, { command: command.value, detach: true }));
    if (!made) return;
    command.value = "";
    again();
    show(made);
  };
  let leave = new AbortController();
  async function show(one) {
    leave.abort();
    const own = (leave = new AbortController());
    signal.addEventListener("abort", () => own.abort(), { once: true });
    const text = h("div", { class: "out", role: "log", "aria-label": "Output" }),
      foot = h("span", {}, "running");
    output.replaceChildren(
      h(
        "article",
        { class: "cell" },
        h("pre", { class: "code" }, printed(one.command)),
        text,
        h("footer", {}, h("span", {}, plain(one.id.slice(0, 12))), foot),
      ),
    );
    for (let next = 0; !own.signal.aborted;) {
      try {
        const answer = await send("GET", `${at(id)}/processes/${one.id}/output?since=${next}`, {
          signal: own.signal,
        });
        for await (const event of objects(answer)) {
          if (event.type === "exit")
            return void (foot.textContent = `ended with ${event.signal ? plain(event.signal) : event.data}`);
          if (event.type === "error") throw Object.assign(new Error(event.data), { status: 0 });
          if (event.type !== "stdout" && event.type !== "stderr") continue;
          next =
            event.seq +
            (event.data_b64 ? atob(event.data_b64).length : new TextEncoder().encode(event.data).length);
          text.append(h("pre", { class: event.type }, printed(event.data)));
          while (text.childElementCount > 2000) text.firstChild.remove();
          text.scrollTop = text.scrollHeight;
        }
      } catch (problem) {
        if (own.signal.aborted) return;
        foot.textContent = problem.message;
        if (problem.status === 404) return;
      }
      await pause(1000, own.signal);
    }
  }
  const row = (one) =>
    h(
      "tr",
      {},
      h("td", {}, one.pid),
      h("td", { class: "mono" }, guest(one.command)),
      h(
        "td",
        {},
        h(
          "span",
          { class: `state ${one.state}` },
          one.state === "running"
            ? "running"
            : `ended with ${one.signal ? plain(one.signal) : one.exit_code}`,
        ),
      ),
      h("td", {}, since(one.started_at)),
      h("td", {}, bytes(one.output_bytes)),
      h(
        "td",
        {},
        h(
          "div",
          { class: "buttons" },
          button("Output", () => show(one), { class: "small" }),
          one.state === "running"
            ? button(
                "SIGTERM",
                () =>
                  attempt(() => post(`${at(id)}/processes/${one.id}/signal`, { signal: "TERM" })).then(again),
                { class: "small" },
              )
            : null,
          one.state === "running"
            ? button(
                "Kill",
                () => attempt(() => send("DELETE", `${at(id)}/processes/${one.id}`)).then(again),
                { class: "small danger" },
              )
            : null,
        ),
      ),
    );
  const none = empty(
    "No processes",
    "Programs that run beside the Python process, and terminals, are listed here.",
  );
  const tools = h(
    "form",
    { class: "tools", submit: start },
    command,
    h("button", { type: "submit", class: "primary" }, "Start"),
  );
  const again = listed(panel, tools, {
    path: `${at(id)}/processes`,
    labels: ["PID", "Command", "State", "Started", "Output", ""],
    row,
    none,
    signal,
    newest: true,
  });
  panel.append(output);
}

export function contexts(panel, id, signal) {
  const language = h(
    "select",
    { "aria-label": "Language" },
    ...["python", "bash", "javascript"].map((one) => h("option", { value: one }, one)),
  );
  const act = (one, what, method = "POST") =>
    attempt(() => send(method, `${at(id)}/contexts/${one.id}${what}`)).then(() => again());
  const row = (one) =>
    h(
      "tr",
      {},
      h("td", { class: "mono" }, one.id.slice(0, 12)),
      h("td", {}, one.language),
      h("td", { class: "mono" }, one.cwd ? guest(one.cwd) : ""),
      h(
        "td",
        {},
        h("span", { class: `state ${one.busy ? "running" : "ready"}` }, one.busy ? "busy" : "ready"),
      ),
      h("td", {}, since(one.started_at)),
      h(
        "td",
        {},
        h(
          "div",
          { class: "buttons" },
          button("Interrupt", () => act(one, "/interrupt"), { class: "small", disabled: !one.busy }),
          button(
            "Restart …",
            () =>
              ask({
                title: "Restart this context?",
                action: "Restart",
                danger: true,
                body: h("p", {}, "Its variables are lost, and its running call ends."),
                act: () => send("POST", `${at(id)}/contexts/${one.id}/restart`),
              }).then(() => again()),
            { class: "small" },
          ),
          button(
            "End …",
            () =>
              ask({
                title: "End this context?",
                action: "End",
                danger: true,
                body: h("p", {}, "Its variables and its processes are lost."),
                act: () => send("DELETE", `${at(id)}/contexts/${one.id}`),
              }).then(() => again()),
            { class: "small danger" },
          ),
        ),
      ),
    );
  const none = empty(
    "No further contexts",
    "A context is an interpreter beside the default Python process, with variables of its own. Choose it on the tab Code.",
  );
  const tools = h(
    "div",
    { class: "tools" },
    language,
    button(
      "Start",
      () => attempt(() => post(`${at(id)}/contexts`, { language: language.value })).then(() => again()),
      { class: "primary" },
    ),
  );
  const again = listed(panel, tools, {
    path: `${at(id)}/contexts`,
    labels: ["Context", "Language", "Folder", "State", "Started", ""],
    row,
    none,
    signal,
  });
}

export function ports(panel, id, signal) {
  const port = h("input", {
    type: "number",
    min: "1",
    max: "65535",
    required: true,
    placeholder: "8000",
    "aria-label": "Port",
  });
  const share = async (event) => {
    event.preventDefault();
    if (await attempt(() => post(`${at(id)}/ports/${port.value}`))) port.value = "";
    again();
  };
  const publish = (one, open) =>
    (open
      ? ask({
          title: `Let everybody reach port ${one.port}?`,
          action: "Make public",
          danger: true,
          body: h(
            "p",
            {},
            "Whoever can reach this service can then use the server on this port, without a token.",
          ),
          act: () => post(`${at(id)}/ports/${one.port}`, { public: true }),
        })
      : attempt(() => post(`${at(id)}/ports/${one.port}`, { public: false }))
    ).then(() => again());
  const row = (one) =>
    h(
      "tr",
      {},
      h("td", {}, one.port),
      h("td", {}, one.public ? "everybody" : "who has the link"),
      h(
        "td",
        {},
        /^https?:\/\//.test(one.url)
          ? h("a", { href: one.url, target: "_blank", rel: "noopener noreferrer" }, "Open")
          : plain(one.url),
      ),
      h(
        "td",
        {},
        h(
          "div",
          { class: "buttons" },
          button(one.public ? "Make private" : "Make public …", () => publish(one, !one.public), {
            class: "small",
          }),
          button(
            "Stop",
            () => attempt(() => send("DELETE", `${at(id)}/ports/${one.port}`)).then(() => again()),
            { class: "small danger" },
          ),
        ),
      ),
    );
  const none = empty("No shared ports", "Share the port of a server in the sandbox to get a link to it.");
  const tools = h(
    "form",
    { class: "tools", submit: share },
    port,
    h("button", { type: "submit", class: "primary" }, "Share"),
  );
  const again = listed(panel, tools, {
    path: `${at(id)}/ports`,
    labels: ["Port", "Access", "Link", ""],
    row,
    none,
    signal,
  });
}

/* --- metrics --- */

function chart(label, values, show) {
  const known = values.filter((value) => value != null),
    top = Math.max(1, ...known),
    n = Math.max(2, values.length);
  const points = values.map((value, i) => [
    ((i * 360) / (n - 1)).toFixed(1),
    (94 - (90 * (value ?? 0)) / top).toFixed(1),
  ]);
  const line = points.map((point) => point.join(" ")).join(" L ");
  const svg = h("svg", { viewBox: "0 0 360 96", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length > 1)
    svg.append(
      h("path", { class: "area", d: `M 0 96 L ${line} L ${points.at(-1)[0]} 96 Z` }),
      h("path", { class: "trace", d: `M ${line}` }),
    );
  return h(
    "figure",
    { class: "card chart" },
    h(
      "figcaption",
      {},
      h("span", { class: "strong" }, label),
      h(
        "span",
        { class: "muted" },
        known.length ? `${show(values.at(-1) ?? 0)}, at most ${show(top)}` : "no samples yet",
      ),
    ),
    svg,
  );
}

// The growth of a counter between samples, in bytes per second. A merge may set it back.
const rate = (samples, key) =>
  samples
    .slice(1)
    .map(
      (one, i) =>
        Math.max(0, one[key] - samples[i][key]) /
        Math.max(1, (Date.parse(one.at) - Date.parse(samples[i].at)) / 1000),
    );

export function metrics(panel, id, signal) {
  const error = problemLine(),
    charts = h("div", { class: "charts" }),
    percent = (v) => `${Math.round(v)} %`,
    speed = (v) => `${bytes(v)}/s`;
  panel.append(error, charts);
  live(
    () => get(`${at(id)}/metrics`, { signal }),
    ({ samples, now }) => {
      const all = [...samples, now];
      charts.replaceChildren(
        chart(
          "CPU",
          all.map((one) => one.cpu_percent),
          percent,
        ),
        chart(
          "Memory",
          all.map((one) => one.memory_used_bytes),
          bytes,
        ),
        chart(
          "Disk, newest layer",
          all.map((one) => one.disk_layer_bytes),
          bytes,
        ),
        chart("Network received", rate(all, "network_received_bytes"), speed),
        chart("Network sent", rate(all, "network_sent_bytes"), speed),
      );
    },
    error,
    signal,
    10000,
  );
}

/* --- settings --- */

const time = (text) => (text ? new Date(text).toLocaleString() : "never");

export function settings(panel, id, signal) {
  const one = feed.sandboxes.get(id);
  const facts = h("dl", { class: "facts card" });
  const life = h("input", {
    name: "lifetime_seconds",
    type: "number",
    min: "1",
    max: "31536000",
    placeholder: "unchanged",
  });
  const idle = h("input", {
    name: "idle_timeout_seconds",
    type: "number",
    min: "1",
    max: "31536000",
    placeholder: "unchanged",
  });
  const persistent = h("input", { type: "checkbox", checked: one?.persistent });
  const metadata = h("textarea", {
    rows: "6",
    spellcheck: "false",
    value: JSON.stringify(one?.metadata ?? {}, null, 2),
  });
  const error = problemLine();
  const before = { metadata: metadata.value, persistent: persistent.checked };
  async function save(event) {
    event.preventDefault();
    error.textContent = "";
    const change = {};
    for (const input of [life, idle]) if (input.value) change[input.name] = Number(input.value);
    if (persistent.checked !== before.persistent) change.persistent = persistent.checked;
    try {
      if (metadata.value !== before.metadata) change.metadata = JSON.parse(metadata.value);
    } catch (problem) {
      error.textContent = `The metadata is not JSON: ${problem.message}`;
      return;
    }
    try {
      await send("PATCH", at(id), { json: change });
      Object.assign(before, { metadata: metadata.value, persistent: persistent.checked });
      life.value = idle.value = "";
      toast("Saved.");
      refresh();
    } catch (problem) {
      error.textContent = problem.message;
    }
  }
  const close = button(
    "Close the network …",
    () =>
      ask({
        title: "Close the network for good?",
        action: "Close it",
        danger: true,
        body: h("p", {}, "The sandbox then reaches nothing, and this cannot be undone."),
        act: () => send("PATCH", at(id), { json: { egress: false } }),
      }).then(refresh),
    { class: "danger" },
  );
  const draw = () => {
    const now = feed.sandboxes.get(id);
    if (!now) return;
    close.disabled = !now.egress;
    const rows = {
      Created: time(now.created_at),
      Ends: time(now.expires_at),
      "Ends when idle until": time(now.idle_expires_at),
      Template: now.template,
      Size: `${now.vcpus} CPU, ${bytes(now.ram_mib * 1048576)}, ${now.rootfs_gb} GB disk`,
      Network: now.egress ? "open" : "closed",
      "Shared memory": bytes(now.memory_shared_bytes || null),
    };
    facts.replaceChildren(
      ...Object.entries(rows).flatMap(([label, value]) => [h("dt", {}, label), h("dd", {}, plain(value))]),
    );
  };
  draw();
  feed.watchers.add(draw);
  signal.addEventListener("abort", () => feed.watchers.delete(draw));
  panel.append(
    h(
      "form",
      { class: "settings", submit: save },
      facts,
      h("div", { class: "pair" }, field("Lifetime from now (s)", life), field("Idle timeout (s)", idle)),
      h("label", { class: "check" }, persistent, "Freeze at the idle timeout instead of ending"),
      field("Metadata (JSON)", metadata),
      error,
      h("div", { class: "buttons" }, close, h("button", { type: "submit", class: "primary" }, "Save")),
    ),
  );
}

/* --- lines to copy --- */

export function use(panel, id) {
  const host = location.origin;
  panel.append(
    snippet(
      "Python",
      `from ramet import Sandbox\n\nsbx = Sandbox.connect("${id}", host="${host}")\nprint(sbx.run_code("print(1 + 1)").stdout)`,
    ),
    snippet("Command line", `export RAMET_HOST=${host}\nramet exec ${id} -- uname -a\nramet shell ${id}`),
    snippet("curl", `curl -sN ${host}/v1/sandboxes/${id}/exec -d '{"code": "print(1 + 1)"}'`),
    h(
      "p",
      { class: "muted" },
      'With keys, set RAMET_API_KEY, and give curl -H "Authorization: Bearer $RAMET_API_KEY".',
    ),
  );
}
