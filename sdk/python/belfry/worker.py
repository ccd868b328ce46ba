"""A worker: it claims runs of jobs with `run: {handler: NAME}` and calls the handlers."""
from __future__ import annotations

import asyncio, base64, dataclasses, inspect, json, logging, queue, re, signal, socket, threading, time, traceback, typing
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, List, Optional, Set, Union

from ._http import BelfryError, Servers, SessionOver, Unanswered, ulid
from .run import Cancelled, Output, Permanent, Run, convert, moment, seconds
from .spool import Spool

PROTOCOL = 1
RENEW_EVERY, POLL_EVERY, HINTS_WAIT = 2.0, 1.0, 20
# From the end of an attempt until others may count it as lost; how long a worker that stops waits for an answer.
FENCE_MARGIN, STOP_WITHIN, UNDECIDED_AGAIN = 3.0, 5.0, 5.0
FATAL = {401, 403, 426}  # the token or the version is refused
BATCH_MAX, BATCH_BYTES, RESULT_MAX = 100, 1 << 20, 64 << 10

log = logging.getLogger("belfry")


def boot() -> float:
    """A clock that nothing sets, and that runs while the machine is suspended where there is such a one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def now() -> str:
    return datetime.now(timezone.utc).isoformat()


class _Attempt:
    """An attempt that this worker has claimed."""

    def __init__(self, session: "_Session", key: dict, claim: dict, received: float) -> None:
        self.session, self.key, self.claim = session, key, claim
        r, policy = claim["run"], claim["job"].get("policy") or {}
        self.output = Output(r["id"], r["attempt"])
        self.run = Run(claim, self.output)
        handler = claim["job"]["run"]["handler"]
        self.handler: str = handler["name"] if isinstance(handler, dict) else handler
        self.due = received + max(0.0, (moment(r["due"]) - moment(claim["now"])).total_seconds())
        self.grace = seconds(policy.get("kill_grace", ""))
        self.timeout = seconds(policy.get("timeout", ""))
        self.fence = None if r.get("unfenced") else max(0.001, r["lost_after_ms"] / 1000 - self.grace - FENCE_MARGIN)
        self.started: Optional[str] = None
        self.result: Optional[dict] = None

    def fenced(self) -> bool:
        return self.fence is not None and boot() > self.session.renewed + self.fence


class _Session:
    """A session, with what its threads share."""

    def __init__(self) -> None:
        self.id, self.renewed = ulid(), boot()
        self.over, self.drained = threading.Event(), False
        self.look, self.check = threading.Event(), threading.Event()
        self.pending: Set[str] = set()  # tokens of claims without an answer
        self.doubtful: List[dict] = []  # claims that were given up without an answer


class Worker:
    """Runs handlers. `url` may be a list of the servers of a cluster, and `token` a function that reads it.

    `spool` is a directory of this worker alone, in which results wait for a server that is away, and by which
    the next process knows what this one has begun. Without it they are lost with the process.
    """

    def __init__(self, url: Union[str, List[str]], token: Union[str, Callable[[], str]], *, name: Optional[str] = None,
                 spool: Optional[str] = None, capacity: int = 8, labels: Optional[Dict[str, str]] = None,
                 drain_timeout: float = 30, plain_http: bool = False, ca: Optional[str] = None) -> None:
        self._servers = Servers(url, token, plain_http=plain_http, ca=ca)
        self._name, self._capacity, self._labels, self._drain = name or socket.gethostname(), capacity, labels or {}, drain_timeout
        self._spool_path, self._complained = spool, 0.0
        self._handlers: Dict[str, Callable] = {}
        self._lock = threading.Lock()  # guards what follows
        self._attempts: Dict[str, _Attempt] = {}  # by token, until their result is answered
        self._results: "queue.Queue[dict]" = queue.Queue()
        self._unreported: Dict[str, float] = {}  # since when
        self._clock = (0.0, boot(), 9e9)  # of the store, at a moment, with its error
        self._stopping, self._quit, self._error = threading.Event(), threading.Event(), typing.cast(Optional[BaseException], None)

    def handler(self, name: str) -> Callable[[Callable], Callable]:
        """Registers a function, which may be async: `run` is its Run, every other argument a parameter of the job."""
        if not re.fullmatch(r"[A-Za-z0-9._/-]{1,256}", name):
            raise ValueError(f"{name!r} is not the name of a handler (letters, digits, dots, dashes, underscores and slashes)")

        def register(function: Callable) -> Callable:
            self._handlers[name] = function
            return function
        return register

    def stop(self) -> None:
        """Ends run() when the attempts have ended. It may be called from any thread and from signal handlers."""
        self._stopping.set()

    def run(self) -> None:
        """Works until SIGTERM, SIGINT or stop(). Raises BelfryError if the servers refuse the worker."""
        if not self._handlers:
            raise ValueError("the worker has no handlers")
        self._spool = Spool(self._spool_path)
        if not self._spool.path:
            log.warning("the worker has no spool: results without an answer are lost with the process")
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        for result in self._spool.results:
            self._report(result)
        try:
            self._session = _Session()  # the reporter waits for a real one
            self._thread(None, self._report_loop)
            while not self._stopping.is_set():
                session = _Session()
                if not self._join(session):
                    break
                self._session = session
                self._work(session)
        finally:
            self._quit.set()
        if self._error:
            raise self._error

    def _thread(self, session: Optional[_Session], loop: Callable, *args: Any) -> threading.Thread:
        def guarded() -> None:
            try:
                loop(*args)
            except SessionOver:
                if session:
                    self._over(session)
            except Unanswered:
                pass  # the worker stops
            except BaseException as e:  # the token was revoked, or a mistake of this package
                self._fail(e)
        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._stopping.set()
        self._quit.set()

    def _say(self, text: str) -> None:
        if boot() - self._complained > 10:
            self._complained = boot()
            log.warning("no server answers: %s", text)

    def _call(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        return self._servers.call(method, "/worker" + path, body, **{"quit": self._quit, "said": self._say, **how})

    def _join(self, session: _Session) -> bool:
        body = {"oldest_protocol": PROTOCOL, "newest_protocol": PROTOCOL, "session": session.id, "node": self._name,
                "machine": self._spool.machine, "directory": self._spool.path or "/", "handlers": sorted(self._handlers),
                "handlers_only": True, "labels": self._labels, "capacity": self._capacity, "version": "python 1.0.0"}
        while True:
            session.renewed = sent = boot()
            try:
                joined = self._call("POST", "/sessions", body, within=1)
                break
            except Unanswered:
                if self._stopping.is_set():
                    return False
        if joined["protocol"] != PROTOCOL:
            raise BelfryError(426, "protocol", f"the server speaks version {joined['protocol']} of the protocol of workers, and this worker {PROTOCOL}")
        self._sample(joined["now"], sent)
        self._thread(session, self._settle, session, joined.get("predecessors") or [])
        return True

    # The clock of the store.

    def _sample(self, text: str, sent: float) -> None:
        received = boot()
        error = (received - sent) / 2
        with self._lock:
            if error <= self._clock[2] + (received - self._clock[1]) / 1000:  # a clock drifts
                self._clock = (moment(text).timestamp(), (sent + received) / 2, error)

    def _store_now(self) -> float:
        with self._lock:
            return self._clock[0] + boot() - self._clock[1]

    # A session.

    def _work(self, session: _Session) -> None:
        for loop in (self._renew_loop, self._hint_loop, self._guard_loop, self._compare_loop, self._output_loop):
            self._thread(session, loop, session)
        try:
            self._claim_loop(session)
        except SessionOver:
            self._over(session)
        except Unanswered:
            pass  # the worker stops
        if self._stopping.is_set() and not self._quit.is_set():
            self._leave(session)

    def _over(self, session: _Session) -> None:
        if not session.over.is_set():
            log.warning("the session is over; beginning another one")
        session.over.set()
        session.look.set()
        self._end_all("lost", "the session of the worker is over", lambda a: a.session is session)

    def _end_all(self, outcome: str, reason: str, which: Callable[[_Attempt], bool]) -> None:
        with self._lock:
            chosen = [a for a in self._attempts.values() if a.result is None and which(a)]
        for a in chosen:
            a.run.end(outcome, reason)

    def _leave(self, session: _Session) -> None:
        """Lets the attempts end, reports them, and ends the session."""
        try:
            self._call("POST", f"/sessions/{session.id}/leave", within=STOP_WITHIN)
            self._release(session, session.doubtful)
        except (Unanswered, BelfryError) as e:
            log.warning("cannot leave: %s", e)
        def wait(seconds: float, some: Callable[[], Any]) -> None:
            end = boot() + seconds
            while some() and boot() < end and not self._quit.wait(0.02):
                pass

        running = lambda: [a for a in list(self._attempts.values()) if a.result is None]  # noqa: E731
        wait(self._drain, lambda: not session.over.is_set() and running())
        self._end_all("lost", "the worker has stopped", lambda a: True)
        wait(max([STOP_WITHIN] + [a.grace for a in running()]), running)
        wait(STOP_WITHIN, lambda: self._unreported)
        if self._attempts:
            log.warning("%d attempts have no answer from a server; those in the spool are reported by the next process", len(self._attempts))
            return
        try:
            self._call("DELETE", f"/sessions/{session.id}", within=STOP_WITHIN)
        except (Unanswered, BelfryError) as e:
            log.warning("cannot end the session: %s", e)
        session.over.set()

    def _renew_loop(self, session: _Session) -> None:
        path, begun = f"/worker/sessions/{session.id}", boot()
        while not session.over.is_set() and not self._quit.is_set():
            try:
                with self._lock:
                    late = sum(boot() - since > 1 for since in self._unreported.values())
                    running = len(self._attempts)
                sent = boot()
                ahead = int((time.time() - self._store_now()) * 1000)
                self._servers.once("POST", path + "/renew", {"running": running, "ready": 0, "unreported": late, "clock_ahead_ms": ahead}, 3)
                session.renewed, sent = sent, boot()
                members = self._servers.once("GET", path + "/members", None, 3)
                self._sample(members["now"], sent)
                drained = any(m["id"] == session.id and m.get("drain") for m in members["sessions"])
                if drained != session.drained:
                    log.warning("the node is drained" if drained else "the node accepts runs again")
                    session.drained = drained
                    session.look.set()
            except Unanswered as e:
                self._say(str(e))
            begun += RENEW_EVERY * max(1, int((boot() - begun) / RENEW_EVERY))
            self._quit.wait(max(0.0, begun + RENEW_EVERY - boot()))

    def _hint_loop(self, session: _Session) -> None:
        place = ""
        while not session.over.is_set() and not self._quit.is_set():
            hints = self._call("GET", f"/sessions/{session.id}/hints?wait={HINTS_WAIT}" + ("&after=" + place if place else ""), timeout=HINTS_WAIT + 10)
            place = hints["place"]
            if "cancels" in hints["hints"]:
                session.check.set()
            session.look.set()
            time.sleep(0.05)

    def _claim_loop(self, session: _Session) -> None:
        known: List[dict] = []
        polled, woken = 0.0, True
        while not session.over.is_set() and not self._stopping.is_set() and not self._quit.is_set():
            with self._lock:
                room = self._capacity - len(self._attempts)
            known = known if room > 0 and not session.drained else []
            due = [r for r in known if moment(r["due"]).timestamp() <= self._store_now()][:room]
            if due:
                known = [r for r in known if r not in due]
                self._claim(session, due)
                continue
            if room > 0 and not session.drained and (woken or boot() - polled >= POLL_EVERY):
                polled = boot()
                until = datetime.fromtimestamp(self._store_now(), timezone.utc) + timedelta(seconds=2)
                known = self._call("GET", f"/sessions/{session.id}/ready?limit=500&until={until.isoformat().replace('+00:00', 'Z')}", quit=self._stopping)["runs"] or []
            wait = min([POLL_EVERY] + [moment(r["due"]).timestamp() - self._store_now() for r in known])
            woken = session.look.wait(max(0.02, wait))
            session.look.clear()

    def _claim(self, session: _Session, ready: List[dict]) -> None:
        keys = [{"job": r["job"], "run": r["id"], "attempt": r["attempt"], "token": ulid()} for r in ready]
        with self._lock:
            session.pending.update(k["token"] for k in keys)
        try:
            claims = self._call("POST", f"/sessions/{session.id}/claims", {"attempts": keys}, quit=self._stopping)["claims"]
        except Unanswered:
            session.doubtful = keys
            raise
        except BelfryError as e:
            if isinstance(e, SessionOver) or e.status in FATAL:
                raise
            log.error("the claims of %d runs are refused: %s", len(keys), e)
            claims = []
        received = boot()
        started = [_Attempt(session, key, claim, received) for key, claim in zip(keys, claims) if claim["verdict"] == "started"]
        with self._lock:
            session.pending.difference_update(k["token"] for k in keys)
            self._attempts.update((a.key["token"], a) for a in started)
        for a in started:
            threading.Thread(target=self._execute, args=(a,), daemon=True).start()
        if not started:
            session.over.wait(0.2)  # nothing was granted: others have them, or it is too early

    def _guard_loop(self, session: _Session) -> None:
        """Ends attempts that others may count as lost, whatever the server does."""
        while not session.over.is_set() and not self._quit.is_set():
            self._end_all("lost", "the worker has reached no server for too long", lambda a: a.session is session and a.fenced())
            time.sleep(0.1)

    def _compare_loop(self, session: _Session) -> None:
        suspects: Set[str] = set()  # tokens of the last answer that this worker does not know
        while not session.over.is_set() and not self._quit.is_set():
            session.check.wait(1)
            session.check.clear()
            with self._lock:
                mine = {t: a for t, a in self._attempts.items() if a.session is session and a.result is None}
            if not mine and not suspects and not session.pending:
                continue
            runs = {r["token"]: r for r in self._call("GET", f"/sessions/{session.id}/runs")["runs"]}
            for token, a in mine.items():
                if token not in runs:
                    a.run.end("lost", "the store has given the attempt to another worker")
                elif runs[token].get("cancel_by"):
                    why = (runs[token].get("cancel_reason") or "").split("\x1f")[0]
                    a.run.end("cancelled", "cancelled by " + runs[token]["cancel_by"] + (": " + why if why else ""))
            with self._lock:
                unknown = {t for t in runs if t not in self._attempts and t not in session.pending and t not in self._unreported}
            self._release(session, [runs[t] for t in unknown & suspects])
            suspects = unknown - suspects

    def _release(self, session: _Session, runs: List[dict], of: str = "") -> None:
        if runs:
            self._call("POST", f"/sessions/{of or session.id}/releases",
                       {"attempts": [{"job": r["job"], "run": r.get("id") or r["run"], "attempt": r["attempt"], "token": r["token"]} for r in runs]})

    def _settle(self, session: _Session, predecessors: List[str]) -> None:
        """Settles the attempts of earlier processes on the directory."""
        for old in predecessors:
            try:
                self._call("POST", f"/sessions/{old}/leave")
                runs = self._call("GET", f"/sessions/{old}/runs")["runs"]
            except SessionOver:
                continue
            with self._lock:
                runs = [r for r in runs if r["token"] not in self._attempts and r["token"] not in self._unreported]
            self._release(session, [r for r in runs if self._spool.path and r["token"] not in self._spool.began], old)
            for r in runs:
                if r["token"] in self._spool.began or not self._spool.path:
                    self._report({"job": r["job"], "run": r["id"], "attempt": r["attempt"], "token": r["token"],
                                  "outcome": "lost", "reason": "the process of the worker has ended"})
        for token in self._spool.began:
            if token not in self._unreported:
                self._spool.forget(token)

    def _output_loop(self, session: _Session) -> None:
        while not session.over.is_set() and not self._quit.is_set():
            time.sleep(1)
            with self._lock:
                running = [a for a in self._attempts.values() if a.session is session and a.result is None]
            for a in running:
                chunks = a.output.chunks()
                if chunks and a.result is None:
                    self._call("POST", f"/sessions/{session.id}/output", {"chunks": chunks})
                    a.output.answered(chunks)

    # An attempt.

    def _execute(self, a: _Attempt) -> None:
        timer = None
        try:
            arguments = self._arguments(a)
            self._secrets(a, arguments)
            a.run._ended.wait(max(0.0, a.due - boot()))
            if a.fenced() or a.run.cause and a.run.cause[0] == "lost":
                return self._unstarted(a)
            a.run.check()
            self._spool.begin(a.key["token"])
            a.started = now()
            if a.timeout:
                timer = threading.Timer(a.timeout, a.run.end, ("timed_out", "its timeout has passed"))
                timer.daemon = True
                timer.start()
            value = self._invoke(a, arguments)
            end = {"outcome": "succeeded"}
            if value is not None:
                text = a.output.text(json.dumps(value, ensure_ascii=False, default=lambda v: dataclasses.asdict(v) if dataclasses.is_dataclass(v) else str(v)))
                if len(text.encode()) > RESULT_MAX:
                    raise Permanent(f"the result has {len(text.encode())} bytes, and at most {RESULT_MAX} are allowed")
                a.run.out.write(text + "\n")
                end["value"] = base64.b64encode(text.encode()).decode()
        except _Postponed as e:
            end = {"outcome": "failed", "reason": str(e), "postponed": True}
        except BaseException as e:
            end = self._failure(a, e)
        finally:
            if timer:
                timer.cancel()
        chunks = a.output.chunks(end=True)
        self._report({**a.key, "started": a.started or now(), "ended": now(), **end, "output": chunks, "output_bytes": a.output.total}, a)

    def _failure(self, a: _Attempt, e: BaseException) -> Dict[str, Any]:
        text = a.output.text(str(e) or type(e).__name__)[:4000]
        if a.run.cause:
            outcome, reason = a.run.cause
            return {"outcome": outcome, "reason": reason if isinstance(e, (Cancelled, asyncio.CancelledError)) else f"{reason}: {text}"}
        if a.started:
            a.run.err.write(traceback.format_exc())
        return {"outcome": "failed", "reason": text, "cause": text.strip().split("\n")[0][:1000], "permanent": isinstance(e, Permanent)}

    def _arguments(self, a: _Attempt) -> Dict[str, Any]:
        function = self._handlers[a.handler]
        types, arguments = typing.get_type_hints(function), {}
        for name, p in inspect.signature(function).parameters.items():
            text = a.run.params.get(name, "")
            if name == "run" or types.get(name) is Run:
                arguments[name] = a.run
            elif p.kind is p.VAR_KEYWORD:
                arguments.update({n: v for n, v in a.run.params.items() if n not in arguments})
            elif text == "" and types.get(name, str) is not str or name not in a.run.params:
                if p.default is p.empty:
                    raise Permanent(f"the parameter {name} of the handler has no value")
            else:
                try:
                    arguments[name] = convert(text, types.get(name, str))
                except (ValueError, KeyError, TypeError) as e:
                    raise Permanent(f"the parameter {name} is {text!r}, which is no {getattr(types[name], '__name__', types[name])}: {e}") from e
        return arguments

    def _secrets(self, a: _Attempt, arguments: Dict[str, Any]) -> None:
        declared = a.claim["job"].get("params") or {}
        named = {n: a.run.params[n] for n, p in declared.items() if isinstance(p, dict) and p.get("type") == "secret" and a.run.params[n]}
        if not named:
            return
        if not self._servers.private():
            raise Permanent("secrets come over TLS alone, and a server of this worker has an address with http")
        end = boot() + 1
        while True:
            got = self._call("POST", f"/sessions/{a.session.id}/secrets", {"attempt": a.key, "names": sorted(set(named.values()))})
            if got.get("missing"):
                near = f"; did you mean {got['near']}?" if got.get("near") else ""
                raise Permanent(f"the secret {got['missing']} does not exist{near}")
            if not got.get("problem"):
                break
            if boot() > end:
                raise _Postponed("its secrets cannot be read: " + got["problem"])
            a.run.sleep(0.4)
        a.output.mask(list(got["values"].values()))
        for name, secret in named.items():
            a.run.secrets[name] = got["values"][secret]
            if name in arguments:
                arguments[name] = got["values"][secret]

    def _invoke(self, a: _Attempt, arguments: Dict[str, Any]) -> Any:
        function = self._handlers[a.handler]
        if not inspect.iscoroutinefunction(function):
            return function(**arguments)

        async def work() -> Any:
            task = asyncio.ensure_future(function(**arguments))
            while not (await asyncio.wait([task], timeout=0.1))[0]:
                if a.run.cancelled:
                    task.cancel()
            return await task
        return asyncio.run(work())

    def _unstarted(self, a: _Attempt) -> None:
        with self._lock:
            self._attempts.pop(a.key["token"], None)
        try:
            self._release(a.session, [a.key])
        except (Unanswered, BelfryError) as e:
            log.warning("cannot release run %s: %s", a.run.id, e)

    # Results.

    def _report(self, result: dict, a: Optional[_Attempt] = None) -> None:
        try:
            self._spool.keep(result)
        except OSError as e:
            log.error("cannot keep the result of run %s in the spool: %s", result["run"], e)
        with self._lock:
            self._unreported[result["token"]] = boot()
            if a:
                a.result = result
        self._results.put(result)

    def _report_loop(self) -> None:
        while True:
            batch = [self._results.get()]
            size = len(json.dumps(batch[0]))
            while size < BATCH_BYTES and len(batch) < BATCH_MAX and not self._results.empty():
                batch.append(self._results.get())
                size += len(json.dumps(batch[-1]))
            try:
                self._send(batch)
            except SessionOver:
                self._session.over.wait(1)
                time.sleep(0.2)
                for result in batch:
                    self._results.put(result)

    def _send(self, batch: List[dict]) -> None:
        try:
            answers = self._call("POST", f"/sessions/{self._session.id}/results", {"results": batch})["results"]
        except BelfryError as e:
            if isinstance(e, SessionOver) or e.status in FATAL:
                raise
            if len(batch) > 1:
                for result in batch:
                    self._send([result])
                return
            log.error("the result of run %s is refused: %s", batch[0]["run"], e)
            answers = [{"accepted": False}]
        for result, answer in zip(batch, answers):
            if answer.get("undecided"):
                again = threading.Timer(UNDECIDED_AGAIN, self._results.put, (result,))
                again.daemon = True
                again.start()
                continue
            self._spool.forget(result["token"])
            with self._lock:
                self._unreported.pop(result["token"], None)
                self._attempts.pop(result["token"], None)
        self._session.look.set()


class _Postponed(Exception):
    """The attempt had no effect: the run is due again later."""
