"""Keeps what a server does not have yet in a directory, so that it survives the process."""
from __future__ import annotations

import json, os, uuid
from typing import Dict, List, Optional

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Spool:
    """Results without an answer, and marks of attempts that have begun. Without a path it keeps nothing."""

    def __init__(self, path: Optional[str]) -> None:
        self.path = path and os.path.abspath(path)
        self.began: Dict[str, bool] = {}
        self.results: List[dict] = []  # of earlier processes
        self.machine = uuid.uuid4().hex  # no process is before this one
        if not self.path:
            return
        os.makedirs(self.path, 0o700, exist_ok=True)
        self.lock = open(os.path.join(self.path, "lock"), "w")
        if fcntl:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as e:
                raise RuntimeError(f"{self.path} is used by another worker: each needs a directory of its own") from e
        self.machine = _read("/etc/machine-id") + "/" + _read("/proc/sys/kernel/random/boot_id") if os.path.exists("/proc/sys/kernel/random/boot_id") else hex(uuid.getnode())
        for name in sorted(os.listdir(self.path)):
            token, _, kind = name.partition(".")
            if kind == "begun":
                self.began[token] = True
            if kind == "json":
                try:
                    self.results.append(json.loads(_read(os.path.join(self.path, name))))
                except ValueError:
                    os.replace(os.path.join(self.path, name), os.path.join(self.path, name + ".damaged"))

    def begin(self, token: str) -> None:
        self._write(token + ".begun", "")

    def keep(self, result: dict) -> None:
        self._write(result["token"] + ".json", json.dumps(result))

    def forget(self, token: str) -> None:
        for kind in (".json", ".begun"):
            try:
                os.remove(os.path.join(self.path or "", token + kind))
            except OSError:
                pass  # it was not written

    def _write(self, name: str, text: str) -> None:
        if not self.path:
            return
        fresh = os.path.join(self.path, name + ".new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, os.path.join(self.path, name))


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""
