/**
 * Workers: live machines, their processes, what runs now, and the actions quiet, stop and resume; lost
 * sessions and crash suspects.
 */

import { commandWorker } from "../actions.js";
import { h } from "../dom.js";
import { between, count, duration } from "../format.js";
import { table } from "../table.js";
import { actButton, badge, DANGER, empty, facts, jobLink, pageHead, pager, queueLink, when } from "../ui.js";
import { lostSections } from "./lost.js";

/** @param {Workers & {lost: Lost}} found @param {Context} c */
function render(found, c) {
  const lost = c.place.query.after ? null : lostSections(found.lost, c.now);
  if (!found.workers.length) {
    return [pageHead("Workers"), empty("No worker is live.", "Start one: ", h("code", null, "windlass worker MODULE:APP"),
      ". A worker that was killed is listed until its lease ends."), lost];
  }
  return [
    pageHead("Workers"),
    found.workers.map((one) => worker(one, c)),
    pager(c, "after", found.after),
    lost,
  ];
}

/** @param {WorkerInfo} one @param {Context} c */
function worker(one, c) {
  const running = one.sessions.flatMap((session) =>
    session.running.map((job) => ({ ...job, pid: session.pid })));
  return h("section", { key: one.name, class: "card", "aria-label": `Worker ${one.name}` },
    h("div", { class: "page-head" },
      h("h2", null, one.name, " ", badge(one.state), one.kind === "http" ? [" ", badge("http")] : null),
      h("div", { class: "beside" }, actions(one, c))),
    facts([
      ["Slots in use", h("span", null, `${count(Math.min(one.jobs, one.slots))} of ${count(one.slots)} `,
        h("meter", { min: 0, max: Math.max(1, one.slots), value: one.jobs, "aria-label": "Slots in use" }))],
      ["Processes", one.most_children ? `${one.session_count} (from ${one.least_children} to ${one.most_children})` : count(one.session_count)],
      ["Queues", one.queues.length ? one.queues.join(", ") : "all"],
      ["Labels", one.labels.join(", ")],
      ["Started", when(one.started_at, c.now)],
      ["App", one.app ? h("span", { class: "long" }, one.app) : null],
      ["Release", one.release],
      ["windlass", one.version],
    ]),
    h("details", { open: one.sessions.length < 2 || null }, h("summary", null, `Processes (${count(one.session_count)})`), sessions(one.sessions)),
    running.length ? runningTable(one.name, running, c) : h("p", { class: "muted" }, "No job runs here now."));
}

/** @param {Session[]} rows */
function sessions(rows) {
  return table({ label: "Processes", key: (row) => row.session, rows, columns: [
    ["Session", "", (row) => h("span", { class: "mono" }, row.session)],
    ["Pid", "number", (row) => String(row.pid)],
    ["Jobs", "number", (row) => `${row.jobs} of ${row.slots}`],
    ["Told to", "wide", (row) => row.command],
    ["Lease", "number", (row) => (row.is_silent ? badge("silent") : duration(Math.round(row.expires_in_s)))],
  ] });
}

/** @param {string} name @param {(RunningJob & {pid: number})[]} rows @param {Context} c */
function runningTable(name, rows, c) {
  return table({ label: `Jobs that run on ${name}`, key: (job) => job.id, rows, holds: true, columns: [
    ["Job", "", (job) => jobLink(job.id)],
    ["Task", "", (job) => job.task],
    ["Queue", "wide", (job) => queueLink(job.queue)],
    ["Attempt", "wide number", (job) => job.attempt],
    ["Pid", "wide number", (job) => String(job.pid)],
    ["Runs for", "number", (job) => duration(between(job.started_at, c.now))],
  ] });
}

/** @param {WorkerInfo} one @param {Context} c */
function actions(one, c) {
  const { name, state } = one;
  return [
    state === "running" ? actButton(c, "Quiet", name, () => commandWorker(name, "quiet")) : null,
    state === "quiet" ? actButton(c, "Resume", name, () => commandWorker(name, "run")) : null,
    state === "stopping" ? null : actButton(c, "Stop", name, () => commandWorker(name, "stop"), DANGER),
  ];
}

/** @type {Page} */
export const workersPage = {
  title: () => "Workers", everyMs: 2000, render,
  load: async (c, signal) => ({
    ...await c.api.get(["workers"], { after: c.place.query.after }, signal),
    lost: await c.api.get(["workers", "lost"], {}, signal),
  }),
};
