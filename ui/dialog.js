// SPDX-License-Identifier: Apache-2.0
// Questions, and short notices.

import { button, h } from "./dom.js";

// Shows a question with fields; `act` is called with the form's data when it is confirmed, and the
// dialog stays open, with the reason, if that fails. Resolves to true when `act` succeeded.
export function ask({ title, body = [], action, danger = false, act }) {
  return new Promise((resolve) => {
    const before = document.activeElement;
    const error = h("p", { class: "error", role: "alert" });
    const yes = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const no = button("Cancel", () => dialog.close(), { class: "quiet" });
    const submit = async (event) => {
      event.preventDefault();
      yes.disabled = true;
      error.textContent = "";
      try {
        await act(new FormData(form));
        done = true;
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
        yes.disabled = false;
      }
    };
    let done = false;
    const form = h(
      "form",
      { submit },
      h("h2", {}, title),
      ...[body].flat(),
      error,
      h("div", { class: "buttons" }, no, yes),
    );
    const dialog = h(
      "dialog",
      {
        "aria-label": title,
        close: () => {
          dialog.remove();
          if (before?.isConnected) before.focus();
          resolve(done);
        },
      },
      form,
    );
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, select, textarea") ?? (danger ? no : yes)).focus();
  });
}

// Shows something that must be read before the page goes on; resolves when it was.
export function tell({ title, body, action }) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      {
        "aria-label": title,
        cancel: (event) => event.preventDefault(), // by the key Esc
        close: () => {
          dialog.remove();
          resolve();
        },
      },
      h(
        "form",
        { method: "dialog" },
        h("h2", {}, title),
        ...body,
        h("div", { class: "buttons" }, h("button", { class: "primary" }, action)),
      ),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
}

export function toast(text, bad = false) {
  const one = h(
    "div",
    { class: bad ? "toast bad" : "toast" },
    h("span", {}, text),
    button("×", () => one.remove(), { class: "small quiet", "aria-label": "Close this notice" }),
  );
  document.getElementById("toasts").append(one);
  if (!bad) setTimeout(() => one.remove(), 5000);
}

// Does something that a button asked for, and says why it failed.
export async function attempt(what) {
  try {
    return await what();
  } catch (problem) {
    if (problem.name !== "AbortError") toast(problem.message, true);
    return undefined;
  }
}
