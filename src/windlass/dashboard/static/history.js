/**
 * What happened in a span of time, from `/v1/history`: lines for charts, and numbers of tasks.
 *
 * 1. `loadHistory` reads all pages, one after the other.
 * 2. `chartLines` adds up rows by minute or hour, and makes them numbers per minute. Times without a
 *    row are 0 for counts, and unknown for depths. A minute is shown when workers have reported it; the
 *    current hour counts by the minutes that it has.
 * 3. `taskRows` adds up rows by task. Quantiles cannot be added: the median is that of the medians,
 *    weighted by runs, and p99 is the largest one.
 */

/** @type {{[name: string]: Span}} */
export const SPANS = {
  "1h": { label: "1 hour", seconds: 3600, step: "minute", everyMs: 15_000 },
  "24h": { label: "24 hours", seconds: 86_400, step: "hour", everyMs: 60_000 },
  "30d": { label: "30 days", seconds: 2_592_000, step: "hour", everyMs: 300_000 },
};
const STEP_MS = { minute: 60_000, hour: 3_600_000 };
/** An hour that began later than this is not shown: its few minutes say little. */
const LEAST_MS = 5 * 60_000;
/** Workers report every 10 s: until then a minute looks empty. */
const LATE_MS = 12_000;
const MOST_PAGES = 10;

/**
 * @param {Api} api @param {Span} span @param {string | undefined} queue @param {AbortSignal} signal
 * @returns {Promise<JobHistory>}
 */
export async function loadHistory(api, span, queue, signal) {
  /** @type {JobHistory} */
  const history = { rows: [], depths: [], end: "", isCut: false };
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const query = { since_s: span.seconds, step: span.step, queue, cursor, limit: 5000 };
    const answer = await api.get(["history"], query, signal);
    history.rows.push(...answer.rows);
    history.depths.push(...answer.depths);
    history.end = answer.end;
    cursor = answer.cursor;
    if (!cursor) return history;
  }
  return { ...history, isCut: true };
}

/** @param {JobHistory} history @param {Span} span */
export function chartLines(history, span) {
  const step = STEP_MS[span.step];
  const now = Date.parse(history.end);
  const isShort = span.step === "minute" || now % step < LEAST_MS;
  const last = Math.floor((now - (step < LEAST_MS ? LATE_MS : 0)) / step) - (isShort ? 1 : 0);
  const size = Math.round((span.seconds * 1000) / step);
  const first = last - size + 1;
  const times = Array.from({ length: size }, (_, index) => (first + index) * step);
  const place = (/** @type {string} */ at) => Date.parse(at) / step - first;
  return { times, ...flowLines(history.rows, size, place, (index) => Math.min(step, now - times[index]) / 60_000), ...depthLines(history.depths, size, place) };
}

/**
 * Jobs per minute, and the largest quantiles.
 * @param {HistoryRow[]} rows @param {number} size @param {(at: string) => number} place @param {(index: number) => number} minutes
 */
function flowLines(rows, size, place, minutes) {
  const zeros = () => /** @type {number[]} */ (new Array(size).fill(0));
  const unknown = () => /** @type {(number | null)[]} */ (new Array(size).fill(null));
  const [enqueued, succeeded, failed] = [zeros(), zeros(), zeros()];
  const [wait, run] = [unknown(), unknown()];
  for (const row of rows) {
    const index = place(row.at);
    if (index < 0 || index >= size) continue;
    enqueued[index] += row.enqueued;
    succeeded[index] += row.outcomes.succeeded || 0;
    failed[index] += failures(row);
    wait[index] = largest([wait[index], row.wait_p99_s]);
    run[index] = largest([run[index], row.run_p99_s]);
  }
  for (const line of [enqueued, succeeded, failed]) line.forEach((value, index) => { line[index] = value / minutes(index); });
  return { enqueued, succeeded, failed, wait, run };
}

/** @param {Depth[]} depths @param {number} size @param {(at: string) => number} place */
function depthLines(depths, size, place) {
  const unknown = () => /** @type {(number | null)[]} */ (new Array(size).fill(null));
  const [ready, waiting, running] = [unknown(), unknown(), unknown()];
  for (const depth of depths) {
    const index = place(depth.at);
    if (index < 0 || index >= size) continue;
    ready[index] = (ready[index] || 0) + depth.ready;
    waiting[index] = (waiting[index] || 0) + depth.scheduled;
    running[index] = (running[index] || 0) + depth.running;
  }
  return { ready, waiting, running };
}

/** @param {HistoryRow} row */
function failures(row) {
  return (row.outcomes.retried || 0) + (row.outcomes.dead || 0);
}

/** @param {HistoryRow[]} rows @returns {TaskSummary[]} the busiest task first */
export function taskRows(rows) {
  /** @type {Map<string, HistoryRow[]>} */
  const byTask = new Map();
  for (const row of rows) {
    const own = byTask.get(row.task);
    if (own) own.push(row);
    else byTask.set(row.task, [row]);
  }
  return Array.from(byTask, ([task, own]) => ({ task, ...summary(own) }))
    .filter((one) => one.runs > 0)
    .sort((a, b) => b.runs - a.runs || (a.task < b.task ? -1 : 1));
}

/** The runs, failures and times of some rows together. @param {HistoryRow[]} rows */
export function summary(rows) {
  let [succeeded, failed] = [0, 0];
  /** @type {[number, number][]} */
  const medians = [];
  /** @type {[number, number][]} */
  const waits = [];
  for (const row of rows) {
    const own = (row.outcomes.succeeded || 0) + failures(row);
    succeeded += row.outcomes.succeeded || 0;
    failed += failures(row);
    if (row.run_p50_s !== null) medians.push([row.run_p50_s, own]);
    if (row.wait_p50_s !== null) waits.push([row.wait_p50_s, own]);
  }
  const runs = succeeded + failed;
  return {
    runs,
    failed,
    share: runs ? failed / runs : null,
    p50: weightedMedian(medians),
    p99: largest(rows.map((row) => row.run_p99_s)),
    wait50: weightedMedian(waits),
    wait: largest(rows.map((row) => row.wait_p99_s)),
  };
}

/** @param {(number | null)[]} values */
export function largest(values) {
  return values.reduce((most, value) => (value !== null && (most === null || value > most) ? value : most), null);
}

/** The value at which half of all weight is reached. @param {[number, number][]} pairs value and weight */
export function weightedMedian(pairs) {
  const sorted = [...pairs].sort((a, b) => a[0] - b[0]);
  const half = sorted.reduce((sum, [, weight]) => sum + weight, 0) / 2;
  let seen = 0;
  for (const [value, weight] of sorted) {
    seen += weight;
    if (seen >= half) return value;
  }
  return null;
}
