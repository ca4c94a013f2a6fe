/** Commands to copy: a real shell takes them apart as they were meant. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { controlOperation, editJob, purgeQueue } from "../../../src/windlass/dashboard/static/actions.js";
import { changeDead } from "../../../src/windlass/dashboard/static/bulk.js";
import { curlCommand, quote, windlassCommand } from "../../../src/windlass/dashboard/static/commands.js";
import { parse } from "../../../src/windlass/dashboard/static/json.js";

/** @param {string} command the words that a shell makes of it */
function words(command) {
  const script = `set -- ${command}; for word; do printf '%s\\0' "$word"; done`;
  return execFileSync("sh", ["-c", script], { encoding: "utf8" }).split("\0").slice(0, -1);
}

const NASTY = ["mail", "it's", "a b", "$HOME", "`id`", "$(id)", 'say "x"', "back\\slash", "new\nline", "*", "~", "-x", "ü", ""];

test("a shell reads each quoted word as it was", () => {
  assert.deepEqual(words(NASTY.map(quote).join(" ")), NASTY);
  assert.deepEqual(words(windlassCommand(["queue", "purge", "it's $HOME"])), ["windlass", "queue", "purge", "it's $HOME"]);
});

test("curl gets the method, the body and the address", () => {
  const request = { base: "https://jobs.example.com/x/", method: "POST", path: "v1/dead/retry", body: '{"task":"it\'s"}', needsToken: true };
  assert.deepEqual(words(`${curlCommand(request)}`.replace("$WINDLASS_TOKEN", "T")), ["curl", "-X", "POST", "-H", "Authorization: Bearer T",
    "-H", "Content-Type: application/json", "-d", '{"task":"it\'s"}', "https://jobs.example.com/x/v1/dead/retry"]);
  assert.ok(!curlCommand({ ...request, needsToken: false }).includes("Authorization"));
});

test("an edit sends only what was changed, with the numbers as they are typed", () => {
  const job = parse('{"id": "01m7gk6tx900smjc57av0rnpgb", "state": "dead", "args": [1.0, "[redacted]"], "kwargs": {"big": 9223372036854775808}}');
  const action = editJob(job);
  const [args, kwargs] = action.fields ?? [];
  const values = { args: args.value, kwargs: kwargs.value.replace("9223372036854775808", "9223372036854775809") };
  assert.equal(action.request(values).body, '{"kwargs": {\n  "big": 9223372036854775809\n}}');
  assert.deepEqual(action.command(values)?.slice(3), ["--kwargs", '{\n  "big": 9223372036854775809\n}']);
  assert.equal(args.check(values.args), null);
  assert.match(args.check(values.args.replace("1.0", "2.0")) ?? "", /redacted/);
});

test("a bulk action has the filter of its group, its rate and its rule", () => {
  const group = { task: "shop.charge", fingerprint: "3f1c07a2b9d4" };
  const retry = changeDead("retry", group);
  const filter = '"filter":{"task":"shop.charge","fingerprint":"3f1c07a2b9d4"}';
  assert.equal(retry.request({ rate: "", stop_after: "10" }).body, `{${filter},"stop_after":10}`);
  assert.equal(retry.request({ rate: "5", stop_after: "0" }).body, `{${filter},"rate":5,"stop_after":0}`);
  assert.deepEqual(retry.command({ rate: "5", stop_after: "20" }), ["dead", "retry", "--task", "shop.charge",
    "--fingerprint", "3f1c07a2b9d4", "--yes", "--rate", "5/s", "--stop-after", "20"]);
  const [, rule] = retry.fields ?? [];
  assert.deepEqual(["10", "0", "101", "x", ""].map((text) => rule.check(text) === null), [true, true, false, false, false]);
  assert.equal(changeDead("discard", null).request({}).body, '{"filter":{"everything":true}}');
});

test("an operation is paused, resumed and stopped by its id", () => {
  assert.equal(controlOperation("7z", "pause").request({}).path, "v1/operations/7z/pause");
  assert.deepEqual(controlOperation("7z", "resume").command({}), ["operation", "resume", "7z"]);
  assert.equal(controlOperation("7z", "stop").isDanger, true);
});

test("what destroys jobs must be typed", () => {
  assert.equal(purgeQueue("mail", 3).typed, "mail");
  assert.equal(changeDead("discard", null).typed, "discard");
  assert.equal(changeDead("retry", null).typed, undefined);
});

test("names are quoted in paths", () => {
  assert.equal(purgeQueue("a/b?c", 3).request({}).path, "v1/queues/a%2Fb%3Fc/purge");
});

test("a large body is the standard input of curl, and too long for an argument", () => {
  const body = `{"args": ["${"x".repeat(1 << 20)}"]}`;
  const curl = curlCommand({ base: "http://x/", method: "PATCH", path: "v1/jobs/1", body, needsToken: false });
  assert.match(curl, /^curl -X PATCH -H 'Content-Type: application\/json' --data-binary @- http:\/\/x\/v1\/jobs\/1 <<'JSON'\n/);
  assert.ok(curl.endsWith(`\n${body}\nJSON`));
  assert.equal(windlassCommand(["job", "edit", "1", "--args", body]), null);
});
