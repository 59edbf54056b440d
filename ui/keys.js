// SPDX-License-Identifier: Apache-2.0
// The API keys, for admins. The text of a new key is shown once, and kept nowhere.

import { post, send, setKey } from "./api.js";
import { ask, field, tell } from "./dialog.js";
import { button, empty, guest, h, plain, sheet, snippet, span } from "./dom.js";
import { stream } from "./stream.js";

export const title = "Keys";
export const nav = true;

const MOST = 500, // rows
  LONGEST_MS = 2147483647, // of a timer
  SHAPES = { good: "ready", ending: "freezing", revoked: "ended" };

const TIERS = {
  free: "",
  pro: "",
  scale: "",
  enterprise: "",
  operator: "no limits, all events and figures",
  admin: "as operator, and keys of all tenants",
};
const GRACES = { 0: "Ends at once", 3600: "1 hour", 86400: "1 day", 604800: "7 days", 2592000: "30 days" };

async function list(signal) {
  const all = [];
  for (let cursor = null; cursor !== undefined; ) {
    const page = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
    const answer = await send("GET", `v1/keys${page}`, { signal });
    all.push(...(await answer.json()));
    cursor = answer.headers.get("ramet-next-cursor") ?? undefined;
  }
  return all.reverse();
}

const options = (all, chosen) =>
  Object.entries(all).map(([value, label]) =>
    h("option", { value, selected: value === chosen }, label || value),
  );
const tierOptions = (chosen) =>
  options(
    Object.fromEntries(Object.entries(TIERS).map(([tier, hint]) => [tier, hint && `${tier}: ${hint}`])),
    chosen,
  );

const showNew = (made, ...more) =>
  tell({
    title: "Keep this key now",
    action: "I have kept it",
    body: [
      h("p", {}, "It is stored nowhere: this is the only time it is shown."),
      snippet(`Key of ${plain(made.name, 40)}`, made.key),
      ...more,
    ],
  });

async function create(all) {
  const owners = { "": "A new tenant" };
  for (const one of all) owners[one.tenant] ??= `${one.tenant} (${plain(one.name, 30)})`;
  owners.local ??= "local";
  let made;
  await ask({
    title: "New key",
    action: "Make the key",
    body: [
      field("Name", h("input", { name: "name", maxlength: "63", autocomplete: "off", required: true })),
      field("Tier", h("select", { name: "tier" }, ...tierOptions("pro")), "The limits of the tenant."),
      field(
        "Tenant",
        h("select", { name: "tenant" }, ...options(owners, "")),
        "Tenants see only their own sandboxes; local has those that were made without a key.",
      ),
    ],
    async act(data) {
      const wanted = { name: data.get("name"), tier: data.get("tier") };
      if (data.get("tenant")) wanted.tenant = data.get("tenant");
      made = await post("v1/keys", wanted);
    },
  });
  if (made) await showNew(made);
}

async function rotate(one) {
  const graces = { ...GRACES };
  if (one.current) delete graces[0];
  let made;
  await ask({
    title: `Rotate ${plain(one.name, 40)}`,
    action: "Make a new key",
    body: [
      h("p", {}, "A new key of the same tenant, name and tier replaces this one."),
      field("The old key stays valid for", h("select", { name: "grace" }, ...options(graces, "3600"))),
    ],
    async act(data) {
      made = await post(`v1/keys/${one.id}/rotate`, { grace_seconds: Number(data.get("grace")) });
    },
  });
  if (!made) return;
  if (one.current) setKey(made.key);
  await showNew(made, one.current ? h("p", {}, "This tab uses it from now on.") : "");
}

const changeTier = (one) =>
  ask({
    title: `Tier of ${plain(one.name, 40)}`,
    action: "Change",
    body: [
      field(
        "Tier",
        h("select", { name: "tier" }, ...tierOptions(one.tier)),
        "The tenant has the tier of its newest valid key.",
      ),
    ],
    act: (data) => send("PATCH", `v1/keys/${one.id}`, { json: { tier: data.get("tier") } }),
  });

const revoke = (one) =>
  ask({
    title: "Revoke this key?",
    action: "Revoke",
    danger: true,
    body: [
      h("ul", { class: "names" }, h("li", {}, guest(one.name), h("small", {}, ` ${one.id}`))),
      h(
        "p",
        {},
        "At once and for ever: its requests in progress are cut off. The tenant's sandboxes stay for its other keys.",
      ),
    ],
    act: () => send("DELETE", `v1/keys/${one.id}`),
  });

