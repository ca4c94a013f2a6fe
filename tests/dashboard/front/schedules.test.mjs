/** The page of schedules: how late the last run was. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { schedulesPage } from "../../../src/windlass/dashboard/static/pages/schedules.js";

const AT = "2030-01-31T12:00:00Z";

/** What the page shows of a schedule whose last run was this late, by the class of the text. @param {number | null} late */
function shown(late) {
  const schedule = { name: "nightly", timing: "every 1d", task: "shop.nightly", queue: "default", state: "active", is_declared: true,
    next_at: AT, upcoming: [AT], last_at: AT, last_late_s: late, skipped: 0, unfinished: [] };
  /** @type {any} */
  const c = { place: { parts: ["schedules"], query: {} }, now: Date.parse(AT), me: { may_change: true, role: "operator" } };
  /** @type {{[style: string]: string}} */
  const found = {};
  const walk = (/** @type {any} */ tree) => {
    if (Array.isArray(tree)) tree.forEach(walk);
    else if (tree && typeof tree === "object") {
      if (tree.tag === "p" && /late|on time/.test(String(tree.children[0]))) found[tree.props.class] = String(tree.children[0]);
      tree.children.forEach(walk);
    }
  };
  walk(schedulesPage.render({ schedules: [schedule], after: null }, c));
  return found;
}

test("the lateness of the last run is beside it, and stands out if no worker was there in time", () => {
  assert.deepEqual(shown(0.13), { muted: "on time" });
  assert.deepEqual(shown(2.5), { muted: "2.5 s late" });
  assert.deepEqual(shown(260), { bad: "4 min 20 s late" });
  assert.deepEqual(shown(null), {});
});
