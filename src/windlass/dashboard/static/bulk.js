/**
 * Actions on many jobs of a list: those that are selected, or all that match its filter.
 *
 * Selected jobs have a verdict each. A filter starts an operation on the server, which also changes
 * jobs that no page shows; its dialog first tells how many match.
 */

import { apiPath } from "./api.js";
import { count, matchText, plural, readInstant } from "./format.js";
import { stringify } from "./json.js";
import { link } from "./router.js";

/** The speed of an operation, and when it pauses by itself. */
/** @type {Field} */
const RATE_FIELD = {
  name: "rate", label: "At most this many jobs a second (empty: as fast as possible)", value: "",
  check: (text) => (text.trim() === "" || Number(text) > 0 ? null : "must be a number above 0"),
};
/** @type {Field} */
const STOP_FIELD = {
  name: "stop_after", label: "Pause when this many of the last 100 jobs fail again (0: never)", value: "10",
  check: (text) => (/^\d{1,3}$/.test(text.trim()) && Number(text) <= 100 ? null : "must be a number from 0 to 100"),
};

/** The states of jobs that can be cancelled. */
export const CANCELLABLE = ["running", "ready", "scheduled", "retrying"];

/** @type {{[verb: string]: {label: string, explain: string, path: string[], command: string[], done: string}}} */
const VERBS = {
  retry: {
    label: "Retry", path: ["dead", "retry"], command: ["dead", "retry"], done: "ready again",
    explain: "The jobs are ready again, with fresh attempts, and keep their history.",
  },
  discard: {
    label: "Discard", path: ["dead", "discard"], command: ["dead", "discard"], done: "discarded",
    explain: "Removes the jobs for good. This cannot be undone. The log has a line about each job.",
  },
  cancel: {
    label: "Cancel jobs", path: ["jobs", "cancel"], command: ["job", "cancel"], done: "cancelled",
    explain: "Waiting jobs are cancelled at once. Workers interrupt running jobs, which end as cancelled unless they succeed.",
  },
};

/** The verbs for jobs of a state; none for jobs that have ended well. @param {string | undefined} state @returns {BulkVerb[]} */
export function verbsFor(state) {
  if (state === "dead") return ["retry", "discard"];
  return !state || CANCELLABLE.includes(state) ? ["cancel"] : [];
}

/** Change selected jobs. @param {BulkVerb} verb @param {string[]} ids @returns {Action} */
export function changeSelected(verb, ids) {
  const { label, explain, path, command, done } = VERBS[verb];
  return {
    title: ids.length === 1 ? `${verb[0].toUpperCase()}${verb.slice(1)} job …${ids[0].slice(-10)}` : `${label}: ${count(ids.length)} selected jobs`,
    label,
    explain,
    isDanger: verb !== "retry",
    typed: verb === "discard" ? "discard" : undefined,
    request: () => ({ method: "POST", path: apiPath(path), body: stringify({ ids }) }),
    command: () => [...command, ...ids],
    done: (answer) => ({ text: verdictText(Object.values(answer.jobs), done) }),
  };
}

/** What became of selected jobs. @param {string[]} codes @param {string} done */
export function verdictText(codes, done) {
  const good = codes.filter((code) => ["done", "cancelled", "requested"].includes(code)).length;
  const rest = codes.length - good;
  const text = `${count(good)} of ${plural(codes.length, "job")} ${codes.length === 1 ? "is" : "are"} ${done}.`;
  return rest ? `${text} ${count(rest)} had changed meanwhile.` : text;
}

/**
 * The filter of the API for the filter of a list; null if a bulk action cannot have this one.
 * @param {BulkVerb} verb @param {{[name: string]: string}} query @param {number} now
 * @returns {{[name: string]: any} | null}
 */
export function bulkFilter(verb, query, now) {
  const { task, queue, state, fingerprint, key, release } = query;
  if (key) return null;
  const since = readInstant(query.since || "", now);
  const until = readInstant(query.until || "", now);
  const isDead = verb !== "cancel";
  if (isDead && (since || until)) return null; // the times of dead letters are those of their deaths
  if (!isDead && (fingerprint || release)) return null;
  const given = isDead ? { task, queue, fingerprint, release } : { task, queue, state, since, until };
  const parts = Object.entries(given).filter(([, value]) => value);
  return parts.length ? Object.fromEntries(parts) : { everything: true };
}

/**
 * Change all jobs that match the filter of a list.
 * @param {BulkVerb} verb @param {{[name: string]: any}} filter @returns {Action}
 */
export function changeMatching(verb, filter) {
  const { label, explain, path, done } = VERBS[verb];
  const isDead = verb !== "cancel";
  const { everything, ...parts } = filter;
  return {
    title: `${label}: all ${isDead ? "dead jobs" : "jobs"} that match`,
    label,
    explain: `${explain} This is also for jobs that the page does not show. The operation survives a restart of the server.`,
    isDanger: verb !== "retry",
    typed: verb === "retry" ? undefined : verb,
    fields: verb === "retry" ? [RATE_FIELD, STOP_FIELD] : [RATE_FIELD],
    preview: async (api, signal) => {
      return matchText(await api.get([isDead ? "dead" : "jobs", "count"], parts, signal), isDead ? "dead job" : "job");
    },
    request: (values) => ({
      method: "POST", path: apiPath(path),
      body: stringify({
        filter, ...(rateOf(values) ? { rate: Number(values.rate) } : {}),
        ...(verb === "retry" ? { stop_after: Number(values.stop_after) } : {}),
      }),
    }),
    command: (values) => (isDead && !filter.queue ? deadCommand(verb, filter, values) : null),
    done: () => ({ text: `The operation has started: all that match will be ${done}.`, href: link(["operations"]) }),
  };
}

/**
 * Change a group of dead jobs, perhaps only those of a release, or all dead jobs.
 * @param {"retry" | "discard"} verb @param {{task: string, fingerprint: string, release?: string} | null} group @returns {Action}
 */
export function changeDead(verb, group) {
  const { task, fingerprint, release } = group || {};
  const what = group ? `dead jobs of ${task}${release ? ` in release ${release}` : ""}` : "all dead jobs";
  const filter = group ? { task, fingerprint, ...(release ? { release } : {}) } : { everything: true };
  return { ...changeMatching(verb, filter), title: `${VERBS[verb].label} ${what}` };
}

/** @param {Values} values */
const rateOf = (values) => (values.rate || "").trim();

/** @param {string} verb @param {{[name: string]: any}} filter @param {Values} values */
function deadCommand(verb, filter, values) {
  const rate = rateOf(values);
  if (verb === "discard" && rate) return null;
  return [
    "dead", verb,
    ...(filter.everything ? ["--all"] : ["task", "fingerprint", "release"].flatMap((name) => (filter[name] ? [`--${name}`, filter[name]] : []))),
    "--yes",
    ...(rate ? ["--rate", `${rate}/s`] : []),
    ...(verb === "retry" ? ["--stop-after", values.stop_after.trim()] : []),
  ];
}
