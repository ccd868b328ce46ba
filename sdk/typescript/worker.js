// A worker: it claims runs of jobs with `run: {handler: NAME}` and calls the handlers.
import os from "node:os";
import { BelfryError, Servers, SessionOver, Unanswered, pause, ulid } from "./http.js";
import { Cancelled, Output, Permanent, Run, convert, milliseconds } from "./run.js";
import { Spool } from "./spool.js";

const PROTOCOL = 1, VERSION = "node 1.0.0";
const RENEW_EVERY = 2000, POLL_EVERY = 1000, HINTS_WAIT = 20;
// From the end of an attempt until others may count it as lost; how long a worker that stops waits for an answer.
const FENCE_MARGIN = 3000, STOP_WITHIN = 5000, UNDECIDED_AGAIN = 5000;
const FATAL = new Set([401, 403, 426]); // the token or the version is refused
const BATCH_MAX = 100, BATCH_BYTES = 1 << 20, RESULT_MAX = 64 << 10;

class Postponed extends Error {}

/** A flag that can be waited for. */
class Bell {
  #ring = new AbortController();
  ring() {
    this.#ring.abort();
  }
  /** Waits until it rings, for some time; tells whether it has rung since the last wait. */
  async wait(ms, ...signals) {
    await pause(ms, this.#ring.signal, ...signals);
    const rung = this.#ring.signal.aborted;
    if (rung) this.#ring = new AbortController();
    return rung;
  }
}

class Session {
  #over = new AbortController();
  id = ulid();
  renewed = performance.now();
  drained = false;
  look = new Bell();
  check = new Bell();
  pending = new Set(); // tokens of claims without an answer
  doubtful = []; // claims that were given up without an answer
  over = this.#over.signal;
  end() {
    this.#over.abort();
  }
}

class Attempt {
  constructor(session, key, claim) {
    const r = claim.run, policy = claim.job.policy ?? {}, handler = claim.job.run.handler;
    Object.assign(this, { session, key, claim, handler: handler.name ?? handler, output: new Output(r.id, r.attempt), started: undefined, result: undefined });
    this.run = new Run(claim, this.output);
    this.due = performance.now() + Math.max(0, Date.parse(r.due) - Date.parse(claim.now));
    this.grace = milliseconds(policy.kill_grace);
    this.timeout = milliseconds(policy.timeout);
    this.fence = r.unfenced ? Infinity : Math.max(1, r.lost_after_ms - this.grace - FENCE_MARGIN);
  }

  isFenced() {
    return performance.now() > this.session.renewed + this.fence;
  }
}

/** Runs handlers. Without a spool, a directory of this worker alone, results without an answer are lost with the process. */
export class Worker {
  #servers;
  #options;
  #handlers = new Map();
  #attempts = new Map(); // by token, until their result is answered
  #results = [];
  #report = new Bell();
  #unreported = new Map(); // since when, by token
  #clock = { at: 0, read: performance.now(), error: Infinity }; // of the store
  #stopping = new AbortController();
  #quit = new AbortController();
  #error;
  #complained = -Infinity;
  #spool;
  #session;

  constructor({ url, token, name = os.hostname(), spool, capacity = 8, labels = {}, drainTimeout = 30_000, plainHttp = false, log = console }) {
    this.#servers = new Servers(url, token, plainHttp);
    this.#options = { name, spool, capacity, labels, drainTimeout, log };
  }

  /** Registers a function. The specification has a default for each parameter, or the type of a required one. */
  handler(name, spec, call) {
    if (!/^[A-Za-z0-9._/-]{1,256}$/.test(name)) throw new TypeError(`${name} is not the name of a handler (letters, digits, dots, dashes, underscores and slashes)`);
    this.#handlers.set(name, typeof spec === "function" ? { spec: {}, call: spec } : { spec, call });
    return this;
  }

  /** Ends run() when the attempts have ended. */
  stop() {
    this.#stopping.abort();
  }

