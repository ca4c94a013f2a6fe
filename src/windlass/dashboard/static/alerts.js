/**
 * Alerts in words: what fires or is about to, the number, and where to look.
 */

import { h } from "./dom.js";
import { count, duration, plural, share } from "./format.js";
import { link } from "./router.js";
import { badge, when } from "./ui.js";

const SECONDS = ["oldest_age", "run_time", "overdue_schedule"];
const SHARES = ["failure_rate", "engine_memory"];

/** @type {{[kind: string]: (value: string, subject: string) => [text: string, href: string | null]}} */
const TEXTS = {
  dead_letters: (value, queue) => [`${plural(value, "job")} ${value === "1" ? "is" : "are"} dead${queue ? ` in ${queue}` : ""}`, link(["dead"])],
  dead_growth: (value, queue) => [`${plural(value, "job")} died within 5 minutes${queue ? ` in ${queue}` : ""}`, link(["dead"])],
  oldest_age: (value, queue) => [`The next job of ${queue} has been ready for ${value}`, link(["jobs"], { state: "ready", queue })],
  no_worker: (value, queue) => [`No worker serves ${queue} with ${plural(value, "ready job")}`, link(["workers"])],
  failure_rate: (value, task) => [`${value} of the runs of ${task} failed within 5 minutes`, link(["jobs"], { task })],
  run_time: (value, task) => [`${task} runs for ${value} (p99 of 5 minutes)`, link(["jobs"], { task })],
  overdue_schedule: (value, name) => [`The schedule ${name} is overdue by ${value}`, link(["schedules"])],
  engine_memory: (value) => [`${value} of the engine's memory is used`, null],
};

/** The number of an alert in its unit. @param {Alert} alert */
function valueOf({ kind, value }) {
  if (SECONDS.includes(kind)) return duration(value);
  return SHARES.includes(kind) ? share(value) : count(value);
}

/** What an alert says, and where to look. @param {Alert} alert */
export function describeAlert(alert) {
  const known = TEXTS[alert.kind];
  return known ? known(valueOf(alert), alert.subject) : [`${alert.rule} ${alert.subject}: ${valueOf(alert)}`, null];
}

/** Alerts that fire, and those that soon may. @param {Alert[]} alerts @param {number} now @returns {Child} */
export function alertList(alerts, now) {
  const shown = alerts.filter((alert) => alert.state === "firing" || alert.state === "pending");
  if (!shown.length) return null;
  return h("ul", { key: "alerts", class: "alerts", "aria-label": "Alerts" }, shown.map((alert) => {
    const [text, href] = describeAlert(alert);
    return h("li", { key: `${alert.rule} ${alert.subject}`, class: alert.state === "firing" ? "red" : "amber" },
      badge(alert.state), h("span", { class: "strong" }, href ? h("a", { href }, text) : text),
      h("span", { class: "muted" }, h("code", null, alert.rule), alert.since ? [", since ", when(alert.since, now)] : null));
  }));
}