function row(one, after) {
  const act = (label, what, props = {}) =>
    button(label, async () => (await what(one), after()), {
      class: "small",
      "aria-label": `${label} ${plain(one.name, 40)}`,
      ...props,
    });
  const own = one.current && { disabled: true, title: "The key of this tab" };
  const left = one.state === "ending" && span((Date.parse(one.ends_at) - Date.now()) / 1000);
  return h(
    "tr",
    { "data-id": one.id },
    h("td", {}, guest(one.name, {}, 60), one.current ? h("small", {}, " this tab") : null),
    h("td", {}, guest(one.tier)),
    h(
      "td",
      {},
      h(
        "span",
        { class: `state ${SHAPES[one.state]}`, title: one.ends_at && plain(one.ends_at) },
        left ? `ends in ${left}` : plain(one.state),
      ),
    ),
    h("td", { class: "wide mono" }, guest(one.tenant, {}, 13)),
    h("td", { class: "wide mono" }, guest(one.id, {}, 13)),
    h("td", { class: "wide", title: plain(one.created_at) }, plain(one.created_at).slice(0, 10)),
    h(
      "td",
      {},
      one.state === "revoked"
        ? null
        : h(
            "div",
            { class: "buttons" },
            act("Tier …", changeTier, own || {}),
            act("Rotate …", rotate),
            act("Revoke …", revoke, { ...own, class: "small danger" }),
          ),
    ),
  );
}

export function show(root, _, signal) {
  let all = [],
    text = "", // of the list that is shown
    turn = 0,
    timer = 0;
  const rows = h("tbody"),
    error = h("p", { class: "error", role: "alert" }),
    total = h("span", { class: "muted total" });
  const table = sheet(
    ["Name", "Tier", "State", ["Tenant", "wide"], ["Id", "wide"], ["Created", "wide"], ""],
    rows,
  );
  const filter = h("input", {
    type: "search",
    placeholder: "Search keys",
    "aria-label": "Search keys",
    input: () => draw(),
  });
  const revoked = h("input", { type: "checkbox", change: () => draw() });
  const make = button("New key …", async () => (await create(all), load()), { class: "primary" });
  const tools = [h("label", { class: "check" }, revoked, "Revoked too"), filter, make];
  const refused = empty(
    "Keys are for admins",
    "Nobody else may see or change them. An admin's key is made on the host, as root:",
    snippet("Key of an admin", "rametctl key create --tier admin --name NAME"),
  );
  const none = empty(
    "Nothing fits",
    "No key fits this search.",
    button("Show all", () => {
      filter.value = "";
      revoked.checked = true;
      draw();
    }),
  );
  root.append(h("div", { class: "tools" }, h("h1", {}, title), total, ...tools), error, refused, table, none);

  function draw() {
    const words = filter.value.trim().toLowerCase();
    const fitting = all.filter(
      (one) =>
        (revoked.checked || one.state !== "revoked") &&
        [one.name, one.tier, one.tenant, one.id, one.state].join(" ").toLowerCase().includes(words),
    );
    const shown = fitting.slice(0, MOST);
    rows.replaceChildren(...shown.map((one) => row(one, load)));
    total.textContent = shown.length < all.length ? `${shown.length} of ${all.length}` : `${all.length}`;
    table.hidden = !shown.length;
    none.hidden = !all.length || shown.length > 0;
  }
  function admit(yes) {
    refused.hidden = yes;
    for (const one of [total, ...tools]) one.hidden = !yes;
    if (!yes) all = [];
  }
  // Grace periods end without an event.
  function wait() {
    const ends = all.filter((one) => one.state === "ending").map((one) => Date.parse(one.ends_at));
    clearTimeout(timer);
    if (ends.length && !signal.aborted)
      timer = setTimeout(load, Math.min(Math.max(Math.min(...ends) - Date.now(), 0) + 1000, LONGEST_MS));
  }
  async function load() {
    const mine = ++turn;
    try {
      const read = await list(signal);
      if (mine !== turn) return; // a later one has the changes since
      all = read;
      admit(true);
      error.textContent = "";
    } catch (problem) {
      if (signal.aborted || mine !== turn) return;
      if (problem.code === "admins_only") admit(false);
      error.textContent = problem.code === "admins_only" ? "" : problem.message;
    }
    const now = JSON.stringify(all);
    if (now !== text || !all.length) draw();
    text = now;
    wait();
  }
  const came = (event) => (event === null || event.event.startsWith("key.")) && load();
  refused.hidden = table.hidden = none.hidden = true;
  stream.watchers.add(came);
  signal.addEventListener("abort", () => (stream.watchers.delete(came), clearTimeout(timer)));
  load();
}
