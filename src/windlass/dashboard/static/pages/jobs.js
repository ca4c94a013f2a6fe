/**
 * Jobs: a list by state with filters and pages. All of them are in the address, so a link shows the
 * same. Selected jobs, or all that match, are changed together.
 */

import { bulkFilter, CANCELLABLE, changeMatching, changeSelected, verbsFor } from "../bulk.js";
import { h } from "../dom.js";
import { age, between, count, duration, messageOf, readInstant } from "../format.js";
import { link, readHash } from "../router.js";
import { table } from "../table.js";
import { actButton, badge, button, DANGER, empty, jobLink, pageHead, pager, queueLink, when } from "../ui.js";

const STATES = ["running", "ready", "scheduled", "retrying", "dead", "cancelled", "succeeded"];
const FILTERS = ["task", "queue", "key", "fingerprint", "release", "since", "until"];
const LIMIT = 50;
/** @type {{[verb: string]: string}} */
const LABELS = { retry: "Retry", discard: "Discard", cancel: "Cancel" };

/** @param {Context} c @param {AbortSignal} signal */
async function load(c, signal) {
  const { query } = c.place;
  const { state, task, queue, key, fingerprint, release, cursor } = query;
  const since = readInstant(query.since || "", c.now);
  const until = readInstant(query.until || "", c.now);
  if (!c.local.tasks) {
    const { tasks } = await c.api.get(["tasks"], {}, signal);
    c.local.tasks = tasks.map((/** @type {{name: string}} */ task) => task.name);
  }
  return c.api.get(["jobs"], { state, task, queue, key, fingerprint, release, since, until, cursor, limit: LIMIT }, signal);
}

/** @param {JobPage} page @param {Context} c */
function render(page, c) {
  return [
    pageHead("Jobs"),
    states(c),
    filters(c),
    page.jobs.length ? [bulkBar(page.jobs, c), jobTable(page.jobs, c)] : nothing(page, c),
    pager(c, "cursor", page.cursor),
  ];
}

/** The states as links. The engine counts jobs by state and queue; with other filters, no number is known. @param {Context} c */
function states({ place: { query }, stats }) {
  const { state = "", queue } = query;
  const counts = FILTERS.some((name) => name !== "queue" && query[name]) ? null : queue ? stats?.queues[queue]?.jobs || {} : stats?.jobs;
  const tab = (/** @type {string} */ name) => h("li", { key: name || "all" },
    h("a", { href: link(["jobs"], { ...query, state: name, cursor: null }), "aria-current": name === state ? "true" : null },
      name || "all", name && counts ? h("span", { class: "muted" }, count(counts[name] || 0)) : null));
  return h("ul", { class: "tabs", "aria-label": "State" }, ["", ...STATES].map(tab));
}

/** @param {JobSummary[]} jobs @param {Context} c */
function jobTable(jobs, c) {
  const selected = selectedIn(c);
  const onSelect = (/** @type {string} */ id) => (/** @type {any} */ event) => {
    if (event.target.checked) selected.add(id);
    else selected.delete(id);
    c.draw();
  };
  return table({ label: "Jobs", key: (job) => job.id, rows: jobs, holds: true, columns: [
    ["Select", "check", (job) => h("label", null, h("span", { class: "hidden" }, `Select …${job.id.slice(-10)}`),
      h("input", { type: "checkbox", checked: selected.has(job.id), on: { change: onSelect(job.id) } }))],
    ["Job", "", (job) => jobLink(job.id)],
    ["Task", "", (job) => [job.task, h("div", { class: "narrow muted" }, timeOf(job, c.now))]],
    ["State", "", (job) => [badge(job.state), job.hold !== "none" ? ` ${job.hold}` : null,
      job.cancel_requested && CANCELLABLE.includes(job.state) ? " cancel requested" : null]],
    ["Queue", "wide", (job) => queueLink(job.queue)],
    ["Attempts", "wide number", (job) => job.attempts],
    ["Enqueued", "wide time", (job) => when(job.enqueued_at, c.now)],
    ["Time", "wide time", (job) => timeOf(job, c.now)],
  ] });
}

/** What is worth knowing of a job's time, by its state. @param {JobSummary} job @param {number} now */
function timeOf(job, now) {
  if (job.state === "running") return ["runs ", duration(between(job.started_at, now))];
  if (job.state === "ready" && !(job.due_at && Date.parse(job.due_at) > now)) return ["waits ", age(between(job.due_at || job.enqueued_at, now))];
  if (job.finished_at) return job.started_at ? `took ${duration(between(job.started_at, job.finished_at))}` : when(job.finished_at, now);
  return ["due ", when(job.due_at, now)];
}

/** The selected ids of this list. @param {Context} c @returns {Set<string>} */
function selectedIn(c) {
  c.local.selected ||= new Set();
  return c.local.selected;
}

