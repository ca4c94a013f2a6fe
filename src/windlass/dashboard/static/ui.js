/**
 * Small parts that all pages share: badges, times, facts, code, empty states and errors.
 */

import { ApiProblem } from "./api.js";
import { copyText } from "./clipboard.js";
import { h } from "./dom.js";
import { clock, messageOf, relative, UNKNOWN } from "./format.js";
import { stringify } from "./json.js";
import { link, pageBefore, readHash, rememberPage } from "./router.js";

/** @type {{[state: string]: string}} */
const TONES = {
  running: "blue", succeeded: "green", finished: "green", active: "green", ok: "green",
  dead: "red", failed: "red", firing: "red", lost: "red", unreadable: "red", crashed: "red", died: "red", expired: "red",
  retrying: "amber", paused: "amber", quiet: "amber", stopping: "amber", pending: "amber",
  abandoned: "amber", stopped: "amber", silent: "amber", "read only": "amber",
};

/** A state as a word in its colour. @param {string} state */
export function badge(state) {
  return h("span", { class: `badge ${TONES[state] || "grey"}` }, state);
}

/**
 * An instant as its distance from now. The full time is in the tooltip.
 * @param {Maybe<string>} instant @param {number} now @returns {Child}
 */
export function when(instant, now) {
  if (!instant) return UNKNOWN;
  return h("time", { datetime: instant, title: clock(instant) }, relative(instant, now));
}

/**
 * A link to a job, with the end of its id, in which jobs of one moment differ.
 * @param {string} id
 */
export function jobLink(id) {
  const end = `…${id.slice(-10)}`;
  return h("a", { class: "mono", href: link(["jobs", id]), title: id, "aria-label": `job ${end}` }, end);
}

/** @param {string} name */
export function queueLink(name) {
  return h("a", { href: link(["jobs"], { queue: name }) }, name);
}

/** Names with their values, as a list of terms. Values that are null are left out. @param {[string, Child][]} pairs */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { class: "facts" },
    known.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value))));
}

/**
 * A text as it is, with a scroll bar of its own.
 * @param {string} text @param {string} label what the text is, for screen readers
 */
export function code(text, label) {
  return h("pre", { tabindex: 0, role: "region", "aria-label": label }, text);
}

/** Texts of values that were read, so that a large one is not written again at each draw. */
/** @type {WeakMap<object, string>} */
const written = new WeakMap();

/** A value as indented JSON. @param {any} value */
export function jsonText(value) {
  if (typeof value !== "object" || value === null) return stringify(value, 2);
  const known = written.get(value) ?? stringify(value, 2);
  written.set(value, known);
  return known;
}

/** A value as JSON, in which redacted parts stand out. @param {any} value @param {string} label */
export function jsonCode(value, label) {
  const parts = jsonText(value).split('"[redacted]"');
  return h("pre", { tabindex: 0, role: "region", "aria-label": label },
    parts.map((part, index) => [index ? h("mark", { class: "redacted", title: "The server does not send values of secret names." }, '"[redacted]"') : null, part]));
}

/** A button that copies a text. @param {Context} c @param {string} what @param {() => string} text */
export function copyButton(c, what, text) {
  const onClick = async () => c.tell((await copyText(text())) ? `Copied ${what}.` : `The browser did not copy ${what}.`);
  return button("Copy", onClick, { key: `copy ${what}`, class: "link", "aria-label": `Copy ${what}` });
}

/** What a list says when nothing is in it: why, and what to do next. @param {string} title @param {...Child} next */
export function empty(title, ...next) {
  return h("div", { class: "empty" }, h("p", { class: "strong" }, title), h("p", null, next));
}

/**
 * An error: what failed, what the server said, what to do.
 * @param {unknown} error @param {(() => void) | null} [again]
 */
export function problemPanel(error, again) {
  const problem = error instanceof ApiProblem ? error : null;
  const title = problem ? problem.title : "The dashboard failed";
  const list = problem?.type === "not-found" ? [" ", h("a", { href: link(readHash(location.hash).parts.slice(0, 1)) }, "Go back to the list"), "."] : null;
  return h("div", { class: "problem", role: "alert" },
    h("p", { class: "strong" }, title),
    h("p", null, messageOf(error)),
    problem?.fields?.length
      ? h("ul", null, problem.fields.map((one) => h("li", null, h("code", null, one.path), `: ${one.detail}`)))
      : null,
    problem?.advice ? h("p", null, problem.advice, list) : null,
    again ? button("Try again", again) : null);
}

/** @param {string} label @param {() => void} onClick @param {{[name: string]: any}} [props] */
export function button(label, onClick, props = {}) {
  return h("button", { type: "button", ...props, on: { click: onClick } }, label);
}

/**
 * A button for an action on something. For a user who may change nothing it is off, and says why.
 * @param {Context} c @param {string} label @param {string} subject @param {() => Action} action @param {string} [tone]
 */
export function actButton(c, label, subject, action, tone) {
  const reason = c.me.may_change ? null : `Your access token has the role ${c.me.role}, which may look and change nothing.`;
  const onClick = () => (reason ? c.tell(reason) : c.act(action()));
  return button(label, onClick, { key: label, class: tone, "aria-label": `${label} ${subject}`,
    "aria-disabled": reason ? "true" : null, title: reason });
}

/** What a view shows until its first data is there. */
export function skeleton() {
  return h("div", { class: "skeleton", role: "status" }, h("span", { class: "hidden" }, "Loading"),
    h("div", null), h("div", null), h("div", null));
}

/**
 * Links to the first, previous and next page of a list; `name` is the part of the query for the page.
 * @param {Context} c @param {string} name @param {string | null} next
 */
export function pager({ place: { parts, query } }, name, next) {
  const current = query[name] || "";
  if (next) rememberPage(next, current);
  const before = current ? pageBefore(current) : undefined;
  const to = (/** @type {string} */ label, /** @type {string | null} */ cursor, /** @type {string | null} */ rel) =>
    h("a", { key: label, class: "button", rel, href: link(parts, { ...query, [name]: cursor }) }, label);
  return h("nav", { class: "pages", "aria-label": "Pages" },
    current ? to("First page", null, before === undefined ? "prev" : null) : null,
    before ? to("Previous page", before, "prev") : null,
    before === "" ? to("Previous page", null, "prev") : null,
    next ? to("Next page", next, "next") : null);
}

/** The class of buttons that destroy something. */
export const DANGER = "danger quiet";

/** The head of a page: its title, and what belongs beside it. @param {Child} title @param {...Child} beside */
export function pageHead(title, ...beside) {
  return h("div", { class: "page-head" }, h("h1", { tabindex: -1 }, title), h("div", { class: "beside" }, beside));
}

/** A part of a page with a heading. @param {string} title @param {...Child} children */
export function section(title, ...children) {
  return h("section", { key: `section ${title}` }, h("h2", null, title), children);
}