  /** Works until SIGTERM, SIGINT or stop(). Throws a BelfryError if the servers refuse the worker. */
  async run() {
    if (this.#handlers.size === 0) throw new Error("the worker has no handlers");
    this.#spool = new Spool(this.#options.spool);
    if (!this.#spool.path) this.#warn("the worker has no spool: results without an answer are lost with the process");
    const stop = () => this.stop();
    for (const name of ["SIGTERM", "SIGINT"]) process.on(name, stop);
    for (const result of this.#spool.results) this.#keep(result);
    try {
      this.#session = new Session(); // the reporter waits for a real one
      this.#loop(undefined, () => this.#reports());
      while (!this.#stopping.signal.aborted) {
        const session = new Session();
        if (!(await this.#join(session))) break;
        this.#session = session;
        await this.#work(session);
      }
    } catch (e) {
      this.#fail(e);
    } finally {
      this.#quit.abort();
      for (const name of ["SIGTERM", "SIGINT"]) process.off(name, stop);
    }
    if (this.#error) throw this.#error;
  }

  #warn(text) {
    this.#options.log.warn("belfry: " + text);
  }

  /** Runs a loop beside the others. */
  async #loop(session, body) {
    try {
      await body();
    } catch (e) {
      if (e instanceof SessionOver && session) this.#over(session);
      else if (!(e instanceof Unanswered)) this.#fail(e); // the token was revoked, or a mistake of this package
    }
  }

  #fail(error) {
    this.#error ??= error;
    this.#stopping.abort();
    this.#quit.abort();
  }

  #call(method, path, body, how = {}) {
    const said = (text) => {
      if (performance.now() - this.#complained > 10_000) this.#warn("no server answers: " + text);
      this.#complained = Math.max(this.#complained, performance.now() - 1);
    };
    return this.#servers.call(method, "/worker" + path, body, { quit: this.#quit.signal, said, ...how });
  }

  async #join(session) {
    const o = this.#options;
    const body = {
      oldest_protocol: PROTOCOL, newest_protocol: PROTOCOL, session: session.id, node: o.name, machine: this.#spool.machine, directory: this.#spool.path ?? "/",
      handlers: [...this.#handlers.keys()].sort(), handlers_only: true, labels: o.labels, capacity: o.capacity, version: VERSION,
    };
    let joined, sent;
    try {
      sent = session.renewed = performance.now();
      joined = await this.#call("POST", "/sessions", body, { quit: this.#stopping.signal });
    } catch (e) {
      if (e instanceof Unanswered) return false;
      throw e;
    }
    if (joined.protocol !== PROTOCOL) {
      throw new BelfryError(426, "protocol", `the server speaks version ${joined.protocol} of the protocol of workers, and this worker ${PROTOCOL}`);
    }
    this.#sample(joined.now, sent);
    session.renewed = sent;
    this.#loop(session, () => this.#settle(session, joined.predecessors ?? []));
    return true;
  }

  #sample(text, sent) {
    const received = performance.now(), error = (received - sent) / 2, old = this.#clock;
    if (error <= old.error + (received - old.read) / 1000) this.#clock = { at: Date.parse(text), read: (sent + received) / 2, error }; // a clock drifts
  }

  #storeNow() {
    return this.#clock.at + performance.now() - this.#clock.read;
  }

  async #work(session) {
    const others = [this.#renews(session), this.#hints(session), this.#guards(session), this.#compares(session), this.#outputs(session)];
    for (const loop of others) this.#loop(session, () => loop);
    await this.#loop(session, () => this.#claims(session));
    if (this.#stopping.signal.aborted && !this.#quit.signal.aborted) await this.#leave(session);
  }

  #isOpen(session) {
    return !session.over.aborted && !this.#quit.signal.aborted;
  }

  #over(session) {
    if (!session.over.aborted) this.#warn("the session is over; beginning another one");
    session.end();
    this.#endAll("lost", "the session of the worker is over", (a) => a.session === session);
  }

  #running(which = () => true) {
    return [...this.#attempts.values()].filter((a) => !a.result && which(a));
  }

  #endAll(outcome, reason, which) {
    for (const a of this.#running(which)) a.run.end(outcome, reason);
  }

