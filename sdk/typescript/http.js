// Calls to the servers of Belfry, with the fetch of Node.
import { randomBytes } from "node:crypto";

const PROBLEM = "urn:belfry:problem:";
const TRY_AGAIN = new Set([408, 421, 429]); // too slow, another server, too much

/** A server has refused a request, and would refuse it again. */
export class BelfryError extends Error {
  constructor(status, type, detail, hint = "") {
    super(detail + (hint ? ": " + hint : ""));
    Object.assign(this, { name: "BelfryError", status, type, detail, hint });
  }
}

/** The session of the worker is over. */
export class SessionOver extends BelfryError {}

/** No server has answered: the request may be done or not. */
export class Unanswered extends Error {
  constructor(text, after = 0) {
    super(text);
    Object.assign(this, { name: "Unanswered", after });
  }
}

/** Makes an identity: 48 bits of milliseconds and 80 random bits in Crockford's base 32. */
export function ulid() {
  let number = (BigInt(Date.now()) << 80n) | BigInt("0x" + randomBytes(10).toString("hex"));
  let text = "";
  for (let i = 0; i < 26; i++, number >>= 5n) text = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[Number(number & 31n)] + text;
  return text;
}

/** Waits, or ends early when one of the signals aborts. */
export function pause(ms, ...signals) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      for (const s of signals) s.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, Math.max(0, ms));
    for (const s of signals) s.aborted ? end() : s.addEventListener("abort", end);
  });
}

const isLoopback = (host) => host === "localhost" || host === "[::1]" || host.startsWith("127.");

/** The servers of a cluster, which are equivalent. */
export class Servers {
  constructor(url, token, plainHttp = false) {
    this.urls = (Array.isArray(url) ? url : [url]).map((u) => new URL(u));
    for (const u of this.urls) {
      if (u.protocol !== "https:" && u.protocol !== "http:") throw new TypeError(`${u.href} is not the address of a server`);
      if (u.protocol === "http:" && !plainHttp && !isLoopback(u.hostname)) {
        throw new TypeError(`${u.href} has no TLS, and others could read the token: use https, or plainHttp`);
      }
    }
    this.token = typeof token === "function" ? token : () => token;
    this.first = 0;
  }

  /** Tells whether secrets may come from each server. */
  isPrivate() {
    return this.urls.every((u) => u.protocol === "https:" || isLoopback(u.hostname));
  }

  /** Makes a request to the server that answered last; throws Unanswered and takes the next one if it does not. */
  async once(method, path, body, timeout = 10_000, headers = {}) {
    const url = this.urls[this.first % this.urls.length];
    const token = String(await this.token()).trim();
    try {
      const response = await fetch(url.href.replace(/\/$/, "") + "/api/v1" + path, {
        method,
        body: body === undefined ? undefined : JSON.stringify(body),
        headers: { Authorization: "Bearer " + token, Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
        redirect: "manual", // it would send the token elsewhere
        signal: AbortSignal.timeout(timeout),
      });
      return answerOf(response.status, response.headers.get("retry-after"), await response.text());
    } catch (e) {
      if (e instanceof BelfryError) throw e;
      this.first++;
      throw e instanceof Unanswered ? e : new Unanswered(`${url.host}: ${e.cause?.message || e.message}`);
    }
  }

  /** Repeats a request until a server has answered, some time has passed, or quit aborts. */
  async call(method, path, body, { timeout, within = Infinity, quit, said, headers } = {}) {
    const end = performance.now() + within;
    for (let rest = 250; ; rest = Math.min(2 * rest, 10_000)) {
      try {
        return await this.once(method, path, body, timeout, headers);
      } catch (e) {
        if (!(e instanceof Unanswered)) throw e;
        said?.(e.message);
        const wait = Math.max(e.after * 1000, rest * (0.5 + Math.random() / 2));
        if (quit?.aborted || performance.now() + wait > end) throw e;
        await pause(wait, ...(quit ? [quit] : []));
        if (quit?.aborted) throw e;
      }
    }
  }
}

function answerOf(status, after, text) {
  if (status >= 200 && status < 300) return text ? JSON.parse(text) : undefined;
  let problem;
  try {
    problem = JSON.parse(text);
  } catch {
    // a proxy, or another program
  }
  if (!problem?.type?.startsWith?.(PROBLEM) || status >= 500 || TRY_AGAIN.has(status)) {
    throw new Unanswered(`the status is ${status}`, /^\d+$/.test(after ?? "") ? Number(after) : 0);
  }
  const Refused = problem.type === PROBLEM + "session-over" ? SessionOver : BelfryError;
  throw new Refused(status, problem.type.slice(PROBLEM.length), problem.detail || problem.title || "", problem.hint);
}
