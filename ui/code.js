// SPDX-License-Identifier: Apache-2.0
// Runs code, and shows the calls of a sandbox as they go on: its own, and those of other clients.

import { objects, pause, send } from "./api.js";
import { attempt } from "./dialog.js";
import { button, draft, h, printed } from "./dom.js";
import { feed } from "./feed.js";
import { result } from "./results.js";

const MOST_CHARS = 1 << 20; // shown of one call
const MOST_CELLS = 100;
const sessions = new Map(); // by sandbox: its cells stay while other pages are shown

class Cell {
  constructor(session, code, label) {
    this.out = h("div", { class: "out" });
    this.foot = h("span", {}, "waiting");
    this.element = h(
      "article",
      { class: "cell", "aria-label": label },
      code === null ? null : h("pre", { class: "code" }, printed(code)),
      this.out,
      h("footer", {}, h("span", {}, label), this.foot),
    );
    this.began = performance.now();
    this.chars = 0;
    // Whether events are lines without their newlines, which the API does not tell: lines of others'
    // calls are, until one has a newline.
    this.lines = code === null;
    this.queue = [];
    session.element.append(this.element);
    while (session.element.children.length > MOST_CELLS) session.element.firstChild.remove();
    session.element.scrollTop = session.element.scrollHeight;
  }

  // Elements are made once per frame, however many events arrive.
  add(event) {
    if (!this.queue.length) requestAnimationFrame(() => this.draw());
    this.queue.push(event);
  }

  draw() {
    const list = this.element.parentElement,
      atEnd = !list || list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    for (const event of this.queue.splice(0)) this.one(event);
    if (list && atEnd) list.scrollTop = list.scrollHeight;
  }

  one(event) {
    if (event.type === "stdout" || event.type === "stderr") this.text(event.type, event.data, event.partial);
    else if (event.type === "result") this.shown(result(event));
    else if (event.type === "exit")
      this.end(event.data === 0, event.data === 0 ? "done" : `exit code ${event.data}`);
    else if (event.type === "error" && event.code) this.end(false, event.data);
  }

  // A picture has its height only once it is loaded.
  shown(result) {
    this.out.append(result);
    const atEnd = () => {
      this.out.scrollTop = this.out.scrollHeight;
      this.element.scrollIntoView({ block: "end" });
    };
    result.querySelector("img")?.addEventListener("load", atEnd, { once: true });
  }

  text(kind, text, partial) {
    let last = this.out.lastElementChild;
    this.lines &&= !text.includes("\n");
    if (this.lines && last?.classList.contains(kind) && !this.partial) text = `\n${text}`;
    this.partial = partial;
    if (!last?.classList.contains(kind)) {
      last = h("pre", { class: kind });
      this.out.append(last);
    }
    last.append(printed(text));
    this.foot.textContent = "running";
    this.chars += text.length;
    while (this.chars > MOST_CHARS && this.out.firstElementChild?.tagName === "PRE") {
      const first = this.out.firstElementChild;
      this.chars -= first.firstChild?.textContent.length ?? 0;
      first.firstChild?.remove();
      if (!first.firstChild) first.remove();
    }
    this.out.scrollTop = this.out.scrollHeight;
  }

  end(good, text) {
    this.element.classList.toggle("failed", !good);
    this.foot.textContent = `${text} · ${((performance.now() - this.began) / 1000).toFixed(2)} s`;
    this.ended = true;
  }
}

class Session {
  constructor(id) {
    this.id = id;
    this.element = h("div", { class: "cells", tabindex: "0", role: "log", "aria-label": "Calls" });
    this.since = 0; // up to where replay was followed
    this.seen = new Set(); // events that came in answers to own calls
    this.open = new Map(); // by context: the cell for events from replay
    this.own = 0;
    this.idle = 3;
  }

  // Shows events of other clients' calls, and of own calls whose answer broke off, while `signal` lasts.
  async follow(signal) {
    while (!signal.aborted) {
      this.following = new AbortController();
      const stop = () => this.following.abort();
      signal.addEventListener("abort", stop, { once: true });
      try {
        if (this.own === 0) {
          const answer = await send("GET", `v1/sandboxes/${this.id}/replay?since=${this.since}&follow=true`, {
            signal: this.following.signal,
          });
          for await (const event of objects(answer)) this.replayed(event);
        }
      } catch (problem) {
        if (problem.status === 404) return;
      }
      signal.removeEventListener("abort", stop);
      await this.until(signal);
    }
  }

