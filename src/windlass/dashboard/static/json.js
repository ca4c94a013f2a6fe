/**
 * JSON that keeps its numbers: 2^63, 1.0 and 1e400 are shown and sent back as they came.
 *
 * 1. `parse` reads JSON. A number that JavaScript would change is a `JsonNumber` with its text: it
 *    is an object with a secret name while the parser of the browser reads it.
 * 2. `stringify` writes what `parse` has read.
 * 3. `checkJson` says what is wrong with a text that a user typed.
 */

/** A number whose text JavaScript would not give back. */
export class JsonNumber {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }
  valueOf() {
    return Number(this.text);
  }
}

const PARTS = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*/g;

/** Read JSON, and keep all numbers. @param {string} text @returns {any} */
export function parse(text) {
  JSON.parse(text); // an error tells about the text as it is
  const secret = `number ${Math.random()}`;
  const marked = text.replace(PARTS, (part) =>
    part[0] === '"' || String(Number(part)) === part ? part : `{"${secret}":"${part}"}`);
  return JSON.parse(marked, (_, value) =>
    typeof value === "object" && value !== null && secret in value ? new JsonNumber(value[secret]) : value);
}

/** Write JSON, with an indent if one is given. @param {any} value @returns {string} */
export function stringify(value, indent = 0, margin = "") {
  if (value instanceof JsonNumber) return value.text;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const inner = margin + " ".repeat(indent);
  const isList = Array.isArray(value);
  const parts = Object.keys(value).map((name) =>
    (isList ? "" : JSON.stringify(name) + (indent ? ": " : ":")) + stringify(value[name], indent, inner));
  const [open, close] = isList ? "[]" : "{}";
  if (!parts.length || !indent) return open + parts.join(",") + close;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${margin}${close}`;
}

/**
 * Say what is wrong with a text of JSON, or null; `kind` is what it must be.
 * @param {string} text @param {"list" | "object"} kind @returns {string | null}
 */
export function checkJson(text, kind) {
  try {
    const value = JSON.parse(text);
    const found = Array.isArray(value) ? "list" : value && typeof value;
    return found === kind ? null : `must be a JSON ${kind}`;
  } catch (error) {
    return `is not valid JSON: ${/** @type {Error} */ (error).message}`;
  }
}
