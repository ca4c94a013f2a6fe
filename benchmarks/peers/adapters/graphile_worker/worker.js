// The tasks of Graphile Worker, and the marks that report that jobs ran (see protocol.py).
//
// A process fetches jobs in batches into a local queue, and completes them in batches.

const fs = require("node:fs");
const { setTimeout: sleep } = require("node:timers/promises");
const { Logger, run } = require("graphile-worker");

const MARKS = fs.openSync(process.env.PEER_MARKS, "a");
const mark = (line) => fs.writeSync(MARKS, line);
const padded = (number, width) => String(number).padStart(width, "0");

const taskList = {
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

const quiet = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

run({
  taskList,
  preset: {
    worker: {
      connectionString: process.env.PEER_URL,
      concurrentJobs: Number(process.argv[2]),
      maxPoolSize: 20,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger: quiet,
    },
  },
});
