// The worker that go run ./test/conformance drives: docs/worker-protocol.md says what its handlers do.
import fs from "node:fs";
import { Worker } from "./index.js";

const env = process.env;
const worker = new Worker({ url: env.BELFRY_SERVER, token: env.BELFRY_TOKEN, spool: env.BELFRY_DATA, capacity: Number(env.BELFRY_CAPACITY) });

function handler(name, spec, call) {
  worker.handler(name, spec, async (run, params) => {
    const note = (what) => fs.appendFileSync(run.params.witness, `${run.id} ${run.attempt} ${what}\n`);
    note("begin");
    try {
      return await call(run, params);
    } finally {
      note("end");
    }
  });
}

handler("echo", { text: String, count: 1 }, (run, { text, count }) => {
  for (let i = 0; i < count; i++) run.print(text);
  run.err.write("oops\n");
});
handler("fail", { text: String }, (run, { text }) => {
  throw new Error(text);
});
handler("sleep", { seconds: Number }, async (run, { seconds }) => {
  run.print("sleeping");
  await run.sleep(seconds * 1000);
});
handler("context", {}, (run) => {
  const { id, attempt, shard, shards, params } = run;
  run.print(JSON.stringify({ run: id, attempt, shard, shards, params }));
});
handler("sum", { count: Number }, (run, { count }) => ({ sum: count + run.steps.before.result.n + run.item }));
handler("secret", { password: String }, (run, { password }) => {
  run.print(password);
  run.print("length", password.length);
});

await worker.run();
