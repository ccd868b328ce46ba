/** A server has refused a request, and would refuse it again. */
export class BelfryError extends Error {
  readonly status: number;
  readonly type: string;
  readonly detail: string;
  readonly hint: string;
}

/** No server has answered: the request may be done or not. */
export class Unanswered extends Error {}

/** A failure that another attempt would repeat: a handler throws it to end the retries. */
export class Permanent extends Error {}

/** The attempt is asked to end. */
export class Cancelled extends Error {}

/** How to read parameters: a default value for each, or the type of a required one. */
export type Spec = Record<string, string | number | boolean | Date | object | null | StringConstructor | NumberConstructor | BooleanConstructor | DateConstructor>;

/** The values of parameters that are read so. */
export type Values<S extends Spec> = {
  [K in keyof S]: S[K] extends StringConstructor ? string : S[K] extends NumberConstructor ? number : S[K] extends BooleanConstructor ? boolean
    : S[K] extends DateConstructor ? Date : S[K] extends string ? string : S[K] extends number ? number : S[K] extends boolean ? boolean : S[K];
};

export interface Log {
  info(text: string, fields?: Record<string, unknown>): void;
  warn(text: string, fields?: Record<string, unknown>): void;
  error(text: string, fields?: Record<string, unknown>): void;
}

export interface Step {
  outcome: string;
  attempt: number;
  result: any;
}

/** An attempt of a run, for its handler. */
export interface Run {
  readonly id: string;
  readonly job: string;
  readonly namespace: string;
  readonly kind: string;
  readonly scheduled: Date;
  readonly attempt: number;
  readonly shard: number;
  readonly shards: number;
  readonly node: string;
  /** The parameters as texts, by name. */
  readonly params: Record<string, string>;
  /** What the request for the run gave it, such as the trace of the attempt: traceparent, tracestate, baggage. */
  readonly metadata: Record<string, string>;
  /** The values of secrets, by the parameter that names them. */
  readonly secrets: Record<string, string>;
  /** For a step of a flow: the steps that it needs, and the item of a list with its index. */
  readonly steps: Record<string, Step>;
  readonly item: any;
  readonly index: number;
  /** Aborts when the attempt is asked to end: for fetch and the like. */
  readonly signal: AbortSignal;
  readonly cancelled: boolean;
  /** Writes into the output of the run. */
  readonly log: Log;
  readonly out: { write(text: string): void };
  readonly err: { write(text: string): void };
  print(...values: unknown[]): void;
  /** Throws Cancelled if the attempt is asked to end. */
  check(): void;
  /** Sleeps some milliseconds, or throws Cancelled as soon as the attempt is asked to end. */
  sleep(ms: number): Promise<void>;
  /** Writes the progress into the output, at most once a second and at the end. */
  progress(done: number, total: number): void;
}

export interface WorkerOptions {
  /** The servers of a cluster; any of them will do. */
  url: string | string[];
  token: string | (() => string | Promise<string>);
  /** The name of the node. Default: that of the host. */
  name?: string;
  /** A directory of this worker alone, in which results wait for a server that is away. */
  spool?: string;
  /** How many attempts run at once. Default: 8. */
  capacity?: number;
  labels?: Record<string, string>;
  /** How many milliseconds a worker that stops waits for its attempts. Default: 30,000. */
  drainTimeout?: number;
  /** Allows servers on other machines without TLS. */
  plainHttp?: boolean;
  log?: { warn(text: string): void };
}

/** Runs handlers. */
export class Worker {
  constructor(options: WorkerOptions);
  handler(name: string, call: (run: Run) => unknown): this;
  handler<S extends Spec>(name: string, spec: S, call: (run: Run, params: Values<S>) => unknown): this;
  /** Works until SIGTERM, SIGINT or stop(). Throws a BelfryError if the servers refuse the worker. */
  run(): Promise<void>;
  /** Ends run() when the attempts have ended. */
  stop(): void;
}

export interface RunInfo {
  id: string;
  state: string;
  outcome?: string;
  reason?: string;
  [field: string]: unknown;
}

export interface ClientOptions {
  url: string | string[];
  token: string | (() => string | Promise<string>);
  namespace?: string;
  /** For how many milliseconds an unanswered call is repeated. Default: 30,000. */
  patience?: number;
  plainHttp?: boolean;
}

/** Triggers runs and waits for them. Its token has the role runner or admin. */
export class Client {
  constructor(options: ClientOptions);
  /** Runs a job now. Requests with the same key make one run. */
  trigger(job: string, params?: Record<string, string | number | boolean | Date>, options?: { key?: string }): Promise<RunInfo>;
  get(run: string): Promise<RunInfo>;
  /** Waits until a run is done. */
  wait(run: string, options?: { timeout?: number }): Promise<RunInfo>;
}
