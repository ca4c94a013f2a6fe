/**
 * The overview: what waits, what runs, how fast, how well, and what needs attention.
 *
 * Counts come once a second from the stream of events; the history as often as its span needs.
 */

import { alertList } from "../alerts.js";
import { chart, sparkline } from "../chart.js";
import { h } from "../dom.js";
import { age, count, drainTime, duration, plural, rate, share } from "../format.js";
import { chartLines, largest, loadHistory, SPANS, summary, taskRows } from "../history.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { badge, empty, pageHead, queueLink, section } from "../ui.js";

const LATELY_MS = 15 * 60_000;
const MOST_TASKS = 12;

/** @param {Context} c */
const spanOf = (c) => SPANS[c.place.query.span] || SPANS["1h"];

/** @param {Context} c @param {AbortSignal} signal */
async function load(c, signal) {
  const { api, local } = c;
  const span = spanOf(c);
  if (!c.stats) c.stats = await api.get(["stats"], {}, signal);
  const scale = await api.get(["scale"], {}, signal);
  const { workers, after } = await api.get(["workers"], { limit: 200 }, signal);
  const { alerts } = await api.get(["alerts"], {}, signal);
  if (!local.history || Date.now() - local.historyAt > span.everyMs) {
    local.history = await loadHistory(api, span, c.place.query.queue, signal);
    local.lines = chartLines(local.history, span);
    local.tasks = taskRows(local.history.rows);
    local.historyAt = Date.now();
  }
  return { scale, workers, hasMoreWorkers: Boolean(after), alerts, history: local.history };
}

/** @param {Overview} data @param {Context} c @returns {Child} */
function render(data, c) {
  const queues = data.scale.queues;
  return [
    pageHead("Overview", spanSwitch(c)),
    alertList(data.alerts, c.now),
    tiles(data, c),
    charts(data, c),
    section("Queues", queues.length
      ? queueTable(queues, c)
      : empty("No queue has jobs yet.", "Enqueue one: ", h("code", null, "windlass enqueue TASK"), ".")),
    section(`Busiest tasks, ${spanOf(c).label}`, taskTable(c.local.tasks)),
  ];
}

/** The choice of span and queue, which are in the address. @param {Context} c */
function spanSwitch(c) {
  const { query } = c.place;
  const span = spanOf(c);
  const names = Object.keys(c.stats?.queues || {}).sort();
  const onQueue = (/** @type {any} */ event) => { location.hash = link([], { ...query, queue: event.target.value }); };
  return [
    h("label", { key: "queue", class: "inline" }, "Queue ", h("select", { value: query.queue || "", on: { change: onQueue } },
      h("option", { value: "" }, "all"), names.map((name) => h("option", { key: name, value: name }, name)))),
    h("div", { key: "span", class: "switch", role: "group", "aria-label": "Span of the history" },
      Object.entries(SPANS).map(([name, one]) => h("a", { key: name, href: link([], { ...query, span: name }),
        "aria-current": one === span ? "true" : null }, one.label))),
  ];
}

/** @param {Overview} data @param {Context} c */
function tiles(data, c) {
  const { queue } = c.place.query;
  const { lines } = c.local;
  const queues = queue ? data.scale.queues.filter((one) => one.queue === queue) : data.scale.queues;
  const jobs = (queue ? c.stats?.queues[queue]?.jobs : c.stats?.jobs) || {};
  const oldest = largest(Object.entries(c.stats?.queues || {}).map(([name, one]) => (queue && name !== queue ? null : one.oldest_ready_s)));
  const [later, retrying] = [(jobs.scheduled || 0) + (jobs.retrying || 0), jobs.retrying || 0];
  const inRate = sum(queues.map((one) => one.in_rate));
  const outRate = sum(queues.map((one) => one.out_rate));
  const live = (/** @type {string[]} */ ...names) => (queue ? null : c.recent.rate(...names));
  const drain = queue ? queues[0] : data.scale;
  const late = queues.filter((one) => one.drain_s === null && (c.stats?.queues[one.queue]?.jobs.ready || 0) > 0);
  return h("div", { class: "tiles" },
    tile("Ready", count(jobs.ready || 0), later ? `${count(later)} later, ${count(retrying)} of them retrying` : "none later",
      { href: link(["jobs"], { state: "ready", queue }), line: sparkline(lines.ready, "blue") }),
    tile("Oldest ready", age(oldest), oldest !== null ? "the longest wait" : jobs.ready ? "all of them are held" : "nothing waits", { href: link(["jobs"], { state: "ready", queue }) }),
    runningTile(data, c, jobs.running || 0),
    tile("In", rate(live("enqueued") ?? inRate), `${rate(inRate)} over 5 min`, { line: sparkline(lines.enqueued, "blue") }),
    tile("Out", rate(live("succeeded", "retried", "dead") ?? outRate), `${rate(outRate)} over 5 min`, { line: sparkline(lines.succeeded, "green") }),
    qualityTiles(data, c),
    tile("Dead", count(jobs.dead || 0), jobs.dead ? "look at the groups" : "no job is dead", { href: link(["dead"]), tone: jobs.dead ? "bad" : "" }),
    tile("Drains in", drainTime(drain?.drain_s ?? null, (jobs.ready || 0) > 0),
      late.length ? lateText(late) : `in 1 min with ${plural(data.scale.demand_slots, "slot")}`, { href: link(["workers"]), tone: late.length ? "bad" : "" }));
}

/** Why some queues never drain. @param {QueueScale[]} late */
function lateText(late) {
  const [first] = late;
  if (late.length > 1) return `${count(late.length)} queues are paused, held or fall behind`;
  return `${first.queue} ${first.paused ? "is paused" : first.held ? "has held jobs only" : "falls behind"}`;
}

