/** Alerts in words. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { describeAlert } from "../../../src/windlass/dashboard/static/alerts.js";

const alert = (/** @type {string} */ kind, /** @type {number} */ value, subject = "") =>
  ({ rule: `${kind} > 1`, kind, state: "firing", subject, value, threshold: 1, since: null });

test("an alert has its number in its unit, and a place to look", () => {
  assert.deepEqual(describeAlert(alert("dead_letters", 1200)), ["1,200 jobs are dead", "#/dead"]);
  assert.equal(describeAlert(alert("dead_letters", 1, "mail"))[0], "1 job is dead in mail");
  assert.equal(describeAlert(alert("no_worker", 1, "mail"))[0], "No worker serves mail with 1 ready job");
  assert.deepEqual(describeAlert(alert("oldest_age", 90, "mail")), ["The next job of mail has been ready for 1 min 30 s", "#/jobs?state=ready&queue=mail"]);
  assert.equal(describeAlert(alert("failure_rate", 0.25, "shop.charge"))[0], "25 % of the runs of shop.charge failed within 5 minutes");
});

test("a kind of a later version is shown by its rule", () => {
  assert.deepEqual(describeAlert(alert("moon_phase", 3, "x")), ["moon_phase > 1 x: 3", null]);
});
