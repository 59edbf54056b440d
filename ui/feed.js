// SPDX-License-Identifier: Apache-2.0
// All sandboxes and Spaces. The lists are asked for again after each event and each action, and from time
// to time while the page is visible, for what events do not tell: memory, states and metadata.

import { get, link, pause, send } from "./api.js";
import { listen, restart, stream, visible } from "./stream.js";

const EVERY_MS = 10000,
  APART_MS = 200,
  APART_MOST_MS = 5000,
  FAILED_MS = 1000,
  SHARE = 4, // the pause after an answer, as a multiple of the time that it took
  WITHOUT_KEY_MS = 60000;
const texts = {};

export const feed = { known: false, sandboxes: new Map(), spaces: new Map(), watchers: new Set() };
export const listed = new Promise((resolve) => feed.watchers.add(resolve));

let asked = false,
  wake = () => {};
export function refresh() {
  asked = true;
  wake();
}

async function read(kind) {
  const text = await (await send("GET", `v1/${kind}`)).text();
  if (texts[kind] === text) return false;
  texts[kind] = text;
  feed[kind] = new Map(JSON.parse(text).map((one) => [one.id, one]));
  return true;
}

const woken = (ms) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => (clearTimeout(timer), resolve());
  });

export async function follow() {
  stream.watchers.add(refresh);
  listen();
  for (let failed = 0; ;) {
    await visible();
    const began = performance.now();
    asked = false;
    try {
      const changed = (await Promise.all([read("sandboxes"), read("spaces")])).includes(true);
      if (changed || !feed.known) {
        feed.known = true;
        for (const watcher of feed.watchers) watcher();
      }
      failed = 0;
    } catch {
      failed++; // api.js has told those who watch the connection
      if (link.state !== "ok") restart();
    }
    const took = performance.now() - began;
    await pause(Math.min(Math.max(APART_MS, took * SHARE), APART_MOST_MS));
    let ms = failed ? FAILED_MS * Math.min(failed, 4) : EVERY_MS;
    if (link.state === "key") ms = WITHOUT_KEY_MS; // a new key asks at once
    if (!asked) await woken(ms);
  }
}

// Returns the name that its maker gave it, or the begin of its id.
export function name(one) {
  const own = one.metadata?.name;
  return typeof own === "string" && own.trim() ? own : one.id.slice(0, 12);
}

// Returns whether a sandbox descends from another, at any depth.
export function descends(id, from) {
  for (let at = feed.sandboxes.get(id)?.parent; at; at = feed.sandboxes.get(at)?.parent)
    if (at === from) return true;
  return false;
}

export const templates = () => get("v1/templates");
