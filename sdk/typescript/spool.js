// Keeps what a server does not have yet in a directory, so that it survives the process.
import { randomUUID } from "node:crypto";
import fs from "node:fs";
import path from "node:path";

const read = (file) => {
  try {
    return fs.readFileSync(file, "utf8").trim();
  } catch {
    return "";
  }
};

/** Results without an answer, and marks of attempts that have begun. Without a directory it keeps nothing. */
export class Spool {
  constructor(directory) {
    Object.assign(this, { path: directory && path.resolve(directory), began: new Set(), results: [], machine: randomUUID() });
    if (!this.path) return;
    fs.mkdirSync(this.path, { recursive: true, mode: 0o700 });
    const boot = read("/proc/sys/kernel/random/boot_id");
    this.machine = (read("/etc/machine-id") || "machine") + "/" + boot;
    this.lock(boot);
    for (const name of fs.readdirSync(this.path).sort()) {
      const [token, ...kind] = name.split(".");
      if (kind.join(".") === "begun") this.began.add(token);
      if (kind.join(".") !== "json") continue;
      try {
        this.results.push(JSON.parse(read(path.join(this.path, name))));
      } catch {
        fs.renameSync(path.join(this.path, name), path.join(this.path, name + ".damaged"));
      }
    }
  }

  /** Node has no locks of files: the file has the process that uses the directory, and the boot that it is of. */
  lock(boot) {
    const file = path.join(this.path, "process"), own = `${process.pid} ${boot} ${started(process.pid)}`;
    const [pid, then, since] = read(file).split(" ");
    if (pid && Number(pid) !== process.pid && then === boot && since === started(pid)) {
      throw new Error(`${this.path} is used by the process ${pid}: each worker needs a directory of its own`);
    }
    this.write("process", own);
  }

  begin(token) {
    this.write(token + ".begun", "");
  }

  keep(result) {
    this.write(result.token + ".json", JSON.stringify(result));
  }

  forget(token) {
    if (this.path) for (const kind of [".json", ".begun"]) fs.rmSync(path.join(this.path, token + kind), { force: true });
  }

  write(name, text) {
    if (!this.path) return;
    const fresh = path.join(this.path, name + ".new");
    const file = fs.openSync(fresh, "w", 0o600);
    fs.writeSync(file, text);
    fs.fsyncSync(file);
    fs.closeSync(file);
    fs.renameSync(fresh, path.join(this.path, name));
  }
}

/** When a process was started, by the kernel; empty for none. */
const started = (pid) => read(`/proc/${pid}/stat`).replace(/^.*\) /, "").split(" ")[19] ?? "";
