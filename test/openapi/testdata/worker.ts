import { Client, Permanent, Worker } from "./index.js";

const worker = new Worker({ url: ["http://127.0.0.1:8420"], token: async () => "t", capacity: 2 });
worker
  .handler("typed", { text: String, count: 1, full: false, day: Date, tags: ["a"], note: "x" }, async (run, p) => {
    const text: string = p.text, count: number = p.count, full: boolean = p.full, day: Date = p.day, tags: string[] = p.tags, note: string = p.note;
    if (run.cancelled) throw new Permanent("no");
    await run.sleep(1);
    // @ts-expect-error: there is no such parameter
    void p.other;
    // @ts-expect-error: it is a number
    const wrong: string = p.count;
    return { text, count, full, day, tags, note, wrong };
  })
  .handler("plain", (run) => run.print(run.id));
const client = new Client({ url: "http://127.0.0.1:8420", token: "t" });
const outcome: Promise<string | undefined> = client.trigger("job", { a: 1 }).then((run) => client.wait(run.id)).then((done) => done.outcome);
void [worker, outcome];
