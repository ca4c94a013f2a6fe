/**
 * Charts as SVG, drawn here: lines over time, with a scale, a legend and a readout.
 *
 * 1. `niceTop` and `niceSeconds` choose round numbers for the axes, with short texts.
 * 2. `linePath` draws a line with gaps where nothing is known. `sparkline` is a line alone.
 * 3. `chart` puts them together. It tells the values under the pointer, or the latest. The arrow
 *    keys move the point, and a table has all values.
 */

import { h } from "./dom.js";
import { clock, count, duration } from "./format.js";

const WIDTH = 420;
const HEIGHT = 170;
const LEFT = 42;
const RIGHT = 8;
const BOTTOM = 22;
const TOP = 14;
const DAY_MS = 86_400_000;
const ROUND_SECONDS = [60, 120, 300, 600, 1200, 3600, 7200, 14_400, 28_800, 86_400];
/** @type {{[key: string]: (point: number, last: number) => number | null}} */
const STEPS = {
  ArrowLeft: (point) => Math.max(0, point - 1),
  ArrowRight: (point, last) => Math.min(last, point + 1),
  PageUp: (point) => Math.max(0, point - 10),
  PageDown: (point, last) => Math.min(last, point + 10),
  Home: () => 0,
  End: (_, last) => last,
  Escape: () => null,
};

/** The least round number at or above a value: 1, 2 or 5 times a power of ten. @param {number} value */
export function niceTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 2, 5, 10]) if (value <= step * power * 1.0000001) return step * power;
  return 10 * power;
}

/** The same for seconds: above a minute, whole minutes and hours. @param {number} value */
export function niceSeconds(value) {
  if (value <= 50) return niceTop(value);
  return ROUND_SECONDS.find((one) => value <= one) ?? niceTop(value / 86_400) * 86_400;
}

/** A number in at most four letters: 950, 2k, 1.5M. @param {number} value */
export function shortNumber(value) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([[1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (value >= size) return `${Number((value / size).toPrecision(3))}${letter}`;
  }
  return String(Number(value.toPrecision(2)));
}

/** A duration for an axis: 500ms, 20s, 8m. @param {number} seconds */
export function shortDuration(seconds) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[86_400, "d"], [3600, "h"], [60, "m"], [1, "s"]])) {
    if (seconds >= size) return `${Number((seconds / size).toPrecision(2))}${unit}`;
  }
  return seconds ? `${Number((seconds * 1000).toPrecision(2))}ms` : "0";
}

/** A number with a digit after the point while it is small. @param {number | null} value */
function fewDigits(value) {
  return value !== null && value < 10 && !Number.isInteger(value) ? value.toFixed(1) : count(value);
}

/** A label for an instant, by the length of the whole chart. @param {number} time @param {number} span */
export function timeLabel(time, span) {
  return span > 2 * DAY_MS ? clock(time).slice(5, 10) : clock(time).slice(11, 16);
}

/**
 * The path of a line. A null is a gap; a value alone between gaps is a short stroke.
 * @param {(number | null)[]} values @param {(index: number) => number} x @param {(value: number) => number} y
 */
export function linePath(values, x, y) {
  let path = "";
  let isOpen = false;
  values.forEach((value, index) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    const point = `${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
    path += isOpen ? `L${point}` : `M${point}h0.1`;
    isOpen = true;
  });
  return path;
}

/** A small line without axes, next to its number. @param {(number | null)[]} values @param {string} tone */
export function sparkline(values, tone) {
  const top = Math.max(...values.map((value) => value ?? 0), 0) || 1;
  const last = Math.max(1, values.length - 1);
  return h("svg", { class: `spark ${tone}`, viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" },
    h("path", { class: "line", d: linePath(values, (index) => (100 * index) / last, (value) => 22 - (20 * value) / top) }));
}

/** @param {ChartOptions} options */
export function chart({ title, unit, times, series, at, onPoint, isOpen, onOpen }) {
  const text = unit === "s" ? duration : fewDigits;
  const last = times.length - 1;
  const point = at === null ? last : Math.min(at, last);
  const span = times.length ? times[last] - times[0] : 0;
  const time = times.length ? clock(times[point]).slice(span > DAY_MS ? 5 : 11, 16) : "";
  const spoken = `${time}: ${series.map(([name, , values]) => `${name} ${text(values[point])}`).join(", ")}`;
  const onMove = (/** @type {PointerEvent} */ event) => {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const inside = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    onPoint(Math.max(0, Math.min(last, Math.round(inside * last))));
  };
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    const step = STEPS[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    onPoint(step(point, last));
  };
  return h("figure", { key: title, class: "chart" },
    h("figcaption", null, h("span", { class: "strong" }, title), h("span", { class: "readout" }, time)),
    h("ul", { class: "legend" }, series.map(([name, tone, values]) =>
      h("li", { key: name }, h("span", { class: `dot ${tone}` }), `${name} `, h("b", null, text(values[point]))))),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "slider", tabindex: 0, "aria-label": `${title}, arrow keys read values`,
      "aria-valuemin": 0, "aria-valuemax": Math.max(0, last), "aria-valuenow": Math.max(0, point), "aria-valuetext": spoken,
      on: { pointermove: onMove, pointerleave: () => onPoint(null), keydown: onKey, blur: () => onPoint(null) } },
      drawing(times, series, at === null ? null : point, unit === "s" ? [niceSeconds, shortDuration] : [niceTop, shortNumber])),
    h("details", { open: isOpen, on: { toggle: (/** @type {any} */ event) => onOpen(event.currentTarget.open) } },
      h("summary", null, "As a table"), isOpen ? valueTable(title, times, series, text) : null));
}

/**
 * The axes and the lines.
 * @param {number[]} times @param {Series[]} series @param {number | null} point
 * @param {[top: (value: number) => number, text: (value: number) => string]} scale
 */
function drawing(times, series, point, [nice, text]) {
  const top = nice(Math.max(0, ...series.flatMap(([, , values]) => values.map((value) => value ?? 0))));
  const last = Math.max(1, times.length - 1);
  const span = times.length ? times[times.length - 1] - times[0] : 0;
  const x = (/** @type {number} */ index) => LEFT + ((WIDTH - LEFT - RIGHT) * index) / last;
  const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const every = Math.max(1, Math.ceil(times.length / 5));
  return [
    [0, 0.5, 1].map((share) => [
      h("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * share), y2: y(top * share) }),
      h("text", { class: "tick", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, text(top * share)),
    ]),
    times.map((time, index) => index % every === 0
      ? h("text", { class: "tick", x: x(index), y: HEIGHT - 4, "text-anchor": index ? "middle" : "start" }, timeLabel(time, span))
      : null),
    point === null ? null : h("line", { key: "cursor", class: "cursor", x1: x(point), x2: x(point), y1: TOP, y2: HEIGHT - BOTTOM }),
    series.map(([name, tone, values]) => h("path", { key: name, class: `line ${tone}`, d: linePath(values, x, y) })),
  ];
}

/** All values, the latest first. @param {string} title @param {number[]} times @param {Series[]} series @param {(value: number | null) => string} text */
function valueTable(title, times, series, text) {
  return h("div", { class: "table values", role: "region", tabindex: 0, "aria-label": `Values of ${title}` }, h("table", null,
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"),
      series.map(([name]) => h("th", { key: name, scope: "col", class: "number" }, name)))),
    h("tbody", null, times.map((time, index) => h("tr", { key: String(time) },
      h("th", { scope: "row" }, clock(time).slice(5, 16)),
      series.map(([name, , values]) => h("td", { key: name, class: "number" }, text(values[index]))))).reverse())));
}
