"""What a handler sees of its run."""
from __future__ import annotations

import base64, collections, json, logging, re, struct, threading, time
from datetime import date, datetime, timezone
from enum import Enum
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Union, get_args, get_origin

HEAD_MAX, TAIL_MAX, CHUNK_MAX = 512 << 10, 448 << 10, 32000  # bytes of the output that are kept
MASK = "***"


class Permanent(Exception):
    """A failure that another attempt would repeat: a handler raises it to end the retries."""


class Cancelled(Exception):
    """The attempt is asked to end."""


#: A step of the flow that this step needs.
Step = NamedTuple("Step", [("outcome", str), ("attempt", int), ("result", Any)])


def moment(text: str) -> datetime:
    """Reads a moment with up to nine decimals."""
    m = re.fullmatch(r"(.{19})(?:\.(\d+))?(Z|[+-]\d\d:\d\d)", text)
    if not m:
        raise ValueError(f"{text!r} is no moment")
    return datetime.fromisoformat(m[1] + "." + (m[2] or "")[:6].ljust(6, "0") + ("+00:00" if m[3] == "Z" else m[3]))


def seconds(text: str) -> float:
    """Reads a duration such as 1m30s."""
    units = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
    return sum(float(n) * units[unit] for n, unit in re.findall(r"([\d.]+)(ns|us|µs|ms|s|m|h|d|w)", text))


def convert(text: str, to: Any) -> Any:
    """Reads the value of a parameter as a type."""
    if get_origin(to) is Union:  # Optional
        to = [t for t in get_args(to) if t is not type(None)][0]
    if to in (str, Any):
        return text
    if to is bool:
        return {"true": True, "false": False}[text.lower()]
    if to in (int, float) or isinstance(to, type) and issubclass(to, Enum):
        return to(text)
    return {datetime: moment, date: date.fromisoformat}.get(to, json.loads)(text)


