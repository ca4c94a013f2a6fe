/** Addresses hold every filter, and any name. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { link, readHash, searchLink } from "../../../src/windlass/dashboard/static/router.js";

test("an address is read as it was written", () => {
  for (const name of ["mail", "a/b", "50%", "ü&=?#", "<script>"]) {
    const place = readHash(link(["queues", name], { queue: name, state: "", task: null }));
    assert.deepEqual(place, { parts: ["queues", name], query: { queue: name } });
  }
  assert.deepEqual(readHash(""), { parts: [], query: {} });
  assert.deepEqual(readHash("#/jobs/%E0%A4%A"), { parts: ["jobs", "%E0%A4%A"], query: {} });
});

test("a search finds a job by its id, and jobs by their task", () => {
  assert.equal(searchLink(" 01M7GK6TX900SMJC57AV0RNPGB "), "#/jobs/01m7gk6tx900smjc57av0rnpgb");
  assert.equal(searchLink("shop.charge"), "#/jobs?task=shop.charge");
});
