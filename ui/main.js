// SPDX-License-Identifier: Apache-2.0
// The frame of all pages: navigation, the state of the connection, and the key.

import { key, link, send, setKey } from "./api.js";
import { ask, field, toast } from "./dialog.js";
import { button, h } from "./dom.js";
import { follow, refresh } from "./feed.js";
import { restart } from "./stream.js";
import * as diff from "./diff.js";
import * as events from "./events.js";
import * as host from "./host.js";
import * as keys from "./keys.js";
import * as sandbox from "./sandbox.js";
import * as spaces from "./spaces.js";
import * as templates from "./templates.js";
import * as tree from "./tree.js";

// Each page has `title` and `show(root, words, signal)`; the signal says when it is left.
const pages = { "": tree, sandbox, diff, spaces, templates, events, keys, host };
const main = document.getElementById("main");
const nav = document.querySelector("nav");
const banner = document.getElementById("banner");
let left = new AbortController();

function show() {
  const words = location.hash.replace(/^#\/?/, "").split("/");
  const page = pages[words[0]] ?? tree;
  left.abort();
  left = new AbortController();
  document.title = `${page.title} · Ramet`;
  for (const one of nav.querySelectorAll("a")) one.removeAttribute("aria-current");
  const here = nav.querySelector(`[href="#/${page === pages[words[0]] ? words[0] : ""}"]`);
  here?.setAttribute("aria-current", "page");
  here?.scrollIntoView({ block: "nearest", inline: "nearest" });
  main.className = `page-${words[0] || "tree"}`;
  main.replaceChildren();
  page.show(main, words.slice(1), left.signal);
}

/* --- the connection and the key --- */

let asking = false;
async function askForKey() {
  if (asking) return;
  asking = true;
  const input = h("input", {
    name: "key",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    required: true,
  });
  await ask({
    title: "API key",
    action: "Use this key",
    body: [
      h("p", {}, link.text),
      field("Key", input, "Kept in this tab until it is closed. What you have typed on the page stays."),
    ],
    async act(data) {
      const before = key();
      setKey(data.get("key").trim());
      try {
        await send("GET", "v1/sandboxes?limit=1");
      } catch (problem) {
        setKey(before);
        throw problem;
      }
      restart();
      refresh();
    },
  });
  asking = false;
}

let told = "ok";
function connection() {
  if (link.state === "ok") {
    banner.replaceChildren();
    if (told === "lost") toast("Connected again.");
  } else if (link.state === "key") {
    banner.replaceChildren(h("span", {}, link.text), button("Enter a key", askForKey, { class: "small" }));
    if (told !== "key") askForKey();
  } else {
    banner.replaceChildren(h("span", {}, `${link.text} Trying again; nothing you typed is lost.`));
  }
  told = link.state;
  document.body.dataset.link = link.state;
}

for (const [path, page] of Object.entries(pages))
  if (page.nav) nav.append(h("a", { href: `#/${path}` }, page.title));
link.watchers.add(connection);
addEventListener("hashchange", show);
show();
follow();