class Output:
    """The output of an attempt: its beginning, which is sent while it runs, and its end."""

    def __init__(self, run: str, attempt: int) -> None:
        self.run, self.attempt, self.lock = run, attempt, threading.Lock()
        self.masked: List[bytes] = []  # values of secrets, the longest first
        self.held = {0: b"", 1: b""}  # by stream: what may be the beginning of a secret
        self.total = self.seq = self.tailed = 0
        self.head: List[tuple] = []  # (offset, time, stream, bytearray): not yet in a chunk
        self.tail: Deque[tuple] = collections.deque()
        self.unsent: List[dict] = []  # chunks without an answer

    def mask(self, values: List[str]) -> None:
        self.masked = sorted({v.encode() for v in values if v}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Replaces secrets in a text."""
        for value in self.masked:
            text = text.replace(value.decode(), MASK)
        return text

    def write(self, stream: int, data: bytes, end: bool = False) -> None:
        with self.lock:
            if self.masked:
                data = self.held[stream] + data
                for value in self.masked:
                    data = data.replace(value, MASK.encode())
                keep = 0 if end else len(self.masked[0]) - 1
                cut = max(0, len(data) - keep)
                data, self.held[stream] = data[:cut], data[cut:]
            for at in range(0, len(data), CHUNK_MAX):
                self._add(stream, data[at:at + CHUNK_MAX])

    def _add(self, stream: int, data: bytes) -> None:
        now, into = time.time(), self.tail if self.total + len(data) > HEAD_MAX else self.head
        last = into[-1] if into else None
        if last and last[2] == stream and now - last[1] < 0.1 and len(last[3]) + len(data) <= CHUNK_MAX:
            last[3].extend(data)
        else:
            into.append((self.total, now, stream, bytearray(data)))
        self.total += len(data)
        if into is self.tail:
            self.tailed += len(data)
            while self.tailed > TAIL_MAX:
                self.tailed -= len(self.tail.popleft()[3])

    def chunks(self, end: bool = False) -> List[dict]:
        """Returns the chunks without an answer; at the end those of the last output, too."""
        if end:
            self.write(0, b"", True)
            self.write(1, b"", True)
        with self.lock:
            records = self.head + (list(self.tail) if end else [])
            self.head = []
            while records:
                size = n = 0
                while n < len(records) and size + len(records[n][3]) <= CHUNK_MAX and (n == 0 or records[n][0] == records[0][0] + size):
                    size += len(records[n][3])
                    n += 1
                self.unsent.append(self._chunk(records[:n], size))
                records = records[n:]
            return list(self.unsent)

    def _chunk(self, records: List[tuple], size: int) -> dict:
        data, before = bytearray(b"\0"), records[0][1]
        for _, at, stream, text in records:
            mark = max(0, int((at - before) * 1000)) << 1 | stream
            before = at
            while mark > 127:
                data.append(mark & 127 | 128)
                mark >>= 7
            data += bytes([mark]) + struct.pack("<H", len(text)) + text
        self.seq += 1
        return {"run": self.run, "attempt": self.attempt, "seq": self.seq - 1, "offset": records[0][0], "bytes": size,
                "time": datetime.fromtimestamp(records[0][1], timezone.utc).isoformat(), "data": base64.b64encode(data).decode()}

    def answered(self, chunks: List[dict]) -> None:
        with self.lock:
            self.unsent = [c for c in self.unsent if c["seq"] > chunks[-1]["seq"]]


class Stream:
    """A text file that writes into the output of a run: print("…", file=run.out)."""

    def __init__(self, output: Output, stream: int) -> None:
        self._output, self._stream = output, stream

    def write(self, text: str) -> int:
        self._output.write(self._stream, text.encode("utf-8", "surrogateescape"))
        return len(text)

    def flush(self) -> None:
        """Does nothing: output is sent every second."""


class Run:
    """An attempt of a run, for its handler. Its methods may be called from any thread."""

    def __init__(self, claim: Dict[str, Any], output: Output) -> None:
        r, declared = claim["run"], claim["job"].get("params") or {}
        self.id: str = r["id"]
        self.job: str = r["name"]
        self.namespace: str = r["namespace"]
        self.kind: str = r["kind"]
        self.scheduled: datetime = moment(r["scheduled"])
        self.attempt: int = r["attempt"]
        self.shard: int = r.get("shard", 0)
        self.shards: int = max(1, r.get("shards", 0))
        self.node: str = r.get("node", "")
        given = r.get("params") or {}
        #: The parameters as texts, by name.
        self.params: Dict[str, str] = {n: given.get(n, p if isinstance(p, str) else p.get("default", "")) for n, p in declared.items()}
        #: What the request for the run gave it, such as the trace of the attempt: traceparent, tracestate, baggage.
        self.metadata: Dict[str, str] = {n[5:]: v for n, v in given.items() if n.startswith("meta.")}
        #: The values of secrets, by the parameter of the type secret that names them.
        self.secrets: Dict[str, str] = {}
        #: For a step of a flow: the steps that it needs, and the item of a list with its index.
        self.steps: Dict[str, Step] = {n: Step(s.get("outcome", ""), s.get("attempt", 0), _unpack(s.get("result"))) for n, s in (claim.get("steps") or {}).items()}
        self.item: Any = _unpack(claim.get("item"))
        self.index: int = claim.get("index", 0)
        self.out, self.err = Stream(output, 0), Stream(output, 1)
        #: A logger that writes into the output of the run.
        self.log = logging.Logger("belfry.run", logging.INFO)
        handler = logging.StreamHandler(self.err)  # type: ignore[arg-type]
        handler.setFormatter(logging.Formatter("level=%(levelname)s msg=%(message)s"))
        self.log.addHandler(handler)
        self.cause: Optional[tuple] = None  # (outcome, reason) of the request to end
        self._ended, self._lock, self._progress = threading.Event(), threading.Lock(), 0.0

    @property
    def cancelled(self) -> bool:
        """Tells whether the attempt is asked to end: it was cancelled, its time is over, or the worker stops."""
        return self._ended.is_set()

    def check(self) -> None:
        """Raises Cancelled if the attempt is asked to end."""
        if self.cause:
            raise Cancelled(self.cause[1])

    def sleep(self, seconds: float) -> None:
        """Sleeps, or raises Cancelled as soon as the attempt is asked to end."""
        self._ended.wait(seconds)
        self.check()

    def progress(self, done: int, total: int) -> None:
        """Writes the progress into the output, at most once a second and at the end."""
        with self._lock:
            now = time.monotonic()
            if done < total and now - self._progress < 1:
                return
            self._progress = now
        self.log.info("progress done=%d total=%d percent=%d", done, total, 100 * done // max(1, total))

    def end(self, outcome: str, reason: str) -> None:
        """Asks the handler to end."""
        with self._lock:
            if not self.cause:
                self.cause = (outcome, reason)
        self._ended.set()


def _unpack(data: Optional[str]) -> Any:
    return None if data is None else json.loads(base64.b64decode(data))
