/**
 * The timeline of a job: when it was enqueued, each attempt with its worker, release, duration and
 * error, each edit, and what comes next.
 */

import { h } from "../dom.js";
import { between, clock, duration } from "../format.js";
import { code, jsonCode, when } from "../ui.js";

/** How an attempt ended, or what else happened; and its tone. */
/** @type {{[event: string]: [string, string]}} */
const EVENTS = {
  retry: ["failed", "amber"], bury: ["failed for good", "red"], crash: ["its process crashed", "red"],
  suspect: ["ran when its process died", "red"], lose: ["its worker was lost", "red"], revive: ["Arguments changed", "grey"],
};

/** How long ago, and the time of day as in logs. @param {Maybe<string>} at @param {number} now */
const moment = (at, now) => [when(at, now), h("span", { class: "muted fixed" }, ` ${clock(at).slice(0, 19)}`)];

/** @param {Job} job @param {number} now */
export function timeline(job, now) {
  return h("ol", { class: "timeline" },
    h("li", { key: "enqueued", class: "grey" }, h("p", null, h("b", null, "Enqueued"), " ", moment(job.enqueued_at, now))),
    job.history.map((entry, index) => past(entry, index, now)),
    latest(job, now));
}

/** @param {HistoryEntry} entry @param {number} index @param {number} now */
function past(entry, index, now) {
  const [text, tone] = EVENTS[entry.event] || [entry.event, "grey"];
  const isEdit = entry.event === "revive";
  return h("li", { key: `entry ${index}`, class: tone },
    h("p", null, isEdit ? h("b", null, text) : [h("b", null, `Attempt ${entry.attempt}`), ` ${text}`], ", ", moment(entry.ended_at, now)),
    isEdit ? null : run(entry, between(entry.started_at, entry.ended_at)),
    entry.error ? errorText(entry.error, false) : null,
    entry.replaced && !entry.replaced.problem ? h("details", null, h("summary", null, "Arguments before"),
      jsonCode({ args: entry.replaced.args, kwargs: entry.replaced.kwargs }, "Arguments before the edit")) : null);
}

/** How long an attempt ran, and where. @param {{worker: string | null, release: string | null}} entry @param {number | null} seconds */
function run({ worker, release }, seconds) {
  const parts = [seconds === null ? "" : `ran ${duration(seconds)}`, worker ? `on ${worker}` : "", release ? `release ${release}` : ""];
  return h("p", { class: "muted" }, parts.filter(Boolean).join(", "));
}

/** @param {JobError} error @param {boolean} isOpen @returns {Child} */
export function errorText(error, isOpen) {
  const title = error.type ? `${error.type}: ${error.message}` : error.message;
  return [
    h("p", { class: "error-title" }, title),
    error.traceback ? h("details", { open: isOpen }, h("summary", null, "Traceback"), code(error.traceback, "Traceback")) : null,
  ];
}

/** The entry for what the job does now, or how it ended. @param {Job} job @param {number} now */
function latest(job, now) {
  const attempt = h("b", null, `Attempt ${job.attempts}`);
  if (job.state === "running") {
    return h("li", { key: "latest", class: "blue" }, h("p", null, attempt, " runs, started ", moment(job.started_at, now)),
      run(job, between(job.started_at, now)));
  }
  if (job.state === "succeeded") {
    return h("li", { key: "latest", class: "green" }, h("p", null, attempt, " succeeded, ", moment(job.finished_at, now)),
      run(job, between(job.started_at, job.finished_at)));
  }
  if (job.state === "dead" || job.state === "cancelled") {
    return h("li", { key: "latest", class: job.state === "dead" ? "red" : "grey" },
      h("p", null, h("b", null, job.state === "dead" ? "Dead" : "Cancelled"), job.reason ? ` (${job.reason})` : "", ", ", moment(job.finished_at, now)));
  }
  return h("li", { key: "latest", class: "grey" },
    h("p", null, h("b", null, job.state[0].toUpperCase() + job.state.slice(1)), ", due ", moment(job.due_at || job.enqueued_at, now)));
}
