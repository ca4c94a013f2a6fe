/** The client against a real server: problems, health, the stream of events. */
import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import { after, before, test } from "node:test";
import { Api, ApiProblem, readProblem } from "../../../src/windlass/dashboard/static/api.js";
import { delayAfter, EventParser, LiveStats } from "../../../src/windlass/dashboard/static/stream.js";

/** @type {(request: http.IncomingMessage, response: http.ServerResponse) => void} */
let answer = () => {};
const server = http.createServer((request, response) => answer(request, response));
let base = "";

before(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  base = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}/`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const AWAY = { type: "urn:windlass:problem:engine-away", title: "The engine does not answer", status: 503, detail: "Redis is down." };

test("stored values keep their numbers, counts are plain numbers", async () => {
  answer = (_, response) => response.end('{"args": [9223372036854775808], "rate": 0.0}');
  const api = new Api(base);
  assert.equal((await api.get(["jobs", "x"])).args[0].text, "9223372036854775808");
  assert.equal((await api.get(["scale"])).rate, 0);
});

test("a problem document is an error with advice, and the health follows", async () => {
  const api = new Api(base);
  /** @type {string[]} */
  const told = [];
  api.onHealth = (health) => told.push(health);
  answer = (_, response) => response.writeHead(503).end(JSON.stringify(AWAY));
  const error = await api.get(["stats"]).catch((problem) => problem);
  assert.ok(error instanceof ApiProblem && error.isPassing);
  assert.equal(error.message, "Redis is down.");
  assert.match(error.advice, /Redis/);
  answer = (_, response) => response.end("{}");
  await api.get(["stats"]);
  assert.deepEqual(told, ["engine-away", "ok"]);
});

test("an answer of a proxy is told apart, and so is no answer", async () => {
  assert.match(readProblem(502, "<html>Bad Gateway</html>").detail, /proxy/);
  const error = await new Api("http://127.0.0.1:1/").get(["stats"]).catch((problem) => problem);
  assert.equal(error.type, "unreachable");
});

test("an aborted request is no problem of the server", async () => {
  answer = () => {};
  const api = new Api(base);
  const control = new AbortController();
  const request = api.get(["stats"], {}, control.signal);
  control.abort();
  await assert.rejects(request, { name: "AbortError" });
  assert.equal(api.health, "ok");
});

test("a request without an answer ends by itself, and the server counts as slow", async () => {
  answer = () => {};
  const api = new Api(base);
  api.readMs = 50;
  const error = await api.get(["stats"]).catch((problem) => problem);
  assert.ok(error instanceof ApiProblem && error.isPassing);
  assert.match(error.detail, /within 0.05 s/);
  assert.equal(api.health, "slow");
});

test("a refused token is the end of the login", async () => {
  answer = (_, response) => response.writeHead(401).end('{"type":"urn:windlass:problem:unauthenticated"}');
  const api = new Api(base);
  await assert.rejects(api.get(["stats"]));
  assert.equal(api.health, "logged-out");
});

test("events are found whatever the pieces", () => {
  /** @type {[string, any][]} */
  const found = [];
  const parser = new EventParser((name, data) => found.push([name, data]));
  const text = ': keep-alive\n\nevent: stats\ndata: {"a":1}\n\nevent: problem\r\ndata: {"b":\r\ndata: 2}\r\n\r\n';
  for (const letter of text) parser.push(letter);
  assert.deepEqual(found, [["stats", { a: 1 }], ["problem", { b: 2 }]]);
});

test("the delay grows, up to a limit", () => {
  assert.deepEqual([1, 2, 3, 9].map((failures) => delayAfter(failures, 1)), [1000, 2000, 4000, 5000]);
  assert.equal(delayAfter(1, 0), 500);
});

test("a stream connects again, and closes when the page is hidden", { timeout: 10_000 }, async () => {
  let streams = 0;
  answer = (_, response) => {
    streams += 1;
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(`event: stats\ndata: {"number": ${streams}}\n\n`);
    if (streams === 1) response.end();
    else response.on("close", () => server.emit("stream-closed"));
  };
  /** @type {(stats: any) => void} */
  let take = () => {};
  const live = new LiveStats(new Api(base), (stats) => take(stats), () => {});
  const second = new Promise((resolve) => { take = (stats) => stats.number === 2 && resolve(stats); });
  live.show(true);
  await second;
  const closed = once(server, "stream-closed");
  live.show(false);
  await closed;
  assert.equal(streams, 2);
});

test("without a stream the counts are asked for, one request at a time", { timeout: 10_000 }, async () => {
  let [asked, inFlight, most] = [0, 0, 0];
  answer = (request, response) => {
    if (request.url === "/v1/events") return void response.writeHead(200).flushHeaders(); // held back by a proxy
    most = Math.max(most, (inFlight += 1));
    setTimeout(() => {
      inFlight -= 1;
      response.end(`{"number": ${(asked += 1)}}`);
    }, 20);
  };
  /** @type {(stats: any) => void} */
  let take = () => {};
  const live = new LiveStats(new Api(base), (stats) => take(stats), () => {});
  live.heldMs = 20;
  const second = new Promise((resolve) => { take = (stats) => stats.number === 2 && resolve(stats); });
  live.show(true);
  await second;
  assert.ok(live.polling);
  assert.equal(most, 1);
  live.take("stats", { number: 3 });
  assert.equal(live.polling, null);
  live.show(false);
});
