// The plan of a pull request: mistakes in job files as annotations, and what belfry apply would change as a
// comment, which later pushes renew. It needs belfry on the PATH, and Node 18 without packages.

import { spawnSync } from "node:child_process";
import { appendFileSync, readFileSync } from "node:fs";

const env = process.env;
const marker = "<!-- belfry plan -->";
const shownMax = 60_000; // characters: a comment has at most 65,536

const files = env.FILES.split("\n").map((f) => f.trim()).filter(Boolean).flatMap((f) => ["-f", f]);

function belfry(...args) {
  const r = spawnSync("belfry", args, { encoding: "utf8", maxBuffer: 64 << 20 });
  if (r.error) throw new Error(`cannot run belfry: ${r.error.message}`);
  return r;
}

// escape keeps a text in one command of the workflow.
function escape(text, property = false) {
  text = text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
  return property ? text.replaceAll(":", "%3A").replaceAll(",", "%2C") : text;
}

// block is a text as a block of code, which the text cannot end.
function block(text, language = "") {
  if (text.length > shownMax) text = text.slice(0, shownMax) + "\n… the rest is cut off";
  const fence = "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((m) => m[0].length + 1)));
  return `${fence}${language}\n${text.trimEnd()}\n${fence}\n`;
}

function validate() {
  const r = belfry("validate", "-R", ...files, "-o", "name");
  if (r.status === 0) return "";
  for (const line of r.stderr.split("\n")) {
    const at = /^(.+?):(\d+):(\d+): (.*)$/.exec(line);
    if (at) console.log(`::error file=${escape(at[1], true)},line=${at[2]},col=${at[3]}::${escape(at[4])}`);
  }
  return r.stderr;
}

// plan returns the text of the plan, whether there are changes, and whether it failed.
function plan() {
  const mistakes = validate();
  if (mistakes) return { text: "The job files have mistakes.\n\n" + block(mistakes), changes: false, failed: true };
  if (!env.BELFRY_SERVER) return { text: "The job files have no mistakes. They were not compared with a server.\n", changes: false, failed: false };
  const args = ["diff", "-R", ...files];
  if (env.OWNER) args.push("--owner", env.OWNER);
  if (env.PRUNE === "true") args.push("--prune");
  const r = belfry(...args);
  switch (r.status) {
    case 0:
      return { text: "`belfry apply` would change nothing.\n", changes: false, failed: false };
    case 1:
      if (r.stdout) return { text: "`belfry apply` would change:\n\n" + block(r.stdout, "diff"), changes: true, failed: false };
  }
  return { text: "The server could not compare the job files.\n\n" + block(r.stderr), changes: false, failed: true };
}

async function github(method, path, body) {
  const response = await fetch(env.GITHUB_API_URL + path, {
    method,
    headers: {
      accept: "application/vnd.github+json",
      authorization: `Bearer ${env.GITHUB_TOKEN}`,
      "user-agent": "belfry-plan",
      "x-github-api-version": "2022-11-28",
    },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

// comment writes or renews the comment.
async function comment(text) {
  const event = JSON.parse(readFileSync(env.GITHUB_EVENT_PATH, "utf8"));
  const number = event.pull_request?.number;
  if (!number) return;
  const comments = `/repos/${env.GITHUB_REPOSITORY}/issues/${number}/comments`;
  const pageSize = 100;
  for (let page = 1; ; page++) {
    const list = await github("GET", `${comments}?per_page=${pageSize}&page=${page}`);
    const own = list.find((c) => c.body?.startsWith(marker));
    if (own) return github("PATCH", `/repos/${env.GITHUB_REPOSITORY}/issues/comments/${own.id}`, { body: text });
    if (list.length < pageSize) return github("POST", comments, { body: text });
  }
}

const { text, changes, failed } = plan();
if (env.GITHUB_STEP_SUMMARY) appendFileSync(env.GITHUB_STEP_SUMMARY, `## Belfry\n\n${text}`);
if (env.GITHUB_OUTPUT) appendFileSync(env.GITHUB_OUTPUT, `changes=${changes}\n`);
if (env.COMMENT === "true") {
  try {
    await comment(`${marker}\n### Belfry\n\n${text}`);
  } catch (e) {
    // A pull request from a fork has a token that may not write.
    console.log(`::warning::the plan is not in a comment: ${escape(e.message)}`);
  }
}
if (failed) process.exitCode = 1;
