// What a handler sees of its run.
import { pause } from "./http.js";

const HEAD_MAX = 512 << 10, TAIL_MAX = 448 << 10, CHUNK_MAX = 32_000; // bytes of the output that are kept
const MASK = "***";

/** A failure that another attempt would repeat: a handler throws it to end the retries. */
export class Permanent extends Error {}

/** The attempt is asked to end. */
export class Cancelled extends Error {}

/** Reads a duration such as 1m30s, in milliseconds. */
export function milliseconds(text = "") {
  const units = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };
  return [...text.matchAll(/([\d.]+)(ns|us|µs|ms|s|m|h|d|w)/g)].reduce((sum, [, n, unit]) => sum + n * units[unit], 0);
}

/** Reads the parameters of a run by a specification: of each a default value, or the type of a required one. */
export function convert(spec, texts) {
  const values = {};
  for (const [name, like] of Object.entries(spec)) {
    const required = typeof like === "function", text = texts[name] ?? "";
    const type = required ? like : like === null ? Object : like.constructor;
    if (text === "" && !(required && type === String && name in texts)) {
      if (required) throw new Permanent(`the parameter ${name} of the handler has no value`);
      values[name] = name in texts && type === String ? text : like;
      continue;
    }
    try {
      values[name] = read(type, text);
    } catch (e) {
      throw new Permanent(`the parameter ${name} is ${JSON.stringify(text)}, which is no ${type.name}: ${e.message}`);
    }
  }
  return values;
}

function read(type, text) {
  const value = type === String ? text : type === Number ? Number(text) : type === Date ? new Date(text) : JSON.parse(text);
  if (type === Number && Number.isNaN(value)) throw new Error("it is not a number");
  if (type === Date && Number.isNaN(value.getTime())) throw new Error("it is not a date");
  if (type === Boolean && typeof value !== "boolean") throw new Error("it is neither true nor false");
  return value;
}

/** The output of an attempt: its beginning, which is sent while it runs, and its end. */
export class Output {
  constructor(run, attempt) {
    Object.assign(this, { run, attempt, secrets: [], held: ["", ""], total: 0, seq: 0, tailed: 0, head: [], tail: [], unsent: [] });
  }

  mask(values) {
    this.secrets = [...new Set(values.filter(Boolean))].sort((a, b) => b.length - a.length);
  }

  /** Replaces secrets in a text. */
  text(text) {
    for (const value of this.secrets) text = text.replaceAll(value, MASK);
    return text;
  }

  write(stream, text, end = false) {
    if (this.secrets.length > 0) {
      text = this.text(this.held[stream] + text);
      const cut = Math.max(0, text.length - (end ? 0 : this.secrets[0].length - 1)); // the rest may begin a secret
      this.held[stream] = text.slice(cut);
      text = text.slice(0, cut);
    }
    const data = Buffer.from(text);
    for (let at = 0; at < data.length; at += CHUNK_MAX) this.add(stream, data.subarray(at, at + CHUNK_MAX));
  }

  add(stream, data) {
    const into = this.total + data.length > HEAD_MAX ? this.tail : this.head;
    const last = into[into.length - 1], now = Date.now();
    if (last && last.stream === stream && now - last.at < 100 && last.size + data.length <= CHUNK_MAX) {
      last.parts.push(data);
      last.size += data.length;
    } else {
      into.push({ offset: this.total, at: now, stream, parts: [data], size: data.length });
    }
    this.total += data.length;
    if (into === this.tail) {
      for (this.tailed += data.length; this.tailed > TAIL_MAX; ) this.tailed -= this.tail.shift().size;
    }
  }

  /** Returns the chunks without an answer; at the end those of the last output, too. */
  chunks(end = false) {
    if (end) [0, 1].forEach((stream) => this.write(stream, "", true));
    const records = this.head.concat(end ? this.tail : []);
    this.head = [];
    for (let n = 0; records.length > 0; records.splice(0, n)) {
      let size = 0;
      for (n = 0; n < records.length && size + records[n].size <= CHUNK_MAX && records[n].offset === records[0].offset + size; n++) size += records[n].size;
      this.unsent.push(this.chunk(records.slice(0, n), size));
    }
    return [...this.unsent];
  }

