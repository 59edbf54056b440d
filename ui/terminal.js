// SPDX-License-Identifier: Apache-2.0
// Terminals of a sandbox. They belong to the sandbox: leaving the page does not end them.

import { get, objects, pause, post, send } from "./api.js";
import { attempt } from "./dialog.js";
import { button, h } from "./dom.js";
import { FLAGS, Screen, colour, runs } from "./vt.js";

const PAST = 2000; // lines above the screen
const KEYS = {
  Enter: "\r",
  Backspace: "\x7f",
  Tab: "\t",
  Escape: "\x1b",
  Delete: "\x1b[3~",
  Insert: "\x1b[2~",
  PageUp: "\x1b[5~",
  PageDown: "\x1b[6~",
  F1: "\x1bOP",
  F2: "\x1bOQ",
  F3: "\x1bOR",
  F4: "\x1bOS",
  F5: "\x1b[15~",
  F6: "\x1b[17~",
  F7: "\x1b[18~",
  F8: "\x1b[19~",
  F9: "\x1b[20~",
  F10: "\x1b[21~",
  F11: "\x1b[23~",
  F12: "\x1b[24~",
};
const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };

function lineElement(line, cursor) {
  return h(
    "span",
    { class: "line" },
    ...runs(line, cursor).map((run) => {
      const { BOLD, DIM, ITALIC, UNDERLINE, INVERSE } = FLAGS,
        inverse = run.flags & INVERSE;
      const marks = [
        run.flags & BOLD && "b",
        run.flags & DIM && "d",
        run.flags & ITALIC && "i",
        run.flags & UNDERLINE && "u",
        run.here && "cursor",
      ].filter(Boolean);
      if (!marks.length && !run.fg && !run.bg && !inverse) return run.text;
      const span = h("span", { class: marks.join(" ") }, run.text);
      const fg = run.fg ? colour(run.fg) : inverse ? "#dfe6e1" : "",
        bg = run.bg ? colour(run.bg) : inverse ? "#101412" : "";
      if (!run.here)
        ((span.style.color = inverse ? bg : fg), (span.style.backgroundColor = inverse ? fg : bg));
      return span;
    }),
  );
}

