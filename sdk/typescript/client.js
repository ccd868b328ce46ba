// A client that triggers runs and waits for them.
import { Servers, pause, ulid } from "./http.js";

/** Calls the API. Its token has the role runner or admin. An unanswered call is repeated for `patience` ms. */
export class Client {
  #servers;
  #options;

  constructor({ url, token, namespace = "default", patience = 30_000, plainHttp = false }) {
    this.#servers = new Servers(url, token, plainHttp);
    this.#options = { namespace, patience };
  }

  #call(method, path, body, headers) {
    return this.#servers.call(method, path, body, { within: this.#options.patience, headers });
  }

  /** Runs a job now and returns the run. Requests with the same key make one run. */
  trigger(job, params = {}, { key = ulid() } = {}) {
    const texts = Object.fromEntries(Object.entries(params).map(([name, value]) => [name, value instanceof Date ? value.toISOString() : String(value)]));
    const path = `/jobs/${encodeURIComponent(this.#options.namespace)}/${encodeURIComponent(job)}/run`;
    return this.#call("POST", path, { params: texts }, { "Idempotency-Key": key });
  }

  /** Returns a run with its attempts. */
  get(run) {
    return this.#call("GET", `/runs/${encodeURIComponent(run)}`);
  }

  /** Waits until a run is done, and returns it: `outcome` says how it ended. */
  async wait(run, { timeout = Infinity } = {}) {
    for (let end = performance.now() + timeout, rest = 100; ; rest = Math.min(1.5 * rest, 2000)) {
      const got = await this.get(run);
      if (got.state === "done") return got;
      if (performance.now() + rest > end) throw new Error(`run ${run} is ${got.state} after ${timeout} ms`);
      await pause(rest);
    }
  }
}
