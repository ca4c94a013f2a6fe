// The worker of a proof: each job writes a line when it starts and one when it ends.

import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import { Api, Worker } from "../examples/workers/node/worker.mjs";

const { WINDLASS_API, WINDLASS_TOKEN, LEDGER } = process.env;

const note = (event, job, label) =>
  appendFileSync(LEDGER, `${event} ${label} ${job.attempt} ${process.pid}\n`);

const worker = new Worker({
  api: new Api([WINDLASS_API], WINDLASS_TOKEN),
  name: "proof",
  tasks: {
    "proof.work": async (job, label, ms) => {
      note("start", job, label);
      await sleep(ms);
      note("end", job, label);
      return label;
    },
  },
  queues: ["remote"],
  slots: 4,
});
process.once("SIGTERM", () => worker.stop());
await worker.run();
