/**
 * Texts for numbers, durations, instants and ages.
 *
 * A value that is not known is an en dash. `now` is in milliseconds: one update shows one instant.
 */

import { JsonNumber } from "./json.js";

/** The text for what is not known. */
export const UNKNOWN = "–";

const GROUPS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
/** @type {[number, string][]} */
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
/** @type {{[unit: string]: number}} */
const AGE_UNITS = { s: 1, m: 60, min: 60, h: 3600, d: 86400, w: 604800 };

/**
 * A whole number with separators; a number over 2^53 keeps all its digits.
 * @param {number | JsonNumber | null | undefined} value
 */
export function count(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value instanceof JsonNumber) return value.text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  return GROUPS.format(value);
}

/** A number, or its text, with its noun: 1 job, 2 jobs. @param {number | string} value @param {string} noun */
export function plural(value, noun) {
  const text = typeof value === "string" ? value : count(value);
  return `${text} ${noun}${text === "1" ? "" : "s"}`;
}

/** How many jobs match now, or at least how many. @param {{count: number, is_exact: boolean}} found @param {string} noun */
export function matchText(found, noun) {
  return `${found.is_exact ? "" : "At least "}${plural(found.count, noun)} match${found.count === 1 ? "es" : ""} now.`;
}

/** Jobs per second, minute or hour. The largest rate of a table chooses its unit. @param {Maybe<number>} value @param {number} [most] */
export function rate(value, most = value || 0) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0/s";
  if (value < 0.01) return `${trim(value * 3600, 1)}/h`;
  if (most < 1) return `${trim(value * 60, 1)}/min`;
  return value < 100 ? `${trim(value, value < 1 ? 2 : 1)}/s` : `${count(Math.round(value))}/s`;
}

/** A share as a percentage. @param {Maybe<number>} value */
export function share(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value > 0 && value < 0.001) return "< 0.1 %";
  return `${trim(value * 100, value < 0.1 ? 1 : 0)} %`;
}

/** A duration in its two largest units: 3 min 20 s. @param {Maybe<number>} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 0.001) return "< 1 ms";
  if (size < 0.9995) return `${Math.round(size * 1000)} ms`;
  if (size < 9.95) return `${trim(size, 1)} s`;
  let rest = Math.round(size);
  const parts = [];
  for (const [length, unit] of UNITS) {
    const number = Math.floor(rest / length);
    if (number) parts.push(`${number} ${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
    rest -= number * length;
  }
  return parts.join(" ");
}

/** How long until a queue is empty; without an end, `never` or `held` while jobs are ready. @param {number | null} seconds @param {boolean} hasReady @param {boolean} [isHeld] */
export function drainTime(seconds, hasReady, isHeld) {
  if (seconds === null) return hasReady ? (isHeld ? "held" : "never") : UNKNOWN;
  return hasReady ? duration(Math.ceil(seconds)) : UNKNOWN;
}

/** A duration that grows: only its first minute counts seconds, so that a list of ages is calm. @param {Maybe<number>} seconds */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  return seconds < 3570 ? `${Math.round(seconds / 60)} min` : duration(Math.round(seconds / 60) * 60);
}

/**
 * How far an instant is from now: 5 s ago, or in 3 min.
 * @param {Maybe<string>} instant @param {number} now
 */
export function relative(instant, now) {
  if (!instant) return UNKNOWN;
  const seconds = (Date.parse(instant) - now) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const text = age(Math.abs(seconds));
  return seconds < 0 ? `${text} ago` : `in ${text}`;
}

/** An instant by the clock of this machine, to the millisecond. @param {string | number | null | undefined} instant */
export function clock(instant) {
  if (!instant) return UNKNOWN;
  const date = new Date(instant);
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 23).replace("T", " ");
}

/**
 * The seconds between two instants, the second one perhaps in milliseconds; null if one is not known.
 * @param {string | null} from @param {string | number | null} to
 */
export function between(from, to) {
  if (!from || !to) return null;
  return Math.max(0, (new Date(to).getTime() - Date.parse(from)) / 1000);
}

/** The text of an error. @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Turn what a user typed into an instant: an age such as 15m, 1h or 7d, or a date and time. An empty text is null.
 * @param {string} text @param {number} now @returns {string | null}
 */
export function readInstant(text, now) {
  const typed = text.trim();
  if (!typed) return null;
  const age = /^(\d+(?:\.\d+)?)\s*(s|min|m|h|d|w)$/.exec(typed);
  const isDate = /^\d{4}-\d{2}-\d{2}([T ].*)?$/.test(typed);
  const at = age ? now - Number(age[1]) * AGE_UNITS[age[2]] * 1000 : isDate ? Date.parse(typed) : NaN;
  if (Number.isNaN(at)) {
    throw new Error(`"${typed}" is no time. Write an age such as 1h, or 2030-01-31T08:00Z.`);
  }
  return new Date(at).toISOString();
}

/** @param {number} value @param {number} digits */
function trim(value, digits) {
  return value.toFixed(digits).replace(/\.0+$/, "");
}
