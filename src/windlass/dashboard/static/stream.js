/**
 * Live counts: the stream of events of the server.
 *
 * 1. `EventParser` takes a stream of server-sent events apart.
 * 2. `readStream` feeds it with the body of an answer. A stream without a byte for 40 s is dead,
 *    because the server sends a comment every 15 s.
 * 3. `LiveStats` keeps one stream open while the page is visible. It connects again after a lost
 *    connection, with a growing delay. While a stream brings nothing, because a proxy holds it back
 *    or does not let it through, it asks for the counts instead, one request after the other.
 */

const DEAD_MS = 40_000;
const FIRST_DELAY_MS = 1000;
const LAST_DELAY_MS = 5000;
/** Without an event for this long after the start of a stream, the counts are asked for. */
const HELD_MS = 4000;
const POLL_MS = 1500;
/** Streams that failed in a row, after which the counts are asked for. */
const MOST_FAILURES = 2;

export class EventParser {
  /** @param {(name: string, data: any) => void} onEvent */
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.name = "message";
    /** @type {string[]} */
    this.data = [];
  }

  /** @param {string} text */
  push(text) {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() || "";
    for (const line of lines) this.line(line.replace(/\r$/, ""));
  }

  /** @param {string} line */
  line(line) {
    if (line.startsWith("event:")) this.name = line.slice(6).trim();
    else if (line.startsWith("data:")) this.data.push(line.slice(5).replace(/^ /, ""));
    else if (line === "") {
      const [name, data] = [this.name, this.data];
      this.name = "message";
      this.data = [];
      if (data.length) this.onEvent(name, JSON.parse(data.join("\n")));
    }
  }
}

/** @param {ReadableStream<Uint8Array>} body @param {(name: string, data: any) => void} onEvent */
export async function readStream(body, onEvent) {
  const parser = new EventParser(onEvent);
  const decoder = new TextDecoder();
  const reader = body.getReader();
  for (;;) {
    const dead = setTimeout(() => reader.cancel().catch(() => {}), DEAD_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(dead));
    if (done) return;
    parser.push(decoder.decode(value, { stream: true }));
  }
}

/**
 * The delay before the next try: it doubles, with a random part so that browsers do not come back at once.
 * @param {number} failures @param {number} chance from 0 to 1
 */
export function delayAfter(failures, chance) {
  const whole = Math.min(LAST_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.max(0, failures - 1));
  return whole / 2 + (whole / 2) * chance;
}

export class LiveStats {
  /** @param {Api} api @param {(stats: any) => void} onStats @param {(problem: any) => void} onProblem */
  constructor(api, onStats, onProblem) {
    this.api = api;
    this.onStats = onStats;
    this.onProblem = onProblem;
    this.heldMs = HELD_MS;
    this.failures = 0;
    /** @type {AbortController | null} */
    this.open = null;
    /** @type {AbortController | null} */
    this.polling = null;
    /** @type {Timer} */ this.timer = undefined;
    /** @type {Timer} */ this.held = undefined;
  }

  /** Connect while `isVisible`, and close the stream otherwise. @param {boolean} isVisible */
  show(isVisible) {
    if (isVisible && !this.open) this.connect();
    if (!isVisible) this.close();
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.held);
    this.stopPolling();
    this.open?.abort();
    this.open = null;
  }

  async connect() {
    const control = new AbortController();
    this.open = control;
    this.held = setTimeout(() => this.poll(), this.heldMs);
    try {
      await this.api.events(control.signal, (name, data) => this.take(name, data));
    } catch (error) {
      if (!control.signal.aborted && !this.polling) this.onProblem(error);
    }
    if (control.signal.aborted) return;
    clearTimeout(this.held);
    this.failures += 1;
    if (this.failures >= MOST_FAILURES) this.poll();
    this.timer = setTimeout(() => this.connect(), delayAfter(this.failures, Math.random()));
  }

  /** @param {string} name @param {any} data */
  take(name, data) {
    clearTimeout(this.held);
    this.stopPolling();
    if (name === "stats") {
      this.failures = 0;
      this.onStats(data);
    } else if (name === "problem") {
      this.onProblem(data);
    }
  }

  /** Ask for the counts until the stream brings something. */
  async poll() {
    if (this.polling) return;
    const { signal } = (this.polling = new AbortController());
    while (!signal.aborted) {
      try {
        const stats = await this.api.get(["stats"], {}, signal);
        if (!signal.aborted) this.onStats(stats);
      } catch (error) {
        if (!signal.aborted) this.onProblem(error);
      }
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
  }

  stopPolling() {
    this.polling?.abort();
    this.polling = null;
  }
}
