/**
 * One job: its state and why it waits, its attempts, arguments, headers, log, errors and result.
 */

import { cancelJob, editJob, retryJob } from "../actions.js";
import { changeSelected } from "../bulk.js";
import { h } from "../dom.js";
import { between, clock, duration } from "../format.js";
import { link } from "../router.js";
import {
  actButton, badge, button, code, copyButton, DANGER, empty, facts, jsonCode, jsonText, pageHead, problemPanel, queueLink, section, when,
} from "../ui.js";
import { errorText, timeline } from "./timeline.js";
import { loadWithWhy, whySection } from "./why.js";

const FINAL = ["succeeded", "dead", "cancelled"];

/** @param {Job} job @param {Context} c */
function render(job, c) {
  const isBad = job.error && job.state !== "succeeded" && job.state !== "running";
  return [
    pageHead([job.task, " ", h("span", { role: "status" }, badge(job.state))], actions(job, c)),
    h("p", { key: "id", class: "id" }, h("span", { class: "mono" }, job.id), " ", copyButton(c, "the id", () => job.id)),
    job.cancel_requested && !FINAL.includes(job.state)
      ? h("p", { key: "cancel", class: "callout" }, "Its cancellation was requested. The worker interrupts it.") : null,
    job.progress ? progress(job.progress) : null,
    jobFacts(job, c),
    h("div", { key: "columns", class: "columns" },
      h("div", { key: "left" },
        whySection(job, c),
        isBad && job.error ? section("Latest error", errorText(job.error, true)) : null,
        section("Timeline", timeline(job, c.now)),
        job.log.length ? section("Log of the latest attempt", code(
          job.log.map((line) => `${clock(line.at).slice(11)}  ${line.message}`).join("\n"), "Log lines")) : null),
      h("div", { key: "right" },
        argumentSection(job, c),
        headerSection(job.headers),
        job.has_result ? section("Result", result(job, c)) : null)),
  ];
}

/** @param {Job} job @param {Context} c */
function actions(job, c) {
  const isEnded = job.state === "dead" || job.state === "cancelled";
  const mayEdit = job.state !== "running" && job.state !== "succeeded" && !job.problem;
  return [
    isEnded ? actButton(c, "Retry", "the job", () => retryJob(job.id), "primary") : null,
    mayEdit ? actButton(c, isEnded ? "Edit and retry" : "Edit", "the job", () => editJob(job)) : null,
    job.state === "dead" ? actButton(c, "Discard", "the job", () => changeSelected("discard", [job.id]), DANGER) : null,
    FINAL.includes(job.state) ? null : actButton(c, "Cancel", "the job", () => cancelJob(job.id), DANGER),
  ];
}

/** @param {Job} job @param {Context} c */
function argumentSection(job, c) {
  const part = (/** @type {string} */ name, /** @type {any} */ value) => (Object.keys(value).length ? [
    h("div", { key: name, class: "part-head" }, h("h3", null, name), copyButton(c, `the ${name.toLowerCase()} arguments`, () => jsonText(value))),
    jsonCode(value, `${name} arguments`)] : null);
  const hasNone = !job.args.length && !Object.keys(job.kwargs).length;
  return section("Arguments", job.problem ? h("p", { class: "callout" }, job.problem)
    : hasNone ? h("p", { class: "muted" }, "The task was called without arguments.")
    : [part("Positional", job.args), part("Keyword", job.kwargs)]);
}

/** @param {{[name: string]: string}} headers */
function headerSection(headers) {
  if (!Object.keys(headers).length) return null;
  return section("Headers", facts(Object.entries(headers).map(([name, value]) =>
    [name, value === "[redacted]" ? h("mark", { class: "redacted" }, value) : h("span", { class: "mono" }, value)])));
}

/** @param {Job} job @param {Context} c */
function jobFacts(job, c) {
  const ended = job.finished_at || c.now;
  const isRunning = job.state === "running";
  const isStarted = job.started_at && (isRunning || job.finished_at);
  const trace = traceOf(job.headers);
  return facts([
    ["Queue", queueLink(job.queue)],
    ["Priority", job.priority],
    ["Attempts", job.attempts],
    ["Enqueued", when(job.enqueued_at, c.now)],
    ["Due", job.due_at && !FINAL.includes(job.state) && !isRunning ? when(job.due_at, c.now) : null],
    ["Expires", job.expires_at ? when(job.expires_at, c.now) : null],
    ["Started", job.started_at ? when(job.started_at, c.now) : null],
    [isRunning ? "Runs for" : "Ran for", isStarted ? duration(between(job.started_at, ended)) : null],
    ["Ended", job.finished_at ? when(job.finished_at, c.now) : null],
    ["Reason", job.reason],
    ["Release", job.release],
    ["Needs labels", job.requires.join(", ")],
    ["Crashes", job.crashes || null],
    ["Lost workers", job.losses || null],
    ["Interruptions", job.interruptions || null],
    ["Snoozes", job.snoozes || null],
    ["Fingerprint", job.fingerprint ? h("a", { class: "mono", href: link(["dead"], { task: job.task, fingerprint: job.fingerprint }) }, job.fingerprint) : null],
    ["Worker", job.worker ? h("span", { class: "mono long" }, job.worker) : null],
    ["Trace", trace ? [h("span", { class: "mono long" }, trace), " ", copyButton(c, "the trace id", () => trace)] : null],
  ]);
}

/** The trace id of a W3C traceparent header. @param {{[name: string]: string}} headers */
function traceOf(headers) {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(headers.traceparent || "")?.[1] || null;
}

/** @param {Progress} reported */
function progress(reported) {
  const percent = Math.round(Number(reported.value) * 100);
  return h("div", { key: "progress", class: "progress" },
    h("progress", { max: 100, value: percent, "aria-label": "Progress" }), ` ${percent} % `, reported.message);
}

/** The result is loaded on demand: the server does not redact it. @param {Job} job @param {Context} c */
function result(job, c) {
  const { local } = c;
  const show = async () => {
    try {
      local.result = await c.api.get(["jobs", job.id, "result"]);
    } catch (error) {
      local.resultError = error;
    }
    c.draw();
  };
  if (local.resultError) return problemPanel(local.resultError, show);
  if (!local.result) return h("p", null, button("Show the result", show), " The result is not redacted.");
  return local.result.problem ? empty("There is no result to show.", local.result.problem) : jsonCode(local.result.result, "Result");
}

/** @type {Page} */
export const jobPage = {
  title: (place) => `Job ${place.parts[1]}`, everyMs: 2000, render, load: loadWithWhy,
};
