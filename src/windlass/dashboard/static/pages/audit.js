/**
 * The audit trail: who changed what, the newest entry first.
 */

import { h } from "../dom.js";
import { stringify } from "../json.js";
import { link } from "../router.js";
import { table } from "../table.js";
import { empty, jobLink, pageHead, pager, when } from "../ui.js";

/** @param {AuditPage} found @param {Context} c */
function render(found, c) {
  if (!found.entries.length) {
    return [pageHead("Audit trail"), empty("Nothing was changed yet.",
      "Each change by dashboard, API or command line has an entry here.")];
  }
  return [
    pageHead("Audit trail"),
    table({ label: "Audit trail", key: (entry) => entry.id, rows: found.entries, holds: true, columns: [
      ["When", "fixed", (entry) => when(entry.at, c.now)],
      ["Who", "", (entry) => entry.actor],
      ["Action and subject", "", (entry) => [h("code", null, entry.action), " ", subject(entry),
        entry.outcome === "ok" ? null : h("p", { class: "narrow" }, entry.outcome)]],
      ["Outcome", "wide", (entry) => entry.outcome],
      ["Details", "wide", (entry) => details(entry.details)],
    ] }),
    pager(c, "before", found.before),
  ];
}

/** What was changed: a job and an operation have ids of the same form. @param {{action: string, subject: string}} entry */
function subject(entry) {
  if (!/^[0-9a-z]{26}$/.test(entry.subject)) return entry.subject;
  if (!entry.action.includes("operation")) return jobLink(entry.subject);
  return h("a", { class: "mono", href: link(["operations"]), title: entry.subject }, `…${entry.subject.slice(-10)}`);
}

/** @param {object} fields */
function details(fields) {
  const text = Object.keys(fields).length ? stringify(fields) : "";
  return h("span", { class: "mono muted", title: text.slice(0, 2000) }, text.length > 160 ? `${text.slice(0, 160)}…` : text);
}

/** @type {Page} */
export const auditPage = {
  title: () => "Audit trail", everyMs: 5000, render, list: { rows: "entries", key: "id" },
  load: (c, signal) => c.api.get(["audit"], { before: c.place.query.before }, signal),
};
