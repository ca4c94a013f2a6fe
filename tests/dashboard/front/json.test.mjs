/** JSON keeps its numbers, and typed texts are checked. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkJson, JsonNumber, parse, stringify } from "../../../src/windlass/dashboard/static/json.js";

test("numbers that JavaScript would change keep their text", () => {
  for (const text of ["9223372036854775808", "-9223372036854775809", "1.0", "1e400", "-0", "0.1000000000000000055511151231257827"]) {
    const value = parse(text);
    assert.ok(value instanceof JsonNumber, text);
    assert.equal(stringify(value), text);
  }
  assert.equal(parse("9007199254740991"), 9007199254740991);
});

test("what is read is written again", () => {
  const text = '{"a":[1,2.5,{"b":null}],"__proto__":{"x":true},"c":"\\u0000 \\"<script>\\" \u2028","big":[9223372036854775808]}';
  assert.deepEqual(JSON.parse(stringify(parse(text)).replace("9223372036854775808", "1")), JSON.parse(text.replace("9223372036854775808", "1")));
  assert.ok(stringify(parse(text)).includes("[9223372036854775808]"));
  assert.equal(Object.getPrototypeOf(parse(text)), Object.prototype);
});

test("an indent makes lines", () => {
  assert.equal(stringify(parse('{"a":[1,{}],"b":[]}'), 2), '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}');
});

test("the same texts are refused as by JSON.parse", () => {
  for (const text of ["", "[1,]", "{a:1}", "[1 2]", "01", "1.", "+1", "'a'", '"\n"', '"\\x"', "nul", "[", '{"a"}', "1 1", "NaN"]) {
    assert.throws(() => JSON.parse(text));
    assert.throws(() => parse(text), SyntaxError, text);
  }
});

test("a megabyte is read in a moment", () => {
  const text = JSON.stringify(Array.from({ length: 20000 }, (_, index) => ({ index, name: "x".repeat(30) })));
  const began = performance.now();
  assert.equal(parse(text).length, 20000);
  assert.ok(performance.now() - began < 2000);
});

test("the check of a typed text tells what is wrong", () => {
  assert.equal(checkJson("[1, 2]", "list"), null);
  assert.equal(checkJson('{"a": 9223372036854775808}', "object"), null);
  assert.match(checkJson("{}", "list") ?? "", /must be a JSON list/);
  assert.match(checkJson("[1]", "object") ?? "", /must be a JSON object/);
  assert.match(checkJson("1.0", "object") ?? "", /must be a JSON object/);
  assert.match(checkJson("null", "object") ?? "", /must be a JSON object/);
  assert.match(checkJson("[1, two]", "list") ?? "", /is not valid JSON: .*t/);
});
