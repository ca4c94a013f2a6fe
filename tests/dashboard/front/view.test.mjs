/** Rows that keep their place while new ones wait. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { keepRows } from "../../../src/windlass/dashboard/static/view.js";

const LIST = { rows: "jobs", key: "id" };
const job = (/** @type {string} */ id, state = "ready") => ({ id, state });

test("rows stay in their order, with new cells, and new rows are counted", () => {
  const before = { jobs: [job("a"), job("b"), job("c")], cursor: "old" };
  const after = { jobs: [job("d"), job("c", "running"), job("a"), job("e")], cursor: "new" };
  assert.deepEqual(keepRows(before, after, LIST), {
    data: { jobs: [job("a"), job("b"), job("c", "running")], cursor: "new" },
    added: 2,
  });
});

test("a page without a list keeps all of its data", () => {
  const before = { groups: [1] };
  assert.deepEqual(keepRows(before, { groups: [2] }, undefined), { data: before, added: 0 });
});
