/** Charts and rates: round axes, gaps, and sums of the history. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { linePath, niceSeconds, niceTop, shortDuration, shortNumber } from "../../../src/windlass/dashboard/static/chart.js";
import { chartLines, SPANS, taskRows, weightedMedian } from "../../../src/windlass/dashboard/static/history.js";
import { findShortcut } from "../../../src/windlass/dashboard/static/keys.js";
import { Recent } from "../../../src/windlass/dashboard/static/rates.js";

test("an axis ends with a round number", () => {
  assert.deepEqual([0, 0.3, 1, 3, 7, 10, 11, 4999].map(niceTop), [1, 0.5, 1, 5, 10, 10, 20, 5000]);
});

test("an axis of durations ends with whole minutes or hours", () => {
  assert.deepEqual([0.3, 40, 55, 298, 4000, 100_000].map(niceSeconds), [0.5, 50, 60, 300, 7200, 172_800]);
});

test("labels of an axis are short", () => {
  assert.deepEqual([0, 0.5, 950, 2000, 1_500_000].map(shortNumber), ["0", "0.5", "950", "2k", "1.5M"]);
  assert.deepEqual([0, 0.5, 20, 500, 7200].map(shortDuration), ["0", "500ms", "20s", "8.3m", "2h"]);
});

test("a line has a gap where nothing is known", () => {
  assert.equal(linePath([1, 2, null, 3], (x) => x, (y) => y), "M0.0 1.0h0.1L1.0 2.0M3.0 3.0h0.1");
});

const row = (/** @type {string} */ at, /** @type {number} */ n) => ({ at, task: "t", enqueued: n, outcomes: { succeeded: n, retried: 1, dead: 1 },
  wait_p50_s: n, wait_p99_s: n, run_p50_s: n, run_p99_s: n });

test("rows of one minute are added, old ones and the current minute are left out", () => {
  const rows = [row("2030-01-01T10:59:00Z", 9), row("2030-01-01T11:01:00Z", 1), row("2030-01-01T12:00:00Z", 2), row("2030-01-01T12:00:00Z", 3),
    row("2030-01-01T12:01:00Z", 7)];
  const depths = [{ at: "2030-01-01T12:00:00Z", ready: 1, scheduled: 2, running: 3 }, { at: "2030-01-01T12:00:00Z", ready: 1, scheduled: 2, running: 3 }];
  const lines = chartLines({ rows, depths, end: "2030-01-01T12:01:30Z", isCut: false }, SPANS["1h"]);
  assert.equal(lines.times.length, 60);
  assert.deepEqual([lines.enqueued[0], lines.enqueued[59], lines.failed[59], lines.wait[59]], [1, 5, 4, 3]);
  assert.deepEqual([lines.ready[58], lines.ready[59], lines.running[59]], [null, 2, 6]);
  const [task] = taskRows(rows.slice(0, 4));
  assert.deepEqual([task.runs, task.failed, task.p99, task.wait50], [23, 8, 9, 3]);
});

test("a minute is shown when workers have reported it", () => {
  const rows = [row("2030-01-01T12:00:00Z", 5), row("2030-01-01T12:01:00Z", 7)];
  const last = (/** @type {string} */ end) => chartLines({ rows, depths: [], end, isCut: false }, SPANS["1h"]).enqueued[59];
  assert.deepEqual(["2030-01-01T12:02:11Z", "2030-01-01T12:02:13Z"].map(last), [5, 7]);
});

test("hours are numbers per minute, also the current one", () => {
  const rows = [row("2030-01-01T11:00:00Z", 60), row("2030-01-01T12:00:00Z", 60)];
  const lines = (/** @type {string} */ end) => chartLines({ rows, depths: [], end, isCut: false }, SPANS["24h"]);
  assert.deepEqual(lines("2030-01-01T12:30:00Z").enqueued.slice(-2), [1, 2]);
  assert.deepEqual(lines("2030-01-01T12:04:00Z").enqueued.slice(-2), [0, 1]); // too short to tell
});

test("a median is weighted", () => {
  assert.equal(weightedMedian([[5, 1], [1, 10]]), 1);
  assert.equal(weightedMedian([]), null);
});

test("a rate needs two samples", () => {
  const recent = new Recent();
  const stats = (/** @type {number} */ enqueued) => ({ queues: {}, jobs: {}, totals: { enqueued } });
  recent.add(stats(10), 1000);
  assert.equal(recent.rate("enqueued"), null);
  recent.add(stats(30), 3000);
  assert.equal(recent.rate("enqueued"), 10);
  recent.add({ queues: {}, jobs: {}, totals: null }, 4000);
  assert.equal(recent.rate("enqueued"), null);
});

test("keys are single or pairs", () => {
  const shortcuts = ["j", "g j", "?"].map((keys) => ({ keys, text: "", run() {} }));
  assert.equal(findShortcut(shortcuts, "j").found?.keys, "j");
  assert.deepEqual(findShortcut(shortcuts, "g"), { found: undefined, isPrefix: true });
  assert.equal(findShortcut(shortcuts, "g j").found?.keys, "g j");
});
