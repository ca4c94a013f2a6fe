// The processor of BullMQ, and the marks that report that jobs ran (see protocol.py).
//
// A job that ends is removed: keeping the finished jobs is slower.

const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const { Worker } = require("bullmq");
const { connection, QUEUE } = require("./connection");

const MARKS = fs.openSync(process.env.PEER_MARKS, "a");
const mark = (line) => fs.writeSync(MARKS, line);
const padded = (number, width) => String(number).padStart(width, "0");

const TASKS = {
  noop_async: async () => mark(".\n"),
  three: async () => mark(".\n"),
  three_long: async () => mark(".\n"),
  io_async: async () => {
    await sleep(1);
    mark(".\n");
  },
  start_time: async () => mark(`${padded(process.hrtime.bigint(), 20)}\n`),
  second: async ({ number }) => {
    mark(`b${padded(number, 3)}\n`);
    await sleep(1000);
    mark(`e${padded(number, 3)}\n`);
  },
};

const worker = new Worker(QUEUE, (job) => TASKS[job.name](job.data), {
  connection: connection(),
  concurrency: Number(process.argv[2]),
  removeOnComplete: { count: 0 },
});
worker.on("error", (error) => console.error(error));
process.on("SIGTERM", async () => {
  await worker.close();
  process.exit(0);
});
