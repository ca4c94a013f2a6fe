/** Numbers, durations and instants are texts that a reader understands. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { age, between, clock, count, drainTime, duration, matchText, plural, rate, readInstant, relative, share } from "../../../src/windlass/dashboard/static/format.js";
import { JsonNumber } from "../../../src/windlass/dashboard/static/json.js";

const NOW = Date.parse("2030-01-31T12:00:00Z");

test("counts have separators, also over 2^53", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(new JsonNumber("9223372036854775808")), "9,223,372,036,854,775,808");
  assert.equal(count(null), "–");
});

test("durations have at most two units", () => {
  const texts = [[0, "0 s"], [0.0004, "< 1 ms"], [0.012, "12 ms"], [0.9996, "1 s"], [1.25, "1.3 s"], [41.2, "41 s"], [59.7, "1 min"],
    [200, "3 min 20 s"], [3600, "1 h"], [3605, "1 h"], [7500, "2 h 5 min"], [273600, "3 d 4 h"], [null, "–"]];
  for (const [seconds, text] of texts) assert.equal(duration(/** @type {number} */ (seconds)), text);
});

test("rates have a unit that leaves digits", () => {
  assert.deepEqual([0, 0.002, 0.5, 12.34, 1234.5, null].map((value) => rate(value)), ["0/s", "7.2/h", "30/min", "12.3/s", "1,235/s", "–"]);
  assert.deepEqual([0, 0.002, 0.5, 12.34, null].map((value) => rate(value, 12.34)), ["0/s", "7.2/h", "0.50/s", "12.3/s", "–"]); // one unit in a table
});

test("a small share is not 0 %", () => {
  assert.deepEqual([0, 0.0001, 0.012, 0.5, 1, null].map(share), ["0 %", "< 0.1 %", "1.2 %", "50 %", "100 %", "–"]);
});

test("instants are relative to now", () => {
  assert.equal(relative("2030-01-31T11:59:55Z", NOW), "5 s ago");
  assert.equal(relative("2030-01-31T12:03:20Z", NOW), "in 3 min");
  assert.equal(relative("2030-01-31T10:40:00Z", NOW), "1 h 20 min ago");
  assert.equal(relative("2030-01-31T12:00:00.2Z", NOW), "now");
  assert.equal(relative(null, NOW), "–");
  assert.match(clock("2030-01-31T12:00:00.25Z"), /^2030-0[12]-\d\d \d\d:\d\d:00\.250$/);
  assert.equal(between("2030-01-31T11:59:00Z", NOW), 60);
  assert.equal(between(null, NOW), null);
});

test("a typed age or time is an instant", () => {
  assert.equal(readInstant("1h", NOW), "2030-01-31T11:00:00.000Z");
  assert.equal(readInstant(" 15m ", NOW), "2030-01-31T11:45:00.000Z");
  assert.equal(readInstant("2030-01-31T08:00+01:00", NOW), "2030-01-31T07:00:00.000Z");
  assert.equal(readInstant("", NOW), null);
  for (const text of ["soon", "1", "1 year", "2030-99-99"]) assert.throws(() => readInstant(text, NOW), /is no time/);
});

test("one is not many", () => {
  assert.deepEqual([plural(1, "job"), plural("1", "job"), plural(0, "job"), plural(1200, "job"), plural("1.5", "slot")],
    ["1 job", "1 job", "0 jobs", "1,200 jobs", "1.5 slots"]);
  assert.equal(matchText({ count: 1, is_exact: true }, "dead job"), "1 dead job matches now.");
  assert.equal(matchText({ count: 10000, is_exact: false }, "job"), "At least 10,000 jobs match now.");
});

test("a queue without an end never drains", () => {
  assert.deepEqual([drainTime(null, true), drainTime(null, false), drainTime(61.2, true), drainTime(0, false)], ["never", "–", "1 min 2 s", "–"]);
  assert.deepEqual([drainTime(null, true, true), drainTime(null, false, true), drainTime(5, true, true)], ["held", "–", "5 s"]);
});

test("an age counts seconds for a minute only", () => {
  assert.deepEqual([null, 0.2, 12.4, 61, 3599, 4830].map(age), ["–", "0 s", "12 s", "1 min", "1 h", "1 h 21 min"]);
});