  chunk(records, size) {
    const data = [Buffer.from([0])];
    let before = records[0].at;
    for (const r of records) {
      let mark = Math.max(0, r.at - before) * 2 + r.stream;
      before = r.at;
      for (; mark > 127; mark = Math.floor(mark / 128)) data.push(Buffer.from([(mark % 128) | 128]));
      data.push(Buffer.from([mark, r.size & 255, r.size >> 8]), ...r.parts);
    }
    return { run: this.run, attempt: this.attempt, seq: this.seq++, offset: records[0].offset, bytes: size, time: new Date(records[0].at).toISOString(), data: Buffer.concat(data).toString("base64") };
  }

  answered(chunks) {
    this.unsent = this.unsent.filter((c) => c.seq > chunks[chunks.length - 1].seq);
  }
}

const unpack = (data) => (data === undefined ? undefined : JSON.parse(Buffer.from(data, "base64").toString()));

/** An attempt of a run, for its handler. */
export class Run {
  #output;
  #abort = new AbortController();
  #progress = -Infinity;

  constructor(claim, output) {
    const r = claim.run, given = r.params ?? {};
    this.#output = output;
    Object.assign(this, {
      id: r.id, job: r.name, namespace: r.namespace, kind: r.kind, scheduled: new Date(r.scheduled), attempt: r.attempt,
      shard: r.shard ?? 0, shards: Math.max(1, r.shards ?? 0), node: r.node ?? "", params: {}, metadata: {}, secrets: {}, steps: {},
      item: unpack(claim.item), index: claim.index ?? 0, cause: undefined, signal: this.#abort.signal,
      out: { write: (text) => output.write(0, String(text)) }, err: { write: (text) => output.write(1, String(text)) },
    });
    for (const [name, p] of Object.entries(claim.job.params ?? {})) this.params[name] = given[name] ?? (typeof p === "string" ? p : p.default ?? "");
    for (const [name, value] of Object.entries(given)) if (name.startsWith("meta.")) this.metadata[name.slice(5)] = value;
    for (const [name, s] of Object.entries(claim.steps ?? {})) this.steps[name] = { outcome: s.outcome ?? "", attempt: s.attempt ?? 0, result: unpack(s.result) };
    const level = (name) => (text, fields = {}) => {
      const pairs = Object.entries(fields).map(([k, v]) => ` ${k}=${/[\s"=]/.test(String(v)) ? JSON.stringify(String(v)) : v}`);
      output.write(1, `level=${name} msg=${/[\s"=]/.test(text) ? JSON.stringify(text) : text}${pairs.join("")}\n`);
    };
    this.log = { info: level("INFO"), warn: level("WARN"), error: level("ERROR") };
  }

  /** Writes a line to the standard output. */
  print(...values) {
    this.#output.write(0, values.join(" ") + "\n");
  }

  /** Tells whether the attempt is asked to end: it was cancelled, its time is over, or the worker stops. */
  get cancelled() {
    return this.signal.aborted;
  }

  /** Throws Cancelled if the attempt is asked to end. */
  check() {
    if (this.cause) throw new Cancelled(this.cause.reason);
  }

  /** Sleeps some milliseconds, or throws Cancelled as soon as the attempt is asked to end. */
  async sleep(ms) {
    await pause(ms, this.signal);
    this.check();
  }

  /** Writes the progress into the output, at most once a second and at the end. */
  progress(done, total) {
    if (done < total && performance.now() - this.#progress < 1000) return;
    this.#progress = performance.now();
    this.log.info("progress", { done, total, percent: Math.floor((100 * done) / Math.max(1, total)) });
  }

  /** Asks the handler to end. */
  end(outcome, reason) {
    this.cause ??= { outcome, reason };
    this.#abort.abort(new Cancelled(this.cause.reason));
  }
}
