/**
 * Queues: their jobs by state, rates, time to drain, bounds and pauses, and the actions pause, resume
 * and purge.
 */

import { pause, purgeQueue } from "../actions.js";
import { h } from "../dom.js";
import { age, count, drainTime, rate, UNKNOWN } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { actButton, badge, DANGER, empty, pageHead } from "../ui.js";

/** @param {Context} c @param {AbortSignal} signal */
async function load(c, signal) {
  const { queues } = await c.api.get(["queues"], {}, signal);
  const scale = await c.api.get(["scale"], {}, signal);
  const loads = Object.fromEntries(scale.queues.map((/** @type {QueueScale} */ one) => [one.queue, one]));
  return { queues, loads };
}

/** @param {{queues: Queue[], loads: {[queue: string]: QueueScale}}} data @param {Context} c */
function render({ queues, loads }, c) {
  const live = c.stats?.queues || {};
  const jobs = (/** @type {any} */ q, /** @type {string} */ state) => (live[q.name] || q).jobs[state] || 0;
  const cell = (/** @type {any} */ q, /** @type {string} */ state) => {
    const number = jobs(q, state);
    return number ? h("a", { href: link(["jobs"], { queue: q.name, state }) }, count(number)) : h("span", { class: "muted" }, "0");
  };
  const most = Math.max(...Object.values(loads).flatMap((q) => [q.in_rate, q.out_rate]));
  if (!queues.length) {
    return [pageHead("Queues"), empty("No queue has jobs or settings yet.",
      "A queue appears with its first job: ", h("code", null, "windlass enqueue TASK"), ".")];
  }
  return [pageHead("Queues"), table({ label: "Queues", key: (q) => q.name, rows: queues, columns: [
    ["Queue", "", (q) => [h("a", { href: link(["jobs"], { queue: q.name }) }, q.name), q.paused ? [" ", badge("paused")] : null,
      h("p", null, h("a", { href: link([], { queue: q.name }), "aria-label": `History of ${q.name}` }, "History")),
      h("div", { class: "narrow muted" }, `${count(jobs(q, "running"))} running, ${count(jobs(q, "dead"))} dead`)]],
    ["Ready", "number", (q) => cell(q, "ready")],
    ["Running", "wide number", (q) => cell(q, "running")],
    ["Scheduled", "wide number", (q) => cell(q, "scheduled")],
    ["Retrying", "wide number", (q) => cell(q, "retrying")],
    ["Dead", "wide number", (q) => cell(q, "dead")],
    ["Oldest", "time", (q) => age((live[q.name] || q).oldest_ready_s)],
    ["In", "wide number", (q) => rate(loads[q.name]?.in_rate, most)],
    ["Out", "wide number", (q) => rate(loads[q.name]?.out_rate, most)],
    ["Drains in", "wide time", (q) => drainTime(loads[q.name]?.drain_s ?? null, jobs(q, "ready") > 0, loads[q.name]?.held)],
    ["Max waiting", "wide number", (q) => (q.max_waiting === null ? UNKNOWN : count(q.max_waiting))],
    ["Actions", "actions", (q) => actions(q, c, jobs(q, "ready") + jobs(q, "scheduled") + jobs(q, "retrying"))],
  ] })];
}

/** @param {Queue} q @param {Context} c @param {number} waiting */
function actions(q, c, waiting) {
  return [
    actButton(c, q.paused ? "Resume" : "Pause", q.name, () => pause("queue", q.name, q.paused)),
    actButton(c, "Purge", q.name, () => purgeQueue(q.name, waiting), DANGER),
  ];
}

/** @type {Page} */
export const queuesPage = {
  title: () => "Queues", everyMs: 3000, load, render,
};
