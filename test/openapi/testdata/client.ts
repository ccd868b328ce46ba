// Uses the types that openapi-typescript generates: client.js URL TOKEN NAMESPACE.
import createClient from "openapi-fetch";
import type { components, paths } from "./belfry.js";

declare const process: { argv: string[]; exitCode: number };

function expect(condition: unknown, what: string, answer: unknown): asserts condition {
  if (!condition) throw new Error(`${what}: ${JSON.stringify(answer)}`);
}

const [, , baseUrl, token, namespace = ""] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

const job: components["schemas"]["Job"] = {
  namespace,
  name: "report",
  schedule: { cron: ["0 3 1 1 *"], timezone: "Asia/Shanghai" },
  run: "echo hello",
  policy: { timeout: "90s", overlap: "queue", retry: { attempts: 2, on: ["failed", "lost"] } },
};
const path = { namespace, name: "report" };

const created = await client.PUT("/api/v1/jobs/{namespace}/{name}", { params: { path, header: { "If-None-Match": "*" } }, body: job });
expect(created.data?.job.uid, "create the job", created);

const again = await client.PUT("/api/v1/jobs/{namespace}/{name}", { params: { path, header: { "If-None-Match": "*" } }, body: job });
expect(again.error?.status === 412 && again.error.detail, "create it again", again);

const got = await client.GET("/api/v1/jobs/{namespace}/{name}", { params: { path } });
expect(got.data?.policy?.timeout === "1m30s", "get the job", got);

const listed = await client.GET("/api/v1/jobs", { params: { query: { namespace, page_size: 10 } } });
expect(listed.data?.items.length === 1 && listed.data.items[0]?.name === "report", "list the jobs", listed);

const run = await client.POST("/api/v1/jobs/{namespace}/{name}/run", { params: { path }, body: {} });
expect(run.data, "run the job", run);

const found = await client.GET("/api/v1/runs/{id}", { params: { path: { id: run.data.id } } });
expect(found.data?.job === `${namespace}/report`, "get the run", found);

const none = await client.GET("/api/v1/jobs/{namespace}/{name}", { params: { path: { namespace, name: "none" } } });
expect(none.error?.hint, "get a job that does not exist", none);
