/**
 * Bulk operations: what they change, how far they are, why they pause, and the actions pause, resume
 * and stop.
 */

import { controlOperation } from "../actions.js";
import { h } from "../dom.js";
import { count, rate } from "../format.js";
import { stringify } from "../json.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { actButton, badge, DANGER, empty, pageHead, pager, when } from "../ui.js";

/** @param {Operations} found @param {Context} c */
function render(found, c) {
  if (!found.operations.length) {
    return [pageHead("Operations"), empty("There are no bulk operations.",
      "A retry or discard of ", h("a", { href: link(["dead"]) }, "dead jobs"), " or a purge of a ",
      h("a", { href: link(["queues"]) }, "queue"), " is one.")];
  }
  return [
    pageHead("Operations"),
    table({ label: "Operations", key: (one) => one.id, rows: found.operations, columns: [
      ["Operation", "text", (one) => [
        h("b", null, one.action),
        h("p", { class: "muted" }, words(one.filter)),
        bar(one),
        one.error || one.reason ? h("p", { class: "error-title" }, one.error || one.reason) : null]],
      ["State", "", (one) => badge(one.state)],
      ["Done", "number", (one) => [count(one.done), one.total === null ? null : ` of ${count(one.total)}`]],
      ["Failed again", "wide number", (one) => (one.stop_after ? h("span", { class: one.failed_again ? "bad" : "" }, count(one.failed_again)) : "")],
      ["Not changed", "wide number", (one) => count(one.refused + one.failed)],
      ["Rate", "wide number", (one) => (one.rate ? rate(one.rate) : "no limit")],
      ["By", "wide", (one) => one.actor],
      ["Started", "wide number", (one) => when(one.created_at, c.now)],
      ["Actions", "actions", (one) => actions(one, c)],
    ] }),
    pager(c, "after", found.after),
  ];
}

/** Which jobs, in words. Instants are left out: they bound the jobs to those before the start. @param {{[name: string]: any}} filter */
function words(filter) {
  const parts = Object.entries(filter).filter(([name]) => !name.endsWith("_ms"));
  const told = parts.map(([name, value]) => `${name} ${typeof value === "string" ? value : stringify(value)}`);
  return told.length ? told.join(", ") : "all jobs";
}

/** How far an operation is that has not ended. @param {Operation} one @returns {Child} */
function bar(one) {
  if (one.state !== "running" && one.state !== "paused") return null;
  const seen = one.done + one.refused + one.failed;
  return h("progress", { key: "bar", "aria-label": `${one.action}, done`,
    ...(one.total ? { max: one.total, value: Math.min(seen, one.total) } : {}) });
}

/** @param {Operation} one @param {Context} c @returns {Child} */
function actions(one, c) {
  /** @param {"pause" | "resume" | "stop"} verb @param {string} label @param {string} [tone] */
  const act = (verb, label, tone) => actButton(c, label, one.action, () => controlOperation(one.id, verb), tone);
  if (one.state === "running") return [act("pause", "Pause"), act("stop", "Stop", DANGER)];
  if (one.state === "paused") return [act("resume", "Resume"), act("stop", "Stop", DANGER)];
  return null;
}

/** @type {Page} */
export const operationsPage = {
  title: () => "Operations", everyMs: 2000, render,
  load: (c, signal) => c.api.get(["operations"], { after: c.place.query.after }, signal),
};
