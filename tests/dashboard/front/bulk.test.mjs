/** Bulk actions: which filter they send, and what they say. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { bulkFilter, changeMatching, changeSelected, verbsFor, verdictText } from "../../../src/windlass/dashboard/static/bulk.js";

const NOW = Date.parse("2030-01-31T12:00:00Z");

test("the state of a list says what can be done", () => {
  assert.deepEqual([verbsFor("dead"), verbsFor("ready"), verbsFor(undefined), verbsFor("succeeded")], [["retry", "discard"], ["cancel"], ["cancel"], []]);
});

test("a bulk action changes what the list shows, or nothing", () => {
  assert.deepEqual(bulkFilter("cancel", { state: "ready", queue: "mail", since: "1h" }, NOW),
    { queue: "mail", state: "ready", since: "2030-01-31T11:00:00.000Z" });
  assert.deepEqual(bulkFilter("retry", { state: "dead", task: "t" }, NOW), { task: "t" });
  assert.deepEqual(bulkFilter("discard", { state: "dead" }, NOW), { everything: true });
  assert.equal(bulkFilter("retry", { state: "dead", since: "1h" }, NOW), null); // the time of the death is another one
  assert.equal(bulkFilter("cancel", { task: "t", key: "k" }, NOW), null);
});

test("all that match are an operation, with its equal commands", () => {
  const retry = changeMatching("retry", { task: "shop.charge" });
  const values = { rate: "5", stop_after: "10" };
  assert.equal(retry.request(values).body, '{"filter":{"task":"shop.charge"},"rate":5,"stop_after":10}');
  assert.deepEqual(retry.command(values), ["dead", "retry", "--task", "shop.charge", "--yes", "--rate", "5/s", "--stop-after", "10"]);
  const cancel = changeMatching("cancel", { everything: true });
  assert.deepEqual([cancel.typed, cancel.isDanger, cancel.command({ rate: "" })], ["cancel", true, null]);
});

test("selected jobs are named, and each has a verdict", () => {
  const action = changeSelected("cancel", ["a", "b"]);
  assert.deepEqual(action.request({}), { method: "POST", path: "v1/jobs/cancel", body: '{"ids":["a","b"]}' });
  assert.deepEqual(action.command({}), ["job", "cancel", "a", "b"]);
  assert.equal(verdictText(["cancelled", "requested", "final"], "cancelled"), "2 of 3 jobs are cancelled. 1 had changed meanwhile.");
  assert.equal(verdictText(["done"], "retried"), "1 of 1 job is retried.");
});
