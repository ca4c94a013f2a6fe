/**
 * Schedules: when they run next, and the actions run now, pause and resume.
 */

import { pause, runSchedule } from "../actions.js";
import { h } from "../dom.js";
import { age, between, clock, count, duration } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { actButton, badge, empty, jobLink, pageHead, pager, queueLink, when } from "../ui.js";

/** Workers fire schedules every second or so: later than this, none does. */
const LATE_S = 10;

/** @param {Schedules} found @param {Context} c */
function render(found, c) {
  if (!found.schedules.length) {
    return [pageHead("Schedules"), empty("There are no schedules.",
      "Declare one in code: ", h("code", null, "@app.task(schedule=Cron(\"0 3 * * *\"))"), ", and start a worker.")];
  }
  return [
    pageHead("Schedules"),
    table({ label: "Schedules", key: (one) => one.name, rows: found.schedules, columns: [
      ["Schedule", "text", (one) => [
        h("a", { href: link(["jobs"], { task: one.task }) }, one.name), one.state === "active" ? null : [" ", badge(one.state)],
        h("p", { class: "muted" }, one.timing), unfinished(one),
        h("div", { class: "narrow muted" }, "last ", last(one, c.now))]],
      ["Queue", "wide", (one) => queueLink(one.queue)],
      ["Next", "time", (one) => upcoming(one, c.now)],
      ["Last", "wide time", (one) => last(one, c.now)],
      ["Skipped", "wide number", (one) => count(one.skipped)],
      ["Actions", "actions", (one) => actions(one, c)],
    ] }),
    pager(c, "after", found.after),
  ];
}

/** The next runs. An occurrence that no worker has fired in time is overdue. @param {Schedule} one @param {number} now */
function upcoming(one, now) {
  const late = one.state === "active" ? between(one.next_at, now) : null;
  if (late && late > LATE_S) return h("span", { class: "bad", title: clock(one.next_at) }, `overdue by ${age(late)}`);
  if (!one.upcoming.length) return when(one.next_at, now);
  const isPaused = one.state === "paused";
  return h("details", null,
    h("summary", null, isPaused ? "paused" : when(one.next_at || one.upcoming[0], now)),
    isPaused ? h("p", { class: "muted" }, "If it is resumed:") : null,
    h("ol", { class: "plain" }, one.upcoming.map((/** @type {string} */ at) => h("li", { key: at }, clock(at).slice(0, 19)))));
}

/** The last run, and how late it was. @param {Schedule} one @param {number} now */
function last({ last_at, last_late_s: late }, now) {
  return [when(last_at, now), late === null ? null : h("p", { class: late > LATE_S ? "bad" : "muted" }, late < 1 ? "on time" : `${duration(late)} late`)];
}

/** @param {Schedule} one */
function unfinished(one) {
  if (!one.unfinished.length) return null;
  return h("p", { class: "muted" }, "still running: ", one.unfinished.map((/** @type {string} */ id) => [jobLink(id), " "]));
}

/** @param {Schedule} one @param {Context} c */
function actions(one, c) {
  const isPaused = one.state === "paused";
  return [
    actButton(c, "Run now", one.name, () => runSchedule(one.name)),
    one.state === "active" || isPaused
      ? actButton(c, isPaused ? "Resume" : "Pause", one.name, () => pause("schedule", one.name, isPaused))
      : null,
  ];
}

/** @type {Page} */
export const schedulesPage = {
  title: () => "Schedules", everyMs: 5000, render,
  load: (c, signal) => c.api.get(["schedules"], { after: c.place.query.after, limit: 100 }, signal),
};