/** The actions on selected jobs, or on all that match. @param {JobSummary[]} jobs @param {Context} c */
function bulkBar(jobs, c) {
  const selected = selectedIn(c);
  const onAll = (/** @type {any} */ event) => {
    for (const job of jobs) if (event.target.checked) selected.add(job.id);
    if (!event.target.checked) selected.clear();
    c.draw();
  };
  const isAll = jobs.every((job) => selected.has(job.id));
  return h("div", { class: "bulk", id: "bulk", role: "group", "aria-label": "Bulk actions" },
    h("label", { class: "inline" }, h("input", { type: "checkbox", checked: isAll, on: { change: onAll } }), " Select this page"),
    h("span", { class: "grow muted", role: "status" }, selected.size ? `${count(selected.size)} selected` : ""),
    selected.size ? selectionButtons(jobs, selected, c) : matchingButtons(c));
}

/** @param {JobSummary[]} jobs @param {Set<string>} selected @param {Context} c */
function selectionButtons(jobs, selected, c) {
  const chosen = (/** @type {string[]} */ states) => jobs.filter((job) => selected.has(job.id) && states.includes(job.state)).map((job) => job.id);
  const [dead, open] = [chosen(["dead"]), chosen(CANCELLABLE)];
  const act = (/** @type {BulkVerb} */ verb, /** @type {string[]} */ ids) => (ids.length
    ? actButton(c, `${LABELS[verb]} ${count(ids.length)}`, `selected job${ids.length === 1 ? "" : "s"}`, () => changeSelected(verb, ids), verb === "retry" ? undefined : DANGER) : null);
  return [
    act("retry", dead), act("discard", dead), act("cancel", open),
    button("Clear the selection", () => { selected.clear(); c.draw(); }, { key: "clear" }),
  ];
}

/** @param {Context} c */
function matchingButtons(c) {
  const { query } = c.place;
  return verbsFor(query.state).map((verb) => {
    const filter = bulkFilter(verb, query, c.now);
    if (!filter) return null;
    return actButton(c, `${LABELS[verb]} all that match`, "", () => changeMatching(verb, filter), verb === "retry" ? undefined : DANGER);
  });
}

/** @param {JobPage} page @param {Context} c */
function nothing(page, c) {
  const { query } = c.place;
  if (page.cursor) return empty("No job on this page matches.", "The search has not come to the last job yet. The next page continues it.");
  if (FILTERS.some((name) => query[name])) return empty("No job matches.", h("a", { href: link(["jobs"]) }, "Show all jobs"), ", or change the filter.");
  if (query.state) return empty(`No job is ${query.state}.`, h("a", { href: link(["jobs"]) }, "Show all jobs"), ".");
  return empty("There are no jobs yet.", "Enqueue one: ", h("code", null, "windlass enqueue TASK"), ".");
}

/** @param {Context} c */
function filters(c) {
  const { query } = c.place;
  const onSubmit = (/** @type {any} */ event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(event.currentTarget));
    try {
      for (const name of ["since", "until"]) readInstant(String(values[name]), Date.now());
      if (values.key && !values.task) throw new Error("A unique key belongs to a task: name the task too.");
    } catch (error) {
      c.local.wrong = messageOf(error);
      return c.draw();
    }
    const { state } = readHash(location.hash).query; // the form of the list before stays until the new list is there
    location.hash = link(["jobs"], { state, .../** @type {Values} */ (values) });
  };
  const text = (/** @type {string} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    h("label", { key: name }, label, h("input", { name, type: "text", value: query[name] || "", list: `known-${name}`,
      placeholder: hint, autocomplete: "off", spellcheck: "false" }));
  const known = (/** @type {string} */ name, /** @type {string[]} */ values) =>
    h("datalist", { key: `known-${name}`, id: `known-${name}` }, values.map((value) => h("option", { key: value, value })));
  return h("form", { class: "filters", "aria-label": "Filter", on: { submit: onSubmit } },
    text("task", "Task", "any"), text("queue", "Queue", "any"), text("key", "Unique key", "of the task"),
    text("fingerprint", "Fingerprint", "of dead jobs"), text("release", "Died in release", "any"),
    text("since", "Enqueued since", "such as 1h"), text("until", "Until", "now"),
    known("task", c.local.tasks),
    known("queue", Object.keys(c.stats?.queues || {})),
    h("button", { type: "submit", class: "primary" }, "Filter"),
    FILTERS.some((name) => query[name]) ? h("a", { key: "clear", class: "button", href: link(["jobs"], { state: query.state }) }, "Clear") : null,
    h("p", { key: "wrong", class: "wrong", role: "status" }, c.local.wrong || ""));
}

/** @type {Page} */
export const jobsPage = { title: () => "Jobs", everyMs: 3000, load, render, list: { rows: "jobs", key: "id" } };
