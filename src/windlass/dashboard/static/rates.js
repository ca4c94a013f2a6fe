/**
 * Rates of the last seconds, from the counters in the stream of events.
 */

const WINDOW_MS = 10_000;

export class Recent {
  constructor() {
    /** @type {{at: number, totals: Numbers | null}[]} */
    this.samples = [];
  }

  /** @param {Stats} stats @param {number} at */
  add(stats, at) {
    this.samples = this.samples.filter((sample) => at - sample.at <= WINDOW_MS);
    this.samples.push({ at, totals: stats.totals });
  }

  clear() {
    this.samples = [];
  }

  /**
   * How often these things happened per second; null until that is known.
   * @param {...string} names @returns {number | null}
   */
  rate(...names) {
    const first = this.samples[0];
    const last = this.samples[this.samples.length - 1];
    if (!first?.totals || !last?.totals || last.at - first.at < 900) return null;
    const sum = (/** @type {Numbers} */ totals) =>
      names.reduce((total, name) => total + (totals[name] || 0), 0);
    return Math.max(0, sum(last.totals) - sum(first.totals)) / ((last.at - first.at) / 1000);
  }
}
