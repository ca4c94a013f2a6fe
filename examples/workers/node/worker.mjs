// A worker for windlass on node 18 or newer, without packages.
//
//     export WINDLASS_API=http://127.0.0.1:8155     # where `windlass serve` listens
//     export WINDLASS_TOKEN=wl_...                  # if the API needs an access token
//     export WINDLASS_QUEUES=node                   # the queues, with commas between them; else all
//     export WINDLASS_SLOTS=4                       # jobs at a time
//     node worker.mjs tasks.mjs                     # a module that exports tasks by name
//
// 1. `Api` sends requests, and repeats them while the server or its engine is away.
// 2. `Worker` claims jobs by long poll and runs them, several at a time. It sends heartbeats, reports
//    results in batches, and obeys what the server says about cancelled and lost jobs.
// 3. SIGTERM stops claiming and lets running jobs end. Then the session ends, which gives the jobs
//    back that are left.
//
// A task is a function of the job and its arguments: `job.signal` is aborted when the job is
// cancelled, lost or out of time, and `job.progress(0.5, "half way")` reports progress. An error is a
// failed attempt; one with the property `rejected` makes a dead letter now. Heartbeats come from the
// event loop: a task that computes for long without a pause belongs into a worker thread.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

// ------------------------------------------------------------------------------------------ requests

/** An answer with a problem document. `kind` is the last part of its type, such as "session-gone". */
class Problem extends Error {
  constructor(status, body) {
    super(`${status} ${body.detail ?? body.title ?? "without a problem document"}`);
    this.status = status;
    this.kind = String(body.type ?? "").split(":").pop();
  }

  /** Whether the same request may succeed later. */
  get isPassing() {
    return this.status === 429 || this.status >= 500;
  }
}

export class Api {
  constructor(urls, token) {
    this.urls = urls; // instances of the same API: any may answer
    this.headers = { "content-type": "application/json" };
    if (token) this.headers.authorization = `Bearer ${token}`;
  }

  /** Send one request. */
  async send(method, path, body, { signal, timeoutMs = 15_000 } = {}) {
    const end = new AbortController();
    const relay = () => end.abort(signal.reason);
    signal?.addEventListener("abort", relay);
    const timer = setTimeout(() => end.abort(new Error("no answer in time")), timeoutMs);
    try {
      const answer = await fetch(this.urls[0] + path, {
        method,
        headers: this.headers,
        body: JSON.stringify(body),
        signal: end.signal,
      });
      const text = await answer.text();
      if (!answer.ok) throw new Problem(answer.status, parse(text));
      return text ? JSON.parse(text) : null;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", relay);
    }
  }

  /** Send a request until its answer is known: the server, or its engine, may be away. Each repeat has
   * the same body, which is harmless. */
  async insist(method, path, body, options = {}) {
    for (let pauseMs = 200; ; pauseMs = Math.min(2 * pauseMs, 5_000)) {
      try {
        return await this.send(method, path, body, options);
      } catch (error) {
        if (options.signal?.aborted) throw options.signal.reason;
        if (error instanceof Problem && !error.isPassing) throw error;
        log(`no answer to ${path}, trying again: ${error.cause?.message ?? error.message}`);
        this.urls.push(this.urls.shift()); // another instance
      }
      await sleep(pauseMs * (0.5 + Math.random() / 2), undefined, { signal: options.signal });
    }
  }
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function log(line) {
  console.error(`worker: ${line}`);
}

// ---------------------------------------------------------------------------------------- the worker

/** A job that runs here. */
class Running {
  constructor(claim) {
    this.claim = claim;
    this.abort = new AbortController();
    this.why = ""; // why it was aborted: "cancelled", "lost" or "timed out"
  }

  stop(why) {
    this.why ||= why;
    this.abort.abort(new Error(`the job was ${why}`));
  }
}

export class Worker {
  constructor({ api, name, tasks, queues = [], labels = [], slots = 4, version = "" }) {
    this.api = api;
    this.tasks = tasks;
    this.hello = { name, tasks: Object.keys(tasks), queues, labels, slots, version };
    this.slots = slots;
    this.running = new Map(); // by id
    this.reports = []; // reports to send
    this.sending = []; // reports that the server has not confirmed yet
    this.stopping = new AbortController();
    this.change = new EventTarget();
  }

  /** Work until `stop` is called. */
  async run() {
    try {
      await this.#begin();
    } catch (error) {
      if (this.stopping.signal.aborted) return;
      throw error;
    }
    const done = new AbortController();
    const beating = this.#beat(done.signal);
    const reporting = this.#report(done.signal);
    try {
      await this.#claim();
      while (this.running.size + this.reports.length + this.sending.length) await this.#changed();
    } finally {
      done.abort();
      this.#tell();
      await Promise.allSettled([beating, reporting]);
      await this.#end();
    }
  }

