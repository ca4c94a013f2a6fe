// The enqueue calls of Graphile Worker, by the protocol of protocol.py.

const readline = require("node:readline");
const { makeWorkerUtils } = require("graphile-worker");

const CHUNK = 1000;
const CALLERS = 100;

const data = (task, number) => {
  if (task === "start_time") return {};
  if (task === "three") return { number, address: "ada@example.com", amount: 12.5 };
  if (task === "three_long") return { number, text: "one line of a letter ".repeat(5), amount: 12.5 };
  return { number };
};

const methods = (utils) => ({
  single: async (task, count) => {
    for (let number = 0; number < count; number += 1) await utils.addJob(task, data(task, number));
  },
  bulk: async (task, count) => {
    for (let first = 0; first < count; first += CHUNK) {
      const jobs = [];
      for (let number = first; number < Math.min(first + CHUNK, count); number += 1) {
        jobs.push({ identifier: task, payload: data(task, number) });
      }
      await utils.addJobs(jobs);
    }
  },
  concurrent: async (task, count) => {
    const caller = async (first) => {
      for (let number = first; number < count; number += CALLERS) {
        await utils.addJob(task, data(task, number));
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, (_, first) => caller(first)));
  },
});

const answer = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);

const call = async (known, { do: name, task, count }) => {
  const began = process.hrtime.bigint();
  try {
    await known[name](task, count);
  } catch (error) {
    return { error: String(error) };
  }
  return { at_ns: Number(began), seconds: Number(process.hrtime.bigint() - began) / 1e9 };
};

const main = async () => {
  const utils = await makeWorkerUtils({ connectionString: process.env.PEER_URL, maxPoolSize: 20 });
  await utils.migrate();
  const known = methods(utils);
  answer({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    answer(await call(known, JSON.parse(line)));
  }
  process.exit(0);
};

main();