  // Returns when there may be new events.
  async until(signal) {
    do await pause(300, signal);
    while (
      !signal.aborted &&
      (this.own || (feed.sandboxes.get(this.id)?.state !== "running" && !this.open.size && this.idle-- > 0))
    );
    this.idle = 3;
  }

  replayed(event) {
    this.since = Math.max(this.since, event.seq);
    if (this.seen.delete(event.seq)) return;
    const context = event.context ?? "";
    if (!this.open.has(context))
      this.open.set(
        context,
        new Cell(
          this,
          null,
          event.context ? `another client, ${event.context.slice(0, 12)}` : "another client, or earlier",
        ),
      );
    const cell = this.open.get(context);
    cell.add(event);
    if (event.type === "exit" || event.code) this.open.delete(context);
  }

  async run(code, language) {
    const context = language.startsWith("ctx_") ? language : null;
    const cell = new Cell(this, code, context ? `context ${context.slice(0, 12)}` : language);
    let began = false;
    this.own++;
    this.following?.abort();
    try {
      const answer = await send("POST", `v1/sandboxes/${this.id}/exec`, {
        json: {
          code,
          ...(context ? { context } : { language }),
          output: "chunks",
          results: !context && language === "python",
        },
      });
      for await (const event of objects(answer)) {
        began = true;
        this.seen.add(event.seq);
        cell.add(event);
      }
      return true;
    } catch (problem) {
      if (problem.code === "lost" && began) {
        // The call goes on in the sandbox: the rest of its events come from replay.
        this.open.set(context ?? "", cell);
        cell.foot.textContent = "the connection broke; its output goes on when it is back";
        return true;
      }
      if (!cell.ended) cell.end(false, problem.message);
      return false;
    } finally {
      this.own--;
    }
  }
}

export async function show(panel, id, signal) {
  if (!sessions.has(id)) sessions.set(id, new Session(id));
  const session = sessions.get(id);
  const area = h("textarea", {
    "aria-label": "Code",
    rows: "4",
    spellcheck: "false",
    placeholder: "print('hello')        Ctrl+Enter runs it",
    value: draft.get(`code ${id}`) ?? "",
  });
  const language = h(
    "select",
    { "aria-label": "Language" },
    h("option", { value: "python" }, "Python"),
    h("option", { value: "bash" }, "bash"),
  );
  async function run() {
    const code = area.value;
    if (!code.trim()) return;
    area.value = "";
    draft.set(`code ${id}`, null);
    // Code that was refused, or did not arrive, is put back, unless something else was typed meanwhile.
    if (!(await session.run(code, language.value)) && !area.value) {
      area.value = code;
      draft.set(`code ${id}`, code);
    }
  }
  area.addEventListener("input", () => draft.set(`code ${id}`, area.value));
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
    event.preventDefault();
    run();
  });
  const interrupt = () =>
    attempt(() =>
      send(
        "POST",
        language.value.startsWith("ctx_")
          ? `v1/sandboxes/${id}/contexts/${language.value}/interrupt`
          : `v1/sandboxes/${id}/interrupt`,
      ),
    );
  panel.append(
    session.element,
    h(
      "div",
      { class: "prompt" },
      area,
      h(
        "div",
        { class: "tools" },
        h("span", { class: "grow" }, language),
        button("Interrupt", interrupt, { class: "quiet" }),
        button("Run", run, { class: "primary" }),
      ),
    ),
  );
  session.element.scrollTop = session.element.scrollHeight;
  session.follow(signal);
  area.focus({ preventScroll: true });
  try {
    const answer = await send("GET", `v1/sandboxes/${id}/contexts`, { signal });
    for (const one of await answer.json())
      language.append(h("option", { value: one.id }, `${one.language} context ${one.id.slice(4, 12)}`));
  } catch {
    // There are no contexts to choose then.
  }
}