  /** Claim no more, and let running jobs end. */
  stop() {
    this.stopping.abort(new Error("stopping"));
  }

  // ---------------------------------------------------------------------------------------- sessions

  async #begin() {
    const begun = await this.api.insist("POST", "/v1/sessions", this.hello, {
      signal: this.stopping.signal,
    });
    this.session = begun.session;
    this.beatMs = 1000 * begun.beat_s;
    this.nonce = 1;
    log(`session ${this.session}`);
  }

  async #end() {
    if (!this.session) return;
    try {
      await this.api.send("DELETE", `/v1/sessions/${this.session}`);
    } catch (error) {
      log(`the session ends with its lease: ${error.message}`);
    }
  }

  /** The session is gone: its jobs run elsewhere. Drop them, and begin a new session. */
  async #renew(session) {
    if (session !== this.session) return; // done already
    log(`session ${session} is gone`);
    for (const job of this.running.values()) job.stop("lost");
    this.running.clear();
    this.reports.length = 0;
    this.session = undefined;
    this.renewing = this.#begin();
    await this.renewing;
  }

  /** Call a function with the session. If the session is gone, begin a new one and return null. */
  async #within(call) {
    await this.renewing;
    const session = this.session;
    try {
      return await call(session);
    } catch (error) {
      if (error.kind !== "session-gone") throw error;
      await this.#renew(session);
      return null;
    }
  }

  async #beat(signal) {
    while (!signal.aborted) {
      await sleep(this.beatMs, undefined, { signal }).catch(() => {});
      if (signal.aborted) return;
      try {
        const said = await this.#within((session) =>
          this.api.send("POST", `/v1/sessions/${session}/beat`, this.#held()),
        );
        for (const id of said?.lost ?? []) this.#drop(id);
        for (const id of said?.cancel ?? []) this.running.get(id)?.stop("cancelled");
        if (said && said.state !== "ok") this.stop(); // an operator wants this worker to end
      } catch (error) {
        log(`no heartbeat: ${error.message}`); // the next one comes soon
      }
    }
  }

  /** The jobs of this session, as of the newest claim that was answered: the heartbeat may be late. */
  #held() {
    const running = new Set(this.running.keys());
    // A job belongs to the session until its report is confirmed.
    for (const { id } of [...this.reports, ...this.sending]) running.add(id);
    return { running: [...running], answered: this.nonce - 1 };
  }

  #drop(id) {
    this.running.get(id)?.stop("lost");
    this.running.delete(id);
    this.#tell();
  }

  // ------------------------------------------------------------------------------------------ claims

  async #claim() {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const alone = [...this.running.values()].some((job) => job.claim.alone);
      const limit = Math.min(100, this.slots - this.running.size);
      if (alone || limit <= 0) {
        await this.#changed();
        continue;
      }
      // After a lost answer, the same nonce returns the same jobs. A new nonce comes after an answer.
      const answer = await this.#within((session) =>
        this.api.insist(
          "POST",
          "/v1/claims",
          { session, nonce: this.nonce, limit, wait_s: 15 },
          { signal, timeoutMs: 30_000 },
        ),
      ).catch((error) => this.#leave(error));
      if (answer === null) continue;
      this.nonce += 1;
      for (const claim of answer.claims) {
        if (signal.aborted) this.#giveBack(claim);
        else this.#start(claim);
      }
    }
  }

  /** A claim was cut off by the stop: give back what it may have leased. */
  async #leave(error) {
    if (!this.stopping.signal.aborted) throw error;
    const { session, nonce } = this;
    const answer = await this.api.send("POST", "/v1/claims", { session, nonce }).catch(() => null);
    for (const claim of answer?.claims ?? []) this.#giveBack(claim);
    return null;
  }

  #giveBack({ id, token }) {
    this.reports.push({ id, token, outcome: "released", started: false });
    this.#tell();
  }

  // -------------------------------------------------------------------------------------------- jobs

  async #start(claim) {
    const job = new Running(claim);
    this.running.set(claim.id, job);
    // A timer of node has at most 24 days, and one with more fires at once.
    const limitMs = claim.timeout_s === null ? undefined : Math.min(1000 * claim.timeout_s, 2 ** 31 - 1);
    const timer = limitMs && setTimeout(() => job.stop("timed out"), limitMs);
    let report;
    try {
      const named = Object.keys(claim.kwargs).length ? [claim.kwargs] : [];
      const value = await this.tasks[claim.task](this.#context(job), ...claim.args, ...named);
      JSON.stringify(value); // throws here, rather than in the report
      report = { outcome: "succeeded", result: value ?? null };
    } catch (error) {
      report = failure(job, error);
    }
    clearTimeout(timer);
    if (this.running.get(claim.id) === job) {
      this.running.delete(claim.id);
      this.reports.push({ id: claim.id, token: claim.token, ...report });
    }
    this.#tell();
  }

  #context(job) {
    const { id, token } = job.claim;
    const progress = (value, message = "") => {
      this.reports.push({ id, token, outcome: "progress", value, message });
      this.#tell();
    };
    return { ...job.claim, signal: job.abort.signal, progress };
  }

  /** Report in batches, in the order of the ends. */
  async #report(signal) {
    while (!signal.aborted) {
      this.sending = this.reports.splice(0, 500);
      if (this.sending.length) await this.#send(this.sending);
      else await this.#changed();
      this.sending = [];
      this.#tell();
    }
  }

  async #send(outcomes) {
    try {
      const answer = await this.#within((session) =>
        this.api.insist("POST", "/v1/claims/finish", { session, outcomes }),
      );
      for (const [n, verdict] of (answer?.verdicts ?? []).entries()) {
        // A stale report is dropped: the job runs elsewhere.
        if (verdict !== "ok") log(`dropped the ${verdict} report on job ${outcomes[n].id}`);
      }
    } catch (error) {
      if (outcomes.length > 1) for (const one of outcomes) await this.#send([one]);
      else await this.#sendRefused(outcomes[0], error);
    }
  }

  /** The server refuses a report: probably its result is too large. */
  async #sendRefused(report, error) {
    log(`the report on job ${report.id} was refused: ${error.message}`);
    if (report.outcome !== "succeeded") return;
    const { id, token } = report;
    const why = { type: "RefusedResult", message: error.message };
    await this.#send([{ id, token, outcome: "failed", rejected: true, error: why }]);
  }

  // ----------------------------------------------------------------------------------------- changes

  #tell() {
    this.change.dispatchEvent(new Event("change"));
  }

  /** Wait until a job or a report ends, or the worker stops. */
  #changed() {
    return new Promise((resolve) => {
      const done = () => {
        this.change.removeEventListener("change", done);
        this.stopping.signal.removeEventListener("abort", done);
        resolve();
      };
      this.change.addEventListener("change", done);
      if (!this.stopping.signal.aborted) this.stopping.signal.addEventListener("abort", done);
    });
  }
}

