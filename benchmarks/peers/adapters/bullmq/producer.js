// The enqueue calls of BullMQ, by the protocol of protocol.py.

const readline = require("node:readline");
const { Queue } = require("bullmq");
const { connection, QUEUE } = require("./connection");

const CHUNK = 1000;
const CALLERS = 100;
const queue = new Queue(QUEUE, { connection: connection() });

const data = (task, number) => {
  if (task === "start_time") return {};
  if (task === "three") return { number, address: "ada@example.com", amount: 12.5 };
  if (task === "three_long") return { number, text: "one line of a letter ".repeat(5), amount: 12.5 };
  return { number };
};

const METHODS = {
  single: async (task, count) => {
    for (let number = 0; number < count; number += 1) await queue.add(task, data(task, number));
  },
  bulk: async (task, count) => {
    for (let first = 0; first < count; first += CHUNK) {
      const jobs = [];
      for (let number = first; number < Math.min(first + CHUNK, count); number += 1) {
        jobs.push({ name: task, data: data(task, number) });
      }
      await queue.addBulk(jobs);
    }
  },
  concurrent: async (task, count) => {
    const caller = async (first) => {
      for (let number = first; number < count; number += CALLERS) {
        await queue.add(task, data(task, number));
      }
    };
    await Promise.all(Array.from({ length: CALLERS }, (_, first) => caller(first)));
  },
};

const answer = (reply) => process.stdout.write(`${JSON.stringify(reply)}\n`);

const call = async ({ do: name, task, count }) => {
  const began = process.hrtime.bigint();
  try {
    await METHODS[name](task, count);
  } catch (error) {
    return { error: String(error) };
  }
  return { at_ns: Number(began), seconds: Number(process.hrtime.bigint() - began) / 1e9 };
};

const main = async () => {
  await queue.waitUntilReady();
  answer({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    answer(await call(JSON.parse(line)));
  }
  process.exit(0);
};

main();
