/**
 * What an operator can do: each action says what it does, its request, and its equal commands.
 *
 * A destructive action names what must be typed to confirm it. `request` and `command` take the
 * values of the action's fields.
 */

import { apiPath } from "./api.js";
import { count } from "./format.js";
import { checkJson, stringify } from "./json.js";
import { link } from "./router.js";

/** @type {{[what: string]: string}} */
const PAUSES = {
  "pause queue": "Workers start no more jobs of this queue. Running jobs continue; waiting jobs keep their place.",
  "resume queue": "Workers start jobs of this queue again.",
  "pause schedule": "The schedule enqueues no more jobs until it is resumed. Existing jobs stay.",
  "resume schedule": "The schedule continues with its next occurrence, and skips those during the pause.",
};

/** @param {...string} parts @returns {() => ActionRequest} */
const post = (...parts) => () => ({ method: "POST", path: apiPath(parts) });

/**
 * Pause or resume a queue or a schedule.
 * @param {"queue" | "schedule"} kind @param {string} name @param {boolean} isPaused @returns {Action}
 */
export function pause(kind, name, isPaused) {
  const label = isPaused ? "Resume" : "Pause";
  const verb = label.toLowerCase();
  return {
    title: `${label} the ${kind} ${name}`,
    label,
    explain: PAUSES[`${verb} ${kind}`],
    request: post(`${kind}s`, name, verb),
    command: () => [kind, verb, name],
  };
}

/** @param {string} name @param {number} waiting @returns {Action} */
export function purgeQueue(name, waiting) {
  return {
    title: `Purge the queue ${name}`,
    label: "Purge",
    explain: "Removes all waiting jobs of this queue for good: ready, scheduled and retrying ones. " +
      `Waiting now: about ${count(waiting)}. Running jobs continue. This cannot be undone.`,
    isDanger: true,
    typed: name,
    request: post("queues", name, "purge"),
    command: () => ["queue", "purge", name],
    done: () => operationDone(`The purge of ${name} has started.`),
  };
}

/** @param {string} id @returns {Action} */
export function cancelJob(id) {
  return {
    title: "Cancel the job",
    label: "Cancel the job",
    explain: "A waiting job is cancelled at once. The worker interrupts a running job, which ends as " +
      "cancelled unless it succeeds.",
    isDanger: true,
    request: post("jobs", id, "cancel"),
    command: () => ["job", "cancel", id],
  };
}

/** @param {string} id @returns {Action} */
export function retryJob(id) {
  return {
    title: "Retry the job",
    label: "Retry",
    explain: "The job is ready again, with all its attempts. It keeps its history.",
    request: post("jobs", id, "retry"),
    command: () => ["job", "retry", id],
  };
}

/** @param {Job} job @returns {Action} */
export function editJob(job) {
  const isEnded = job.state === "dead" || job.state === "cancelled";
  const before = { args: stringify(job.args, 2), kwargs: stringify(job.kwargs, 2) };
  const changed = (/** @type {Values} */ values) =>
    /** @type {("args" | "kwargs")[]} */ (["args", "kwargs"]).filter((name) => values[name] !== before[name]);
  return {
    title: isEnded ? "Edit the arguments and retry" : "Edit the arguments",
    label: isEnded ? "Save and retry" : "Save",
    explain: "The task checks the new arguments, and the history keeps the old ones. Numbers are sent as " +
      "they are written. A part that you do not change stays as it is stored.",
    fields: [
      { name: "args", label: "Positional arguments (JSON list)", value: before.args, rows: 8,
        check: (text) => checkArguments(text, "list", text === before.args) },
      { name: "kwargs", label: "Keyword arguments (JSON object)", value: before.kwargs, rows: 8,
        check: (text) => checkArguments(text, "object", text === before.kwargs) },
    ],
    request: (values) => ({
      method: "PATCH",
      path: apiPath(["jobs", job.id]),
      body: `{${changed(values).map((name) => `"${name}": ${values[name].trim()}`).join(", ")}}`,
    }),
    command: (values) =>
      ["job", "edit", job.id, ...changed(values).flatMap((name) => [`--${name}`, values[name].trim()])],
  };
}

/** @param {string} text @param {"list" | "object"} kind @param {boolean} isSame */
function checkArguments(text, kind, isSame) {
  if (!isSame && text.includes('"[redacted]"')) {
    return "contains [redacted]: write the value in its place, or leave this part as it was";
  }
  return checkJson(text, kind);
}

/** @param {string} name @returns {Action} */
export function runSchedule(name) {
  return {
    title: `Run the schedule ${name} now`,
    label: "Run now",
    explain: "Enqueues an additional job now. The next occurrence stays as planned.",
    request: post("schedules", name, "run"),
    command: () => ["schedule", "run", name],
    done: (answer) => ({ text: "The job is enqueued.", href: link(["jobs", answer.id]) }),
  };
}

/** @type {{[verb: string]: [string, string]}} */
const WORKER_VERBS = {
  quiet: ["Quiet", "The worker finishes its running jobs and claims no more. It stays alive, and can be resumed."],
  stop: ["Stop", "The worker finishes its running jobs within its grace period, and ends. This cannot be undone; a " +
    "service manager may start the worker again."],
  run: ["Resume", "The worker claims jobs again."],
};

/** @param {string} name @param {"quiet" | "stop" | "run"} verb @returns {Action} */
export function commandWorker(name, verb) {
  const [label, explain] = WORKER_VERBS[verb];
  return {
    title: `${label} the worker ${name}`,
    label,
    explain,
    isDanger: verb === "stop",
    request: post("workers", name, verb),
    command: () => ["workers", label.toLowerCase(), name],
  };
}

/** @type {{[verb: string]: [string, string]}} */
const OPERATION_VERBS = {
  pause: ["Pause", "The operation waits after its current step, and can be resumed within 7 days."],
  resume: ["Resume", "The operation continues where it was. Failures before the pause do not stop it again."],
  stop: ["Stop", "The operation ends after its current step, for good. Jobs that it has changed stay changed."],
};

/** @param {string} id @param {"pause" | "resume" | "stop"} verb @returns {Action} */
export function controlOperation(id, verb) {
  const [label, explain] = OPERATION_VERBS[verb];
  return {
    title: `${label} the operation`,
    label,
    explain,
    isDanger: verb === "stop",
    request: post("operations", id, verb),
    command: () => ["operation", verb, id],
  };
}

/** @param {string} text */
function operationDone(text) {
  return { text, href: link(["operations"]) };
}