function failure(job, error) {
  if (job.why === "cancelled") return { outcome: "released" };
  const type = job.why === "timed out" ? "TimedOut" : (error?.name ?? typeof error);
  return {
    outcome: "failed",
    rejected: error?.rejected === true,
    error: {
      type: String(type || "Error").slice(0, 256),
      message: String(error?.message ?? error).slice(0, 8_000),
      traceback: String(error?.stack ?? "").slice(0, 32_000),
    },
  };
}

// --------------------------------------------------------------------------------------------- start

async function main(module) {
  const { WINDLASS_API, WINDLASS_TOKEN, WINDLASS_QUEUES, WINDLASS_SLOTS } = process.env;
  const urls = (WINDLASS_API ?? "http://127.0.0.1:8155").split(",").map((url) => {
    if (!/^https?:/.test(url)) throw new Error(`WINDLASS_API: expected http://..., found ${url}`);
    return url.replace(/\/+$/, "");
  });
  const worker = new Worker({
    api: new Api(urls, WINDLASS_TOKEN),
    name: `${hostname()}-node`.replace(/[^A-Za-z0-9_.-]/g, "-").slice(0, 64),
    tasks: (await import(pathToFileURL(module).href)).default,
    queues: WINDLASS_QUEUES ? WINDLASS_QUEUES.split(",") : [],
    slots: Number(WINDLASS_SLOTS ?? 4),
  });
  for (const name of ["SIGTERM", "SIGINT"]) {
    process.once(name, () => {
      log(`stopping: got ${name}`);
      worker.stop();
    });
  }
  await worker.run();
  log("stopped");
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  if (!process.argv[2]) {
    log("usage: node worker.mjs TASKS.mjs");
    process.exit(2);
  }
  try {
    await main(process.argv[2]);
  } catch (error) {
    log(error instanceof Problem ? `refused: ${error.message}` : error.stack);
    process.exitCode = 1;
  }
}
