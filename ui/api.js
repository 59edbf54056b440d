// SPDX-License-Identifier: Apache-2.0
// Requests to the API, and what is known of the connection to it.

const BASE = new URL("../", document.baseURI.split("#")[0]);
const KEY = "ramet-key";

export class Problem extends Error {
  constructor(status, code, text, body = null) {
    super(text);
    Object.assign(this, { status, code, body });
  }
}

// state: "ok", "lost" (no answer, or the service is starting or stopping) or "key" (401).
export const link = { state: "ok", text: "", watchers: new Set() };

function become(state, text = "") {
  if (link.state === state && link.text === text) return;
  link.state = state;
  link.text = text;
  for (const watcher of link.watchers) watcher(link);
}

export const key = () => sessionStorage.getItem(KEY) ?? "";
export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

async function problem(answer) {
  let body = null;
  try {
    body = await answer.json();
  } catch {
    // An answer of something between here and the service.
  }
  return new Problem(
    answer.status,
    body?.code ?? "",
    body?.error ?? `The service answered ${answer.status}.`,
    body,
  );
}

// Sends a request; throws a Problem if it is refused or gets no answer. `json` or `body` is its body.
export async function send(method, path, { json, body, headers = {}, signal } = {}) {
  const all = { ...headers };
  if (key()) all.authorization = `Bearer ${key()}`;
  if (json !== undefined) all["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      method,
      headers: all,
      signal,
      body: json === undefined ? body : JSON.stringify(json),
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    become("lost", "No answer from the service.");
    throw new Problem(0, "lost", "No answer from the service. Try again when it is back.");
  }
  if (answer.ok) {
    become("ok");
    return answer;
  }
  const refused = await problem(answer);
  if (answer.status === 401) become("key", refused.message);
  else if (refused.code === "stopping" || refused.code === "not_ready") become("lost", refused.message);
  else become("ok");
  throw refused;
}

export const get = async (path, options) => (await send("GET", path, options)).json();
export const post = async (path, json = {}, options = {}) => {
  const answer = await send("POST", path, { json, ...options });
  return answer.status === 204 ? null : answer.json();
};

// Yields the objects of an answer in NDJSON. Throws a Problem if it breaks off.
export async function* objects(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, "lost", "The connection broke.");
    }
    if (part.done) return;
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.trim()) yield JSON.parse(line);
  }
}

export const pause = (ms, signal) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