class View {
  constructor() {
    this.screen = new Screen(80, 24);
    this.back = h("div");
    this.front = h("div");
    this.probe = h("span", { class: "probe", "aria-hidden": "true" }, "M".repeat(50));
    this.input = h("textarea", {
      "aria-label": "Terminal. Shift+Escape leaves it",
      autocapitalize: "off",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.element = h(
      "div",
      { class: "term", "data-term": "" },
      this.back,
      this.front,
      this.probe,
      this.input,
    );
    this.element.addEventListener(
      "mouseup",
      () => getSelection().isCollapsed && this.input.focus({ preventScroll: true }),
    );
    this.drawn = [];
  }

  fit() {
    const box = this.probe.getBoundingClientRect(),
      style = getComputedStyle(this.element);
    if (!box.width) return null;
    const width = this.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const height = this.element.clientHeight - parseFloat(style.paddingTop) - parseFloat(style.paddingBottom);
    return [
      Math.max(20, Math.floor(width / (box.width / 50))),
      Math.max(5, Math.floor(height / parseFloat(style.lineHeight))),
    ];
  }

  write(text) {
    this.screen.write(text);
    this.due();
  }

  due() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.waiting = false;
    const { screen, element } = this,
      atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    for (const line of screen.past.splice(0).slice(-PAST)) this.back.append(lineElement(line));
    while (this.back.childElementCount > PAST) this.back.firstChild.remove();
    while (this.front.childElementCount > screen.rows) this.front.lastChild.remove();
    screen.lines.forEach((line, y) => {
      const cursor = screen.cursor && y === screen.y ? Math.min(screen.x, screen.cols - 1) : -1;
      if (
        !line.dirty &&
        this.drawn[y] === line &&
        this.front.children[y] &&
        cursor < 0 &&
        y !== this.cursorRow
      )
        return;
      const fresh = lineElement(line, cursor);
      if (this.front.children[y]) this.front.children[y].replaceWith(fresh);
      else this.front.append(fresh);
      line.dirty = false;
      this.drawn[y] = line;
    });
    this.cursorRow = screen.y;
    if (atEnd) element.scrollTop = element.scrollHeight;
  }
}

function keyText(event, screen) {
  const arrow = ARROWS[event.key];
  if (arrow) return event.ctrlKey ? `\x1b[1;5${arrow}` : `${screen.keys ? "\x1bO" : "\x1b["}${arrow}`;
  if (event.key === "Tab" && event.shiftKey) return "\x1b[Z";
  if (KEYS[event.key]) return (event.altKey ? "\x1b" : "") + KEYS[event.key];
  if (event.ctrlKey && !event.altKey && event.key.length === 1) {
    const code = event.key === " " ? 64 : event.key.toUpperCase().charCodeAt(0);
    return code >= 64 && code < 96 ? String.fromCharCode(code & 31) : null;
  }
  return event.altKey && !event.ctrlKey && event.key.length === 1 ? `\x1b${event.key}` : null;
}

const base64 = (text) =>
  btoa(Array.from(new TextEncoder().encode(text), (b) => String.fromCharCode(b)).join(""));
const decoded = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

export async function show(panel, id, signal) {
  const base = `v1/sandboxes/${id}/pty`;
  const choice = h("select", { "aria-label": "Terminal", change: () => open(choice.value) });
  const note = h("span", { class: "muted grow", role: "status" });
  const holder = h("div", { class: "term" });
  let view = null,
    current = null,
    leave = null,
    typed = "",
    sending = false;
  // Whether questions in the output are answered: not those of kept output, which were answered before.
  let live = false;
  panel.append(
    h(
      "div",
      { class: "tools" },
      choice,
      note,
      button("New terminal", () => open("")),
      button("Kill", () => current && attempt(() => post(`${base}/${current}/kill`)), { class: "danger" }),
    ),
    holder,
  );
  let shown = holder;

  // What is typed is sent in its order, and kept while there is no connection.
  async function flush() {
    if (sending || !current) return;
    sending = true;
    while (typed && !signal.aborted) {
      const part = typed.slice(0, 64 << 10),
        to = current;
      try {
        await post(`${base}/${to}/input`, { data_b64: base64(part) }, { signal });
        typed = typed.slice(part.length);
      } catch (problem) {
        if (problem.code !== "lost" && problem.status !== 503) {
          typed = "";
          if (!signal.aborted) note.textContent = problem.message;
          break;
        }
        await pause(500, signal);
      }
    }
    sending = false;
  }
  const type = (text) => ((typed += text), (live = true), flush());

  async function list() {
    const all = await get(base, { signal });
    choice.replaceChildren(
      ...all.map((one, i) =>
        h(
          "option",
          { value: one.pty_id, selected: one.pty_id === current },
          `${i + 1}: ${one.cmd_label.slice(0, 40)}${one.exit_code === null ? "" : " (ended)"}`,
        ),
      ),
    );
    choice.hidden = all.length < 2;
    return all;
  }

  let size = "";
  async function fit() {
    const now = view?.fit();
    if (!now) return;
    view.screen.resize(...now);
    view.due();
    if (size === now.join() || !current) return;
    size = now.join();
    await post(`${base}/${current}/resize`, { cols: now[0], rows: now[1] }, { signal }).catch(
      () => (size = ""),
    );
  }

  function keys() {
    const { input, screen } = view;
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || event.metaKey) return;
      if (event.key === "Escape" && event.shiftKey)
        return choice.hidden ? panel.querySelector("button").focus() : choice.focus();
      if (event.ctrlKey && event.shiftKey) return undefined; // copies and pastes
      if (event.ctrlKey && event.key === "c" && !getSelection().isCollapsed) return undefined;
      if (event.ctrlKey && event.key === "v") return undefined;
      const text = keyText(event, screen);
      if (text === null) return undefined;
      event.preventDefault();
      view.element.scrollTop = view.element.scrollHeight;
      return type(text);
    });
    input.addEventListener("input", (event) => {
      if (event.isComposing) return;
      type(input.value.replace(/\n/g, "\r"));
      input.value = "";
    });
    input.addEventListener("compositionend", () => (type(input.value), (input.value = "")));
    input.addEventListener("paste", (event) => {
      event.preventDefault();
      const text = event.clipboardData.getData("text").replace(/\x1b/g, "").replace(/\r?\n/g, "\r");
      type(screen.brackets ? `\x1b[200~${text}\x1b[201~` : text);
    });
  }

  // Opens a terminal, or a new one, and shows its output until another one is opened.
  async function open(pty) {
    leave?.abort();
    const own = (leave = new AbortController());
    signal.addEventListener("abort", () => own.abort(), { once: true });
    current = pty || null;
    size = typed = "";
    view = new View();
    shown.replaceWith(view.element);
    shown = view.element;
    const decoder = new TextDecoder(),
      mine = view;
    live = !pty;
    mine.screen.reply = (text) => live && mine === view && type(text);
    keys();
    const [cols, rows] = view.fit() ?? [80, 24];
    view.screen.resize(cols, rows);
    view.screen.reset();
    view.input.focus({ preventScroll: true });
    note.textContent = "";
    let next = 0,
      ended = false;
    while (!own.signal.aborted && !ended) {
      try {
        const answer = current
          ? await send("GET", `${base}/${current}/attach?since_seq=${next}`, { signal: own.signal })
          : await send("POST", base, { json: { argv: ["bash", "-l"], cols, rows }, signal: own.signal });
        for await (const event of objects(answer)) {
          if (event.type === "pty_ready") {
            current = event.session_id;
            note.textContent = "";
            list().catch(() => {});
            fit();
            flush();
          } else if (event.type === "pty_data") {
            const data = decoded(event.data_b64);
            if (event.seq > next && next) mine.write("\r\n[output was lost]\r\n");
            next = event.seq + data.length;
            mine.write(decoder.decode(data, { stream: true }));
          } else if (event.type === "pty_exit") {
            note.textContent = `The program has ended with ${event.data}.`;
            ended = true;
          } else if (event.type === "pty_error") {
            note.textContent = event.message;
            ended = event.code !== "stopping";
          }
        }
      } catch (problem) {
        if (own.signal.aborted) return;
        note.textContent = problem.message;
        if (problem.status >= 400 && problem.status < 500 && problem.status !== 401 && problem.status !== 429)
          return;
      }
      if (!ended) await pause(1000, own.signal);
    }
    list().catch(() => {});
  }

  const watcher = new ResizeObserver(() => fit());
  watcher.observe(panel);
  signal.addEventListener("abort", () => watcher.disconnect());
  let all = [];
  try {
    all = await list();
  } catch (problem) {
    if (signal.aborted) return;
    note.textContent = problem.message;
    if (problem.status === 404) return;
  }
  open(all.findLast((one) => one.exit_code === null)?.pty_id ?? "");
}
