/**
 * "Why is this not running?": what holds a job, in the order in which to resolve it.
 *
 * The server decides and words it. This module loads it with the job, and shows each hold with the
 * command that resolves it. A paused queue has a button too.
 */

import { pause } from "../actions.js";
import { h } from "../dom.js";
import { actButton, copyButton, section, when } from "../ui.js";

const ENDED = ["succeeded", "dead", "cancelled"];
/** Kinds that are no problem: nothing has to be resolved. */
const CALM = ["running", "scheduled", "back_off", "behind_others", "next"];

/**
 * A job with what holds it. An ended job needs no explanation.
 * @param {Context} c @param {AbortSignal} signal @returns {Promise<Job>}
 */
export async function loadWithWhy(c, signal) {
  const id = c.place.parts[1];
  const job = await c.api.get(["jobs", id], {}, signal);
  if (ENDED.includes(job.state)) return { ...job, why: null };
  return { ...job, why: await c.api.get(["jobs", id, "why"], {}, signal) };
}

/** @param {Job} job @param {Context} c @returns {Child} */
export function whySection({ why, queue }, c) {
  if (!why) return null;
  const title = why.state === "running" ? "What it does now" : "Why is this not running?";
  return section(title, h("ol", { class: "timeline" }, why.holds.map((hold) =>
    h("li", { key: hold.kind, class: CALM.includes(hold.kind) ? "blue" : "red" },
      h("p", null, hold.text, hold.at ? [" ", h("span", { class: "muted" }, when(hold.at, c.now))] : null),
      hold.command ? h("p", null, h("code", null, hold.command), " ", copyButton(c, "the command", () => hold.command || "")) : null,
      hold.kind === "queue_paused" ? actButton(c, "Resume", `the queue ${queue}`, () => pause("queue", queue, true)) : null))));
}