/** Failures and times of 15 minutes, or of the chosen span. @param {Overview} data @param {Context} c */
function qualityTiles({ history }, c) {
  const isShort = spanOf(c).step === "minute";
  const found = summary(isShort ? history.rows.filter((row) => c.now - Date.parse(row.at) < LATELY_MS) : history.rows);
  const span = isShort ? "15 min" : spanOf(c).label;
  return [
    tile("Failures", share(found.share), `${count(found.failed)} of ${count(found.runs)} in ${span}`,
      { tone: found.share ? "bad" : "", line: sparkline(c.local.lines.failed, "red") }),
    tile("Wait p50", duration(found.wait50), `p99 ${duration(found.wait)}`, { line: sparkline(c.local.lines.wait, "amber") }),
    tile("Run p50", duration(found.p50), `p99 ${duration(found.p99)}`, { line: sparkline(c.local.lines.run, "green") }),
  ];
}

/** @param {Overview} data @param {Context} c @param {number} running */
function runningTile({ workers, hasMoreWorkers }, c, running) {
  const slots = sum(workers.map((one) => one.slots));
  const busy = sum(workers.map((one) => Math.min(one.jobs, one.slots))); // some are claimed ahead
  const more = slots ? `${count(busy)} of ${count(slots)}${hasMoreWorkers ? "+" : ""} slots in use` : "no worker is live";
  return tile("Running", count(running), more, { href: link(["jobs"], { state: "running", queue: c.place.query.queue }), tone: slots ? "" : "bad",
    line: h("meter", { min: 0, max: Math.max(1, slots), value: busy, "aria-label": "Slots in use" }) });
}

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/** @param {string} name @param {string} value @param {string} more @param {{href?: string, tone?: string, line?: Child}} [options] */
function tile(name, value, more, { href, tone, line } = {}) {
  return h(href ? "a" : "div", { key: name, class: "tile", ...(href ? { href } : {}) },
    h("span", { class: "name" }, name), h("span", { class: `value ${tone || ""}` }, value), h("span", { class: "more" }, more), line);
}

/** @param {Overview} data @param {Context} c */
function charts(data, c) {
  const { lines } = c.local;
  const state = (/** @type {string} */ name) => ({
    times: lines.times,
    at: c.local[name] ?? null,
    onPoint: (/** @type {number | null} */ at) => { c.local[name] = at; c.draw(); },
    isOpen: c.local[`${name} table`] || false,
    onOpen: (/** @type {boolean} */ isOpen) => { c.local[`${name} table`] = isOpen; c.draw(); },
  });
  return h("section", { key: "charts", "aria-label": "History" },
    data.history.isCut ? h("p", { class: "note" }, "The history is long and not all of it is shown. Choose a queue.") : null,
    h("div", { class: "charts" },
      chart({ title: "Jobs per minute", ...state("flow"), series: [
        ["enqueued", "blue", lines.enqueued], ["succeeded", "green", lines.succeeded], ["failed", "red", lines.failed]] }),
      chart({ title: "Depth", ...state("depth"), series: [
        ["ready", "blue", lines.ready], ["later", "amber", lines.waiting], ["running", "green", lines.running]] }),
      chart({ title: "p99 of the slowest task", unit: "s", ...state("time"), series: [
        ["wait", "amber", lines.wait], ["run", "green", lines.run]] })));
}

/** @param {QueueScale[]} queues @param {Context} c */
function queueTable(queues, c) {
  const live = c.stats?.queues || {};
  const jobs = (/** @type {any} */ q, /** @type {string} */ state) => live[q.queue]?.jobs[state] || 0;
  const number = (/** @type {any} */ q, /** @type {string} */ state) =>
    (jobs(q, state) ? h("a", { href: link(["jobs"], { queue: q.queue, state }) }, count(jobs(q, state))) : h("span", { class: "muted" }, "0"));
  const most = Math.max(...queues.flatMap((q) => [q.in_rate, q.out_rate]));
  return table({ label: "Queues", key: (q) => q.queue, rows: queues, columns: [
    ["Queue", "", (q) => [queueLink(q.queue), q.paused ? [" ", badge("paused")] : null]],
    ["Ready", "number", (q) => number(q, "ready")],
    ["Oldest", "time", (q) => age(live[q.queue]?.oldest_ready_s)],
    ["Running", "wide number", (q) => number(q, "running")],
    ["Dead", "wide number", (q) => number(q, "dead")],
    ["In", "wide number", (q) => rate(q.in_rate, most)],
    ["Out", "wide number", (q) => rate(q.out_rate, most)],
    ["Drains in", "time", (q) => drainTime(q.drain_s, jobs(q, "ready") > 0, q.held)],
  ] });
}

/** @param {TaskSummary[]} rows */
function taskTable(rows) {
  if (!rows.length) return empty("No job has run in this time.", "Start a worker: ", h("code", null, "windlass worker MODULE:APP"), ".");
  return table({ label: "Tasks", key: (row) => row.task, rows: rows.slice(0, MOST_TASKS), columns: [
    ["Task", "", (row) => h("a", { href: link(["jobs"], { task: row.task }) }, row.task)],
    ["Attempts", "number", (row) => count(row.runs)],
    ["Failed", "number", (row) => h("span", { class: row.failed ? "bad" : "muted" }, share(row.share))],
    ["Wait p50", "wide number", (row) => duration(row.wait50)],
    ["Wait p99", "wide number", (row) => duration(row.wait)],
    ["Run p50", "wide number", (row) => duration(row.p50)],
    ["Run p99", "number", (row) => duration(row.p99)],
  ] });
}

/** @type {Page} */
export const overviewPage = { title: () => "Overview", everyMs: 4000, load, render };
