/**
 * Dead letters: groups of similar failures, and the retry or discard of a whole group.
 *
 * The address has the task, the fingerprint and the release of the groups, and the release in which a
 * group is new: without one, the newest.
 */

import { changeDead } from "../bulk.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { actButton, badge, DANGER, empty, jobLink, pageHead, when } from "../ui.js";

/** @param {Context} c @param {AbortSignal} signal */
function load(c, signal) {
  const { task, fingerprint, release } = c.place.query;
  return c.api.get(["dead", "groups"], { task, fingerprint, release }, signal);
}

/** @param {DeadGroups} found @param {Context} c */
function render(found, c) {
  const { task, fingerprint, release, only } = c.place.query;
  const isChosen = task || fingerprint || release;
  const since = chosenRelease(found, c.place.query.since);
  const isNew = (/** @type {DeadGroup} */ group) => since !== null && isNewIn(group, since, found.releases);
  const groups = only === "new" && since ? found.groups.filter(isNew) : found.groups;
  const all = !isChosen && groups === found.groups && groups.length
    ? [actButton(c, "Retry all", "dead jobs", () => changeDead("retry", null)),
      actButton(c, "Discard all", "dead jobs", () => changeDead("discard", null), DANGER)]
    : null;
  return [
    pageHead(task ? `Dead jobs of ${task}` : "Dead jobs", isChosen ? h("a", { href: link(["dead"]) }, "All groups") : null, all),
    since ? chooser(found, since, c) : null,
    found.is_exact ? null : h("p", { key: "cut", class: "note" }, "There are more groups than these, which are the largest."),
    groups.length ? groupTable(groups, (group) => (isNew(group) ? since : null), c) : nothing(since, c),
  ];
}

/** The release in which groups may be new. With a single release all groups would be. @param {DeadGroups} found @param {string} [asked] */
function chosenRelease({ releases }, asked) {
  if (releases.length < 2) return null;
  return releases.some(({ release }) => release === asked) ? asked || null : releases[0].release;
}

/**
 * Whether all jobs of a group died in this release or in later ones; `releases` has the newest first.
 * @param {{releases: {release: string | null}[]}} group @param {string} since @param {{release: string}[]} releases
 */
export function isNewIn(group, since, releases) {
  const order = releases.map(({ release }) => release);
  const later = order.slice(0, order.indexOf(since) + 1);
  return group.releases.every(({ release }) => release !== null && later.includes(release));
}

/** @param {string | null} since @param {Context} c */
function nothing(since, c) {
  const { task, only } = c.place.query;
  if (only === "new" && since) return empty(`No failure is new in ${since}.`, "All groups have dead jobs of earlier releases too.");
  return empty(task ? `No job of ${task} is dead.` : "No job is dead.",
    "A job comes here when its last attempt has failed, with the error and all attempts.");
}

/** The release in which groups are marked as new. @param {DeadGroups} found @param {string} since @param {Context} c */
function chooser(found, since, c) {
  const { query } = c.place;
  const isOnly = query.only === "new";
  const onChange = (/** @type {any} */ event) => { location.hash = link(["dead"], { ...query, since: event.target.value }); };
  return h("div", { key: "since", class: "filters" },
    h("label", null, "New in release, or later", h("select", { name: "since", on: { change: onChange } },
      found.releases.map(({ release }) => h("option", { key: release, value: release, selected: release === since }, release)))),
    h("a", { class: "button", href: link(["dead"], { ...query, only: isOnly ? null : "new" }) }, isOnly ? "Show all groups" : "Only new groups"));
}

/** @param {DeadGroup[]} groups @param {(group: DeadGroup) => string | null} newIn @param {Context} c */
function groupTable(groups, newIn, c) {
  const { release } = c.place.query;
  return table({ label: "Groups of dead jobs", key: (group) => `${group.task} ${group.fingerprint}`, rows: groups, holds: true, columns: [
    ["Jobs", "number", (group) => h("a", { href: jobsOf(group, release) }, h("b", null, count(group.count)))],
    ["Task and error", "text", (group) => [
      h("a", { href: link(["dead"], { task: group.task }) }, group.task),
      newIn(group) ? [" ", h("span", { class: "badge blue" }, `new in ${newIn(group)}`)] : null,
      group.fingerprint ? null : [" ", badge("pending")],
      h("p", { class: "error-title" }, errorLine(group)),
      group.function ? h("p", { class: "muted mono" }, group.function) : null,
      h("div", { class: "narrow muted" }, "first ", when(group.first_at, c.now), releasesOf(group))]],
    ["Releases", "wide fixed", releasesOf],
    ["Queues", "wide fixed", (group) => Object.entries(group.queues).map(([queue, number]) => h("div", { key: queue }, `${queue}: ${count(number)}`))],
    ["Example", "wide", (group) => jobLink(group.example)],
    ["First", "wide time", (group) => when(group.first_at, c.now)],
    ["Last", "time", (group) => when(group.last_at, c.now)],
    ["Actions", "actions", (group) => group.fingerprint ? actions(group, c) : null],
  ] });
}

/** The releases in which jobs of a group died. @param {DeadGroup} group */
function releasesOf(group) {
  return group.releases.map((part) => h("div", { key: part.release || "" },
    part.release ? h("a", { href: jobsOf(group, part.release) }, part.release) : "no release", `: ${count(part.count)}`));
}

/** A group without a fingerprint gets one soon, and has no actions of its own. @param {DeadGroup} group @param {Context} c */
function actions(group, c) {
  const subject = `${plural(group.count, "job")} of ${group.task}`;
  const { release } = c.place.query; // the numbers are those of this release, and so are the jobs
  const shown = { task: group.task, fingerprint: group.fingerprint, release };
  return [
    actButton(c, "Retry", subject, () => changeDead("retry", shown)),
    actButton(c, "Discard", subject, () => changeDead("discard", shown), DANGER),
  ];
}

/** The list of the jobs of a group. @param {DeadGroup} group @param {string | null | undefined} release */
function jobsOf(group, release) {
  const { task, fingerprint } = group;
  return link(["jobs"], { state: "dead", task, fingerprint: fingerprint || null, release });
}

/** @param {DeadGroup} group */
function errorLine(group) {
  if (!group.error) return group.reason || "no error is stored";
  const text = group.error.type ? `${group.error.type}: ${group.error.message}` : group.error.message;
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

/** @type {Page} */
export const deadPage = { title: () => "Dead jobs", everyMs: 5000, load, render };
