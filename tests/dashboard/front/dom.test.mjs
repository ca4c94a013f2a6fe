/** Rendering: text stays text, rows keep their elements, fields keep what was typed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { h, render } from "../../../src/windlass/dashboard/static/dom.js";
import { fakeDocument } from "./document.mjs";

globalThis.document = fakeDocument;
const root = () => fakeDocument.createElement("main");

test("markup in a text is a text", () => {
  const main = root();
  render(main, h("p", { title: "<b>" }, "<img src=x onerror=alert(1)>", 5, null, false, ["a", ["b"]]));
  const [paragraph] = main.children;
  assert.ok(paragraph.childNodes.every((node) => node.nodeType === 3));
  assert.equal(paragraph.textContent, "<img src=x onerror=alert(1)>5ab");
});

test("attributes and links that could run a script are refused", () => {
  for (const name of ["onclick", "ONLOAD", "srcdoc", "style", "innerHTML", "src", "formaction"]) {
    assert.throws(() => h("a", { [name]: "x" }), /refused/, name);
  }
  for (const href of ["javascript:alert(1)", " javascript:alert(1)", "data:text/html,x", "//evil.example"]) {
    assert.throws(() => h("a", { href }), /a link starts with/, href);
  }
});

test("a row keeps its element, and does not move when others come or go", () => {
  const main = root();
  const rows = (/** @type {string[]} */ keys) => render(main, keys.map((key) => h("tr", { key }, key)));
  const elements = () => Object.fromEntries(main.children.map((row) => [row.textContent, row]));
  rows(["a", "b", "c"]);
  const before = elements();
  rows(["new", "b", "c", "d"]);
  const after = elements();
  assert.deepEqual(Object.keys(after), ["new", "b", "c", "d"]);
  assert.ok(after.b === before.b && after.c === before.c);
  assert.deepEqual([after.b.moves, after.c.moves], [1, 1]);
  rows(["c", "b"]);
  assert.deepEqual(Object.keys(elements()), ["c", "b"]);
  assert.ok(elements().b === before.b);
});

test("an update leaves a typed value alone, until its description changes", () => {
  const main = root();
  const draw = (/** @type {string} */ value, /** @type {string} */ note) => render(main, h("input", { value }), h("p", null, note));
  draw("", "1");
  const [field] = main.children;
  field.value = "typed";
  draw("", "2");
  assert.equal(field.value, "typed");
  draw("other", "3");
  assert.equal(field.value, "other");
});

test("an event goes to the latest handler, once", () => {
  const main = root();
  const calls = [];
  for (const name of ["old", "new"]) render(main, h("button", { on: { click: () => calls.push(name) } }));
  main.children[0].dispatch("click");
  assert.deepEqual(calls, ["new"]);
  render(main, h("button", null));
  main.children[0].dispatch("click");
  assert.deepEqual(calls, ["new"]);
});

test("attributes go when they are not described any more", () => {
  const main = root();
  render(main, h("p", { class: "a", hidden: true }));
  render(main, h("p", { class: null }));
  assert.deepEqual(main.children[0].attributes, {});
});

test("what is inside of an svg is svg", () => {
  const main = root();
  render(main, h("svg", null, h("path", { d: "M0 0" })), h("p", null));
  const [svg, paragraph] = main.children;
  assert.equal(svg.children[0].namespaceURI, "http://www.w3.org/2000/svg");
  assert.equal(paragraph.tagName, "P");
});