  /** Lets the attempts end, reports them, and ends the session. */
  async #leave(session) {
    const attempt = async (what, ...calls) => {
      try {
        for (const call of calls) await call();
      } catch (e) {
        this.#warn(`cannot ${what}: ${e.message}`);
      }
    };
    const wait = async (ms, some) => {
      for (const end = performance.now() + ms; some() && performance.now() < end && !this.#quit.signal.aborted; ) await pause(20);
    };
    await attempt("leave", () => this.#call("POST", `/sessions/${session.id}/leave`, undefined, { within: STOP_WITHIN }), () => this.#release(session.id, session.doubtful));
    await wait(this.#options.drainTimeout, () => !session.over.aborted && this.#running().length > 0);
    this.#endAll("lost", "the worker has stopped");
    await wait(Math.max(STOP_WITHIN, ...this.#running().map((a) => a.grace)), () => this.#running().length > 0);
    await wait(STOP_WITHIN, () => this.#unreported.size > 0);
    if (this.#attempts.size > 0) {
      this.#warn(`${this.#attempts.size} attempts have no answer from a server; those in the spool are reported by the next process`);
      return;
    }
    await attempt("end the session", () => this.#call("DELETE", `/sessions/${session.id}`, undefined, { within: STOP_WITHIN }));
    session.end();
  }

  async #renews(session) {
    const path = `/worker/sessions/${session.id}`;
    for (let next = performance.now() + RENEW_EVERY; this.#isOpen(session); next = Math.max(next + RENEW_EVERY, performance.now())) {
      try {
        const unreported = [...this.#unreported.values()].filter((since) => performance.now() - since > 1000).length;
        let sent = performance.now();
        await this.#servers.once("POST", path + "/renew", { running: this.#attempts.size, ready: 0, unreported, clock_ahead_ms: Math.round(Date.now() - this.#storeNow()) }, 3000);
        session.renewed = sent;
        sent = performance.now();
        const members = await this.#servers.once("GET", path + "/members", undefined, 3000);
        this.#sample(members.now, sent);
        const drained = members.sessions.some((m) => m.id === session.id && m.drain);
        if (drained !== session.drained) {
          this.#warn(drained ? "the node is drained" : "the node accepts runs again");
          session.drained = drained;
          session.look.ring();
        }
      } catch (e) {
        if (!(e instanceof Unanswered)) throw e;
      }
      await pause(next - performance.now(), session.over, this.#quit.signal);
    }
  }

  async #hints(session) {
    for (let place = ""; this.#isOpen(session); ) {
      const hints = await this.#call("GET", `/sessions/${session.id}/hints?wait=${HINTS_WAIT}${place && "&after=" + place}`, undefined, { timeout: HINTS_WAIT * 1000 + 10_000 });
      place = hints.place;
      if (hints.hints.includes("cancels")) session.check.ring();
      session.look.ring();
      await pause(50);
    }
  }

  async #claims(session) {
    let known = [], polled = -Infinity, woken = true;
    while (this.#isOpen(session) && !this.#stopping.signal.aborted) {
      const room = session.drained ? 0 : this.#options.capacity - this.#attempts.size;
      if (room <= 0) known = [];
      const due = known.filter((r) => Date.parse(r.due) <= this.#storeNow()).slice(0, Math.max(0, room));
      if (due.length > 0) {
        known = known.filter((r) => !due.includes(r));
        await this.#claim(session, due);
        continue;
      }
      if (room > 0 && (woken || performance.now() - polled >= POLL_EVERY)) {
        polled = performance.now();
        const until = new Date(this.#storeNow() + 2000).toISOString();
        known = (await this.#call("GET", `/sessions/${session.id}/ready?limit=500&until=${until}`, undefined, { quit: this.#stopping.signal })).runs ?? [];
      }
      const wait = Math.min(POLL_EVERY, ...known.map((r) => Date.parse(r.due) - this.#storeNow()));
      woken = await session.look.wait(Math.max(20, wait), session.over, this.#stopping.signal);
    }
  }

  async #claim(session, ready) {
    const keys = ready.map((r) => ({ job: r.job, run: r.id, attempt: r.attempt, token: ulid() }));
    for (const k of keys) session.pending.add(k.token);
    let claims = [];
    try {
      ({ claims } = await this.#call("POST", `/sessions/${session.id}/claims`, { attempts: keys }, { quit: this.#stopping.signal }));
    } catch (e) {
      if (e instanceof Unanswered) session.doubtful = keys;
      if (e instanceof Unanswered || e instanceof SessionOver || FATAL.has(e.status)) throw e;
      this.#warn(`the claims of ${keys.length} runs are refused: ${e.message}`);
    }
    let started = 0;
    claims.forEach((claim, i) => {
      if (claim.verdict !== "started") return;
      const a = new Attempt(session, keys[i], claim);
      this.#attempts.set(keys[i].token, a);
      this.#execute(a).catch((e) => this.#fail(e));
      started++;
    });
    for (const k of keys) session.pending.delete(k.token);
    if (started === 0) await pause(200, session.over); // nothing was granted: others have them, or it is too early
  }

  /** Ends attempts that others may count as lost, whatever the server does. */
  async #guards(session) {
    for (; this.#isOpen(session); await pause(100)) {
      this.#endAll("lost", "the worker has reached no server for too long", (a) => a.session === session && a.isFenced());
    }
  }

  async #compares(session) {
    let suspects = new Set(); // tokens of the last answer that this worker does not know
    while (this.#isOpen(session)) {
      await session.check.wait(1000, session.over);
      const mine = this.#running((a) => a.session === session);
      if (mine.length + suspects.size + session.pending.size === 0 || !this.#isOpen(session)) continue;
      const { runs } = await this.#call("GET", `/sessions/${session.id}/runs`);
      const present = new Map(runs.map((r) => [r.token, r]));
      for (const a of mine) {
        const r = present.get(a.key.token), why = r?.cancel_reason?.split("\x1f")[0];
        if (!r) a.run.end("lost", "the store has given the attempt to another worker");
        else if (r.cancel_by) a.run.end("cancelled", `cancelled by ${r.cancel_by}${why ? ": " + why : ""}`);
      }
      const unknown = runs.filter((r) => !this.#attempts.has(r.token) && !session.pending.has(r.token) && !this.#unreported.has(r.token));
      await this.#release(session.id, unknown.filter((r) => suspects.has(r.token)));
      suspects = new Set(unknown.map((r) => r.token).filter((t) => !suspects.has(t)));
    }
  }

  async #release(session, runs) {
    const attempts = runs.map((r) => ({ job: r.job, run: r.run ?? r.id, attempt: r.attempt, token: r.token }));
    if (attempts.length > 0) await this.#call("POST", `/sessions/${session}/releases`, { attempts });
  }

  /** Settles the attempts of earlier processes on the directory. */
  async #settle(session, predecessors) {
    for (const old of predecessors) {
      try {
        await this.#call("POST", `/sessions/${old}/leave`);
        const runs = (await this.#call("GET", `/sessions/${old}/runs`)).runs.filter((r) => !this.#attempts.has(r.token) && !this.#unreported.has(r.token));
        const began = (r) => !this.#spool.path || this.#spool.began.has(r.token);
        await this.#release(old, runs.filter((r) => !began(r)));
        for (const r of runs.filter(began)) {
          this.#keep({ job: r.job, run: r.id, attempt: r.attempt, token: r.token, outcome: "lost", reason: "the process of the worker has ended" });
        }
      } catch (e) {
        if (!(e instanceof SessionOver)) throw e;
      }
    }
    for (const token of this.#spool.began) if (!this.#unreported.has(token)) this.#spool.forget(token);
  }

  async #outputs(session) {
    for (; this.#isOpen(session); await pause(1000, session.over)) {
      for (const a of this.#running((one) => one.session === session)) {
        const chunks = a.output.chunks();
        if (chunks.length === 0 || a.result) continue;
        await this.#call("POST", `/sessions/${session.id}/output`, { chunks });
        a.output.answered(chunks);
      }
    }
  }

  async #execute(a) {
    let end, timer;
    try {
      const { spec, call } = this.#handlers.get(a.handler);
      const values = convert(spec, a.run.params);
      await this.#secrets(a, values);
      await pause(a.due - performance.now(), a.run.signal);
      if (a.isFenced() || a.run.cause?.outcome === "lost") {
        this.#attempts.delete(a.key.token);
        await this.#release(a.session.id, [a.key]).catch((e) => this.#warn(`cannot release run ${a.run.id}: ${e.message}`));
        return;
      }
      a.run.check();
      this.#spool.begin(a.key.token);
      a.started = new Date().toISOString();
      if (a.timeout) timer = setTimeout(() => a.run.end("timed_out", "its timeout has passed"), a.timeout);
      const value = await call(a.run, values);
      end = { outcome: "succeeded" };
      if (value !== undefined) {
        const text = a.output.text(JSON.stringify(value));
        if (Buffer.byteLength(text) > RESULT_MAX) throw new Permanent(`the result has ${Buffer.byteLength(text)} bytes, and at most ${RESULT_MAX} are allowed`);
        a.run.print(text);
        end.value = Buffer.from(text).toString("base64");
      }
    } catch (e) {
      end = this.#failure(a, e);
    } finally {
      clearTimeout(timer);
    }
    const output = a.output.chunks(true), ended = new Date().toISOString();
    a.result = { ...a.key, started: a.started ?? ended, ended, ...end, output, output_bytes: a.output.total };
    this.#keep(a.result);
  }

  #failure(a, e) {
    if (e instanceof Postponed) return { outcome: "failed", reason: e.message, postponed: true };
    const text = a.output.text(String(e?.message || e)).slice(0, 2000);
    if (a.run.cause) {
      const { outcome, reason } = a.run.cause;
      return { outcome, reason: e instanceof Cancelled || e?.name === "AbortError" ? reason : `${reason}: ${text}` };
    }
    if (a.started) a.run.err.write((e?.stack ?? e) + "\n");
    return { outcome: "failed", reason: text, cause: text.trim().split("\n")[0].slice(0, 1000), permanent: e instanceof Permanent };
  }

  async #secrets(a, values) {
    const named = Object.entries(a.claim.job.params ?? {}).filter(([name, p]) => p.type === "secret" && a.run.params[name]).map(([name]) => name);
    if (named.length === 0) return;
    if (!this.#servers.isPrivate()) throw new Permanent("secrets come over TLS alone, and a server of this worker has an address with http");
    const ask = { attempt: a.key, names: [...new Set(named.map((name) => a.run.params[name]))].sort() };
    for (const end = performance.now() + 1000; ; ) {
      const got = await this.#call("POST", `/sessions/${a.session.id}/secrets`, ask);
      if (got.missing) throw new Permanent(`the secret ${got.missing} does not exist${got.near ? `; did you mean ${got.near}?` : ""}`);
      if (!got.problem) {
        a.output.mask(Object.values(got.values));
        for (const name of named) {
          a.run.secrets[name] = got.values[a.run.params[name]];
          if (name in values) values[name] = a.run.secrets[name];
        }
        return;
      }
      if (performance.now() > end) throw new Postponed("its secrets cannot be read: " + got.problem);
      await a.run.sleep(400);
    }
  }

  /** Keeps a result until a server has answered it. */
  #keep(result) {
    try {
      this.#spool.keep(result);
    } catch (e) {
      this.#warn(`cannot keep the result of run ${result.run} in the spool: ${e.message}`);
    }
    this.#unreported.set(result.token, performance.now());
    this.#results.push(result);
    this.#report.ring();
  }

  async #reports() {
    while (!this.#quit.signal.aborted) {
      if (this.#results.length === 0) await this.#report.wait(1000, this.#quit.signal);
      let n = 0;
      for (let size = 0; n < this.#results.length && n < BATCH_MAX && size < BATCH_BYTES; n++) size += JSON.stringify(this.#results[n]).length;
      if (n === 0) continue;
      const batch = this.#results.splice(0, n);
      try {
        await this.#send(batch);
      } catch (e) {
        if (!(e instanceof SessionOver)) throw e;
        this.#results.push(...batch);
        await pause(200);
      }
    }
  }

  async #send(batch) {
    let answers = [{ accepted: false }];
    try {
      answers = (await this.#call("POST", `/sessions/${this.#session.id}/results`, { results: batch })).results;
    } catch (e) {
      if (e instanceof Unanswered || e instanceof SessionOver || FATAL.has(e.status)) throw e;
      if (batch.length > 1) {
        for (const result of batch) await this.#send([result]);
        return;
      }
      this.#warn(`the result of run ${batch[0].run} is refused: ${e.message}`);
    }
    batch.forEach((result, i) => {
      if (answers[i].undecided) {
        setTimeout(() => (this.#results.push(result), this.#report.ring()), UNDECIDED_AGAIN).unref();
        return;
      }
      this.#spool.forget(result.token);
      this.#unreported.delete(result.token);
      this.#attempts.delete(result.token);
    });
    this.#session.look.ring();
  }
}
