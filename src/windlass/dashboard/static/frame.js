/**
 * The frame around the views: menu, search, the sign of live updates, banner, foot, and the list of
 * keys. All of them are descriptions that `app.js` renders.
 */

import { h } from "./dom.js";
import { clock, count } from "./format.js";
import { link, searchLink } from "./router.js";
import { badge, button } from "./ui.js";
import { VIEWS } from "./views.js";

/** What the banner says; `since` is the time of the last good answer. */
/** @type {{[health: string]: (since: string) => string}} */
const BANNERS = {
  unreachable: (since) => `The server does not answer. The numbers are from ${since}. The dashboard tries again by itself.`,
  "engine-away": (since) => `The engine does not answer. The numbers are from ${since}. The dashboard tries again by itself.`,
  slow: (since) => `The server does not answer in time. The numbers are from ${since}.`,
  "logged-out": () => "Your login has ended. The numbers are old.",
};
/** @type {{[health: string]: [string, string, string]}} tone, text, meaning */
const SIGNS = {
  ok: ["green", "Live", "Counts are updated once a second."],
  slow: ["amber", "Slow", "The server is slow to answer."],
  unreachable: ["red", "Away", "The server does not answer."],
  "engine-away": ["red", "Away", "The engine does not answer."],
  "logged-out": ["red", "Logged out", "The login has ended."],
};

/** @param {{current: string, dead: number, me: Me | null, health: Health, isPolling: boolean}} state */
export function top({ current, dead, me, health, isPolling }) {
  const items = VIEWS.map(({ name, title, key, load }) => h("li", { key: name },
    h("a", { href: link(name ? [name] : []), "aria-current": name === current ? "page" : null, title: `g ${key}`,
      on: { pointerenter: () => void load().catch(() => {}) } },
      title, name === "dead" && dead ? [" ", h("span", { class: "badge red" }, dead > 999 ? "999+" : count(dead))] : null)));
  const [tone, text, meaning] = health === "ok" && isPolling
    ? ["amber", "Polling", "The stream of events does not get through, so counts are asked for every two seconds."]
    : SIGNS[health];
  return [
    h("a", { key: "brand", class: "brand", href: link([]) }, "windlass"),
    h("nav", { key: "nav", "aria-label": "Views" }, h("ul", null, items)),
    me && !me.may_change ? h("span", { key: "role", title: `The role ${me.role} may look, and change nothing.` }, badge("read only")) : null,
    search(),
    h("span", { key: "live", class: `live ${tone}`, title: meaning }, h("span", { class: "dot" }), h("span", { class: "live-text" }, text)),
  ];
}

function search() {
  const onSearch = (/** @type {any} */ event) => {
    event.preventDefault();
    const field = event.currentTarget.elements.search;
    if (!field.value.trim()) return;
    location.hash = searchLink(field.value);
    field.blur();
  };
  return h("form", { key: "search", class: "search", role: "search", on: { submit: onSearch } },
    h("label", { for: "search", class: "hidden" }, "Search by job id or task"),
    h("input", { id: "search", name: "search", type: "search", placeholder: "Job id or task", autocomplete: "off", spellcheck: "false" }),
    h("kbd", { "aria-hidden": "true" }, "/"));
}

/** @param {Health} health @param {number} since @param {() => void} logIn @returns {Child} */
export function banner(health, since, logIn) {
  const text = BANNERS[health];
  if (!text) return null;
  return h("p", { key: health }, text(clock(since).slice(11, 19)), " ",
    health === "logged-out" ? button("Log in again", logIn) : null);
}

/** @param {Me | null} me @param {() => void} help */
export function foot(me, help) {
  return [
    h("span", { key: "version" }, `windlass ${me?.version || ""}`),
    me?.engine ? h("span", { key: "engine", class: "mono" }, me.engine) : null,
    h("span", { key: "me" }, `${me?.name || ""} (${me?.role || ""})`),
    button("Keys ?", help, { key: "keys", class: "link" }),
    h("a", { key: "status", href: "./status" }, "Status table"),
    me?.logged_in
      ? h("form", { key: "out", method: "post", action: "./logout" }, h("button", { type: "submit", class: "link" }, "Log out"))
      : null,
  ];
}

/** @param {Shortcut[]} shortcuts */
export function helpDialog(shortcuts) {
  const rows = shortcuts.map(({ keys, text }) =>
    h("div", { key: keys }, h("dt", null, keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, text)));
  return h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, "Keys"),
    h("dl", { class: "keys" }, rows,
      h("div", { key: "Esc" }, h("dt", null, h("kbd", null, "Esc")), h("dd", null, "Close a dialog"))),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "primary", autofocus: true }, "Close")));
}
