// Workers and clients of Belfry, a distributed crontab.
export { BelfryError, Unanswered } from "./http.js";
export { Client } from "./client.js";
export { Cancelled, Permanent } from "./run.js";
export { Worker } from "./worker.js";
