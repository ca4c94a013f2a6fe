/**
 * Lost sessions and crash suspects: which processes died or fell silent, what became of their jobs,
 * and which jobs ran when processes died.
 */

import { h } from "../dom.js";
import { count } from "../format.js";
import { table } from "../table.js";
import { badge, jobLink, queueLink, section, when } from "../ui.js";

/** @param {Lost} lost @param {number} now @returns {Child} */
export function lostSections(lost, now) {
  const suspects = [...lost.suspects, ...lost.dead];
  return [
    section("Lost sessions", lost.sessions.length
      ? table({ label: "Lost sessions", key: (one) => one.session, rows: lost.sessions, columns: [
        ["Worker", "text", (one) => [h("b", null, one.worker), " ", badge(one.kind), h("p", { class: "muted mono" }, one.session)]],
        ["Cause", "wide", (one) => one.cause],
        ["Release", "wide", (one) => one.release || ""],
        ["Jobs", "", (one) => jobs(one)],
        ["Lost", "number", (one) => when(one.at, now)],
      ] })
      : h("p", { class: "muted" }, "No worker was lost lately.")),
    section("Crash suspects", suspects.length
      ? [
        h("p", { class: "muted" }, "These jobs ran when a process died. Those that wait run alone, one at a time."),
        table({ label: "Crash suspects", key: (job) => job.id, rows: suspects, columns: [
          ["Job", "", (job) => jobLink(job.id)],
          ["Task", "", (job) => job.task],
          ["Queue", "wide", (job) => queueLink(job.queue)],
          ["State", "", (job) => [badge(job.state), job.reason ? ` ${job.reason}` : null]],
          ["Crashes", "number", (job) => count(job.crashes)],
          ["Lost workers", "wide number", (job) => count(job.losses)],
        ] }),
        lost.is_exact ? null : h("p", { class: "muted" }, "More jobs wait to run alone than these.")]
      : h("p", { class: "muted" }, "No job is suspected of killing processes.")),
  ];
}

/** The jobs of a lost session, with what became of them. @param {LostSession} one @returns {Child} */
function jobs(one) {
  const hidden = one.job_count - one.jobs.length;
  return [
    one.jobs.map((job) => h("p", { key: job.id }, jobLink(job.id), " ", badge(job.state || "removed"),
      job.is_suspect ? " suspect" : null)),
    hidden > 0 ? h("p", { key: "more", class: "muted" }, `${count(hidden)} more`) : null,
    one.job_count ? null : h("span", { class: "muted" }, "none"),
  ];
}
