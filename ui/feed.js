// SPDX-License-Identifier: Apache-2.0
// All sandboxes and Spaces. The API has no stream of their changes, so the lists are asked for again:
// each second while the page is visible, less often if the answer takes long, and after each action.

import { get, link, send } from "./api.js";

const EVERY_MS = 1000,
  MOST_MS = 10000,
  WITHOUT_KEY_MS = 60000,
  SHARE = 20;
const texts = {};

export const feed = { known: false, sandboxes: new Map(), spaces: new Map(), watchers: new Set() };

let wake = () => {};
export function refresh() {
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

async function visible() {
  while (document.hidden)
    await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}

export async function follow() {
  for (let failed = 0; ;) {
    await visible();
    const began = performance.now();
    try {
      const changed = (await Promise.all([read("sandboxes"), read("spaces")])).includes(true);
      if (changed || !feed.known) {
        feed.known = true;
        for (const watcher of feed.watchers) watcher();
      }
      failed = 0;
    } catch {
      failed++; // api.js has told those who watch the connection
    }
    const took = performance.now() - began;
    let ms = Math.min(Math.max(EVERY_MS, took * SHARE), MOST_MS);
    if (failed) ms = Math.min(EVERY_MS * failed, 4 * EVERY_MS);
    if (link.state === "key") ms = WITHOUT_KEY_MS; // a new key asks at once
    await woken(ms);
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
