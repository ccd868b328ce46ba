"""A worker of Belfry in Python, with the standard library alone: docs/api.md has its protocol.

    belfry token create edge --role worker >edge-token
    BELFRY_SERVER=http://127.0.0.1:8420 BELFRY_TOKEN=$(cat edge-token) python3 worker.py

It runs the handler "greet": a job calls it with run: {handler: greet}. It stops at SIGTERM.
"""
import base64, json, os, secrets, signal, socket, struct, threading, time, urllib.error, urllib.request
from datetime import datetime, timezone

SERVER, TOKEN = os.environ["BELFRY_SERVER"], os.environ["BELFRY_TOKEN"].strip()
stopping = threading.Event()


def greet(params):
    """A handler returns its output; an exception is a failure."""
    return "hello " + params.get("name", "world") + "\n"


HANDLERS = {"greet": greet}


def ulid():
    """Identities are ULIDs: 48 bits of milliseconds and 80 random bits in Crockford's base 32."""
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[number >> shift & 31] for shift in range(125, -1, -5))


class Over(Exception):
    """The session is over: begin another one."""


def call(method, path, body=None):
    """Makes a request until a server has answered: each may be repeated."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}
    wait = 0.2
    while True:
        try:
            request = urllib.request.Request(SERVER + "/api/v1/worker" + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as e:
            if e.code == 410:
                raise Over from e
            if e.code < 500 and e.code != 429:
                raise SystemExit(e.read().decode()) from e
        except OSError:
            pass  # it may have been done or not
        time.sleep(wait + wait * secrets.randbelow(100) / 100)
        wait = min(2 * wait, 5)


def parse(text):
    return datetime.fromisoformat(text.split(".")[0].rstrip("Z") + "+00:00")


def now():
    return datetime.now(timezone.utc).isoformat()


def run(session, claim, attempt):
    """Runs an attempt that was claimed, when it is due, and reports how it ended."""
    time.sleep(max(0, (parse(claim["run"]["due"]) - parse(claim["now"])).total_seconds()))
    result = dict(attempt, started=now(), outcome="succeeded")
    declared = claim["job"].get("params", {})
    params = {name: p if isinstance(p, str) else p.get("default", "") for name, p in declared.items()}
    try:
        text = HANDLERS[claim["job"]["run"]["handler"]](params | claim["run"].get("params", {})).encode()
    except Exception as e:  # whatever the handler raises
        text, result["outcome"], result["reason"] = b"", "failed", repr(e)
    chunks = []
    for seq, at in enumerate(range(0, len(text), 32000)):
        part = text[at:at + 32000]
        record = b"\0" + b"\0" + struct.pack("<H", len(part)) + part  # raw, standard output, no time since
        chunks.append({"run": attempt["run"], "attempt": attempt["attempt"], "seq": seq, "offset": at, "bytes": len(part),
                       "time": now(), "data": base64.b64encode(record).decode()})
    call("POST", f"/sessions/{session}/results", {"results": [dict(result, ended=now(), output=chunks, output_bytes=len(text))]})


def renew(session, over):
    while not over.wait(2):
        try:
            call("POST", f"/sessions/{session}/renew", {"running": 0, "ready": 0, "clock_ahead_ms": 0})
        except Over:
            over.set()


def work():
    """Works under one session, until it is over or the worker stops."""
    session, over, claimed = ulid(), threading.Event(), []
    call("POST", "/sessions", {
        "oldest_protocol": 1, "newest_protocol": 1, "session": session, "node": "python-" + socket.gethostname(), "machine": ulid(),
        "directory": "/", "capacity": 8, "handlers": sorted(HANDLERS), "handlers_only": True})
    threading.Thread(target=renew, args=(session, over), daemon=True).start()
    place = ""
    while not over.is_set() and not stopping.is_set():
        ready = call("GET", f"/sessions/{session}/ready?limit=8")["runs"] or []
        attempts = [{"job": r["job"], "run": r["id"], "attempt": r["attempt"], "token": ulid()} for r in ready]
        claims = call("POST", f"/sessions/{session}/claims", {"attempts": attempts})["claims"] if attempts else []
        for claim, attempt in zip(claims, attempts):
            if claim["verdict"] == "started":
                claimed.append(threading.Thread(target=run, args=(session, claim, attempt)))
                claimed[-1].start()
        place = call("GET", f"/sessions/{session}/hints?wait=1&after={place}")["place"]
    call("POST", f"/sessions/{session}/leave")
    for thread in claimed:
        thread.join()
    over.set()
    call("DELETE", f"/sessions/{session}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while not stopping.is_set():
        try:
            work()
        except Over:
            pass
