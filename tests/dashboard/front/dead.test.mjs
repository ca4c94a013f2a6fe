/** The page of dead jobs: an action changes the jobs that the page shows, and no others; which groups are new in a release. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { deadPage, isNewIn } from "../../../src/windlass/dashboard/static/pages/dead.js";

const AT = "2030-01-31T12:00:00Z";
const GROUP = { fingerprint: "3f1c", task: "shop.charge", count: 2, first_at: AT, last_at: AT, example: "7z", reason: null, error: null,
  function: null, queues: {}, releases: [{ release: "v2", count: 2, first_at: AT, last_at: AT }], is_new: true };

/** The action of each button of the page, by its name. @param {{[name: string]: string}} query */
function actionsOf(query) {
  /** @type {{[name: string]: any}} */
  const actions = {};
  /** @type {any} */
  const c = { place: { parts: ["dead"], query }, now: Date.parse(AT), local: {}, me: { may_change: true, role: "operator" },
    tell: () => {}, draw: () => {}, act: (/** @type {any} */ action) => { actions[action.title] = action; } };
  const found = { groups: [GROUP], is_exact: true, releases: [{ release: "v2", began_at: AT }, { release: "v1", began_at: AT }] };
  click(deadPage.render(found, c));
  return actions;
}

/** Click on each button. @param {any} tree */
function click(tree) {
  if (Array.isArray(tree)) tree.forEach(click);
  if (!tree || typeof tree !== "object" || Array.isArray(tree)) return;
  if (tree.tag === "button") tree.props.on.click();
  tree.children.forEach(click);
}

test("a group of one release is changed in this release only", () => {
  const discard = actionsOf({ release: "v2" })["Discard dead jobs of shop.charge in release v2"];
  assert.equal(discard.request({}).body, '{"filter":{"task":"shop.charge","fingerprint":"3f1c","release":"v2"}}');
  assert.deepEqual(discard.command({}), ["dead", "discard", "--task", "shop.charge", "--fingerprint", "3f1c", "--release", "v2", "--yes"]);
  const whole = actionsOf({})["Discard dead jobs of shop.charge"];
  assert.equal(whole.request({}).body, '{"filter":{"task":"shop.charge","fingerprint":"3f1c"}}');
});

test("a page of some groups has no action on all dead jobs", () => {
  assert.ok("Discard all dead jobs" in actionsOf({ since: "v1" }));
  for (const query of [{ task: "shop.charge" }, { release: "v2" }, { since: "v1", only: "new" }]) {
    assert.ok(!("Discard all dead jobs" in actionsOf(query)), JSON.stringify(query));
  }
});

const RELEASES = ["v3", "v2", "v1"].map((release) => ({ release }));
/** @param {...(string | null)} names */
const group = (...names) => ({ releases: names.map((release) => ({ release })) });

test("a group is new in a release if no job died before it", () => {
  assert.equal(isNewIn(group("v3"), "v3", RELEASES), true);
  assert.equal(isNewIn(group("v3", "v2"), "v3", RELEASES), false);
  assert.equal(isNewIn(group("v3", "v2"), "v2", RELEASES), true);
  assert.equal(isNewIn(group("v1"), "v2", RELEASES), false);
});

test("a group with jobs of no release or of an unknown one is not new", () => {
  assert.equal(isNewIn(group("v3", null), "v3", RELEASES), false);
  assert.equal(isNewIn(group("v3", "other"), "v3", RELEASES), false);
});
