// SPDX-License-Identifier: Apache-2.0
// The audit log, followed as one stream for the whole page while it is visible.

import { key, link, objects, pause, send } from "./api.js";

const HIDDEN_MS = 10000,
  FIRST_MS = 500,
  MOST_MS = 8000,
  WITHOUT_KEY_MS = 60000;

// begin: how often it began anew, without knowing what had been before; 0 before the first time.
// Watchers are called with each event, and with null when the stream was opened or lost.
export const stream = { begin: 0, error: "", watchers: new Set() };

let last = null, // the number of the last event
  used = null, // the key that saw it
  own = new AbortController();

// Opens the stream again: after a key was entered, or when the connection seems lost.
export const restart = () => own.abort();

const tell = (event) => stream.watchers.forEach((watcher) => watcher(event));

async function read(signal) {
  if (key() !== used) last = null;
  used = key();
  const since = last === null ? "" : `&since=${last}`;
  const answer = await send("GET", `v1/events?follow=1${since}`, { signal });
  stream.error = "";
  if (!since) stream.begin++;
  tell(null);
  for await (const event of objects(answer)) {
    last = event.n;
    tell(event);
  }
}

export async function visible() {
  while (document.hidden)
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

// A browser has few connections to a service, so pages that nobody sees leave theirs to others.
function leaveWhenHidden() {
  let timer;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(restart, HIDDEN_MS);
  });
}

export async function listen() {
  leaveWhenHidden();
  for (let failed = 0; ;) {
    await visible();
    const began = performance.now();
    try {
      await read(own.signal);
      stream.error = "The connection broke.";
    } catch (problem) {
      stream.error = problem.name === "AbortError" ? "" : problem.message;
    }
    failed = performance.now() - began > MOST_MS ? 0 : failed + 1;
    own = new AbortController();
    tell(null);
    const ms = Math.min(FIRST_MS * 2 ** failed, MOST_MS);
    await pause(link.state === "key" ? WITHOUT_KEY_MS : ms, own.signal);
    own = new AbortController();
  }
}
