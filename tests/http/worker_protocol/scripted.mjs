// A task of the tests: does what its first argument says.
import { existsSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

async function run(job, script) {
  const { FOLDER } = process.env;
  writeFileSync(`${FOLDER}/started-${job.id}`, "");
  if (script === "fail") throw new Error('it "went wrong"');
  if (script === "reject") throw Object.assign(new Error("pointless"), { rejected: true });
  if (script === "garbage") return 1n; // has no form in JSON
  while (script === "gate" && !existsSync(`${FOLDER}/gate`)) {
    await sleep(50, undefined, { signal: job.signal });
  }
  return `done ${script}`;
}

export default { "test.task": run };
