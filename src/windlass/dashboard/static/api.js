/**
 * The client of the HTTP API.
 *
 * 1. `Api.get` and `Api.request` make one request. An error is an `ApiProblem`: what failed, and what
 *    to do about it.
 * 2. A request without an answer ends after its time-out: a server that hangs keeps no request open
 *    for long. A change that ends so may have been made, and the problem says it.
 * 3. `Api.health` says whether server and engine answer, and whether the login is still valid. A
 *    request without an answer for 2.5 s counts as slow. `onHealth` is called at each change.
 */

import { parse } from "./json.js";
import { searchText } from "./router.js";
import { readStream } from "./stream.js";

/** After this time without an answer, the server counts as away, in milliseconds. */
const SLOW_MS = 2500;
/** The time-outs of a request that reads, and of one that changes something. */
const READ_MS = 12_000;
const CHANGE_MS = 30_000;
/** Paths whose answers have stored values, which keep their exact numbers. */
const EXACT = /^v1\/(jobs\/|audit)/;
/** @type {{[type: string]: string}} */
const ADVICE = {
  unreachable: "Check that windlass serve runs and that the network works.",
  "no-answer": "Check the engine, and the load of the server.",
  "engine-away": "Check the database or Redis server. The dashboard tries again by itself.",
  unauthenticated: "Log in with an access token.",
  forbidden: "Log in with an access token whose role allows it: viewer to read, operator to change.",
  "not-found": "It may have been removed.",
};

/** An error that the server answered with, or the lack of an answer. */
export class ApiProblem extends Error {
  /** @param {string} type @param {number} status @param {string} title @param {string} detail */
  constructor(type, status, title, detail, fields = /** @type {FieldProblem[]} */ ([])) {
    super(detail || title);
    this.type = type;
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.fields = fields;
  }

  /** What a user can do about it; may be empty. */
  get advice() {
    return ADVICE[this.type] || "";
  }

  /** Whether the same request may succeed a little later. */
  get isPassing() {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

/** Read the problem of an answer. @param {number} status @param {string} text @returns {ApiProblem} */
export function readProblem(status, text) {
  try {
    const body = JSON.parse(text);
    const type = String(body.type).replace(/^urn:windlass:problem:/, "");
    return new ApiProblem(type, status, body.title, body.detail, body.fields);
  } catch {
    const detail = "The answer is not from windlass. Check the proxy in front of it.";
    return new ApiProblem("unreachable", status, `The server answered ${status}`, detail);
  }
}

/** The path and query of a request. @param {string[]} parts @param {Query} [query] */
export function apiPath(parts, query = {}) {
  const text = searchText(query);
  return `v1/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export class Api {
  /** @param {string} base the address of the dashboard, with a slash at its end */
  constructor(base) {
    this.base = base;
    /** @type {Health} */
    this.health = "ok";
    this.readMs = READ_MS;
    /** @type {(health: Health) => void} */
    this.onHealth = () => {};
  }

  /** @param {string[]} parts @param {Query} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
  async get(parts, query, signal) {
    return this.request("GET", apiPath(parts, query), undefined, signal);
  }

  /**
   * Read a stream of events until it ends.
   * @param {AbortSignal} signal @param {(name: string, data: any) => void} onEvent
   */
  async events(signal, onEvent) {
    const response = await this.fetch("v1/events", { signal });
    if (!response.ok) throw readProblem(response.status, await response.text());
    if (response.body) await readStream(response.body, onEvent);
  }

  /**
   * Make a request. `body` is text, so that numbers stay as they were typed.
   * @param {string} method @param {string} path @param {string} [body] @param {AbortSignal} [signal]
   * @returns {Promise<any>}
   */
  async request(method, path, body, signal) {
    const slow = setTimeout(() => this.tell("slow"), SLOW_MS);
    const limit = new TimeLimit(method === "GET" ? this.readMs : CHANGE_MS, signal);
    try {
      const headers = body === undefined ? undefined : { "Content-Type": "application/json" };
      const response = await this.fetch(path, { method, body, signal: limit.signal, headers });
      const text = await response.text();
      if (!response.ok) throw readProblem(response.status, text);
      this.tell("ok");
      return text ? (EXACT.test(path) ? parse : JSON.parse)(text) : null;
    } catch (error) {
      const problem = limit.isOver ? noAnswer(method, limit.ms) : error;
      if (problem instanceof ApiProblem) this.tell(healthOf(problem));
      throw problem;
    } finally {
      limit.end();
      clearTimeout(slow);
    }
  }

  /** @param {string} path @param {RequestInit} options @returns {Promise<Response>} */
  async fetch(path, options) {
    try {
      return await fetch(this.base + path, { ...options, cache: "no-store", redirect: "error" });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      const detail = "No connection to windlass serve.";
      throw new ApiProblem("unreachable", 0, "The server does not answer", detail);
    }
  }

  /** @param {Health} health */
  tell(health) {
    const isKnownBetter = health === "slow" && this.health !== "ok";
    if (health === this.health || isKnownBetter) return;
    this.health = health;
    this.onHealth(health);
  }
}

/** Aborts a request after a time, or when its caller aborts it. */
class TimeLimit {
  /** @param {number} ms @param {AbortSignal} [outer] */
  constructor(ms, outer) {
    this.ms = ms;
    this.isOver = false;
    this.control = new AbortController();
    this.timer = setTimeout(() => {
      this.isOver = true;
      this.control.abort();
    }, ms);
    if (outer?.aborted) this.control.abort();
    outer?.addEventListener("abort", () => this.control.abort(), { signal: this.control.signal });
  }

  get signal() {
    return this.control.signal;
  }

  end() {
    clearTimeout(this.timer);
  }
}

/** @param {string} method @param {number} ms */
function noAnswer(method, ms) {
  const rest = method === "GET" ? "" : " The change may have been made: look before you repeat it.";
  return new ApiProblem("no-answer", 0, "The server does not answer", `There was no answer within ${ms / 1000} s.${rest}`);
}

/** @param {ApiProblem} problem @returns {Health} */
export function healthOf(problem) {
  if (problem.type === "engine-away") return problem.type;
  if (problem.type === "unauthenticated") return "logged-out";
  if (problem.type === "no-answer") return "slow";
  return ["unreachable", "draining"].includes(problem.type) ? "unreachable" : "ok";
}
