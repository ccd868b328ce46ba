"""A client that triggers runs and waits for them."""
from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Union
from urllib.parse import quote

from ._http import Servers, ulid


class Client:
    """Calls the API. Its token has the role runner or admin. An unanswered call is repeated for `patience` seconds."""

    def __init__(self, url: Union[str, List[str]], token: Union[str, Callable[[], str]], *, namespace: str = "default",
                 patience: float = 30, plain_http: bool = False, ca: Optional[str] = None) -> None:
        self._servers = Servers(url, token, plain_http=plain_http, ca=ca)
        self.namespace, self.patience = namespace, patience

    def _call(self, method: str, path: str, body: Any = None, headers: Optional[dict] = None) -> Any:
        return self._servers.call(method, path, body, within=self.patience, headers=headers)

    def trigger(self, job: str, params: Optional[Dict[str, Any]] = None, *, key: Optional[str] = None) -> Dict[str, Any]:
        """Runs a job now and returns the run. Requests with the same key make one run."""
        texts = {name: _text(value) for name, value in (params or {}).items()}
        path = f"/jobs/{quote(self.namespace, safe='')}/{quote(job, safe='')}/run"
        return self._call("POST", path, {"params": texts}, {"Idempotency-Key": key or ulid()})

    def get(self, run: str) -> Dict[str, Any]:
        """Returns a run with its attempts."""
        return self._call("GET", f"/runs/{quote(run, safe='')}")

    def wait(self, run: str, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Waits until a run is done, and returns it: `outcome` says how it ended. Raises TimeoutError."""
        end, pause = None if timeout is None else time.monotonic() + timeout, 0.1
        while True:
            got = self.get(run)
            if got["state"] == "done":
                return got
            if end is not None and time.monotonic() + pause > end:
                raise TimeoutError(f"run {run} is {got['state']} after {timeout:g} s")
            time.sleep(pause)
            pause = min(1.5 * pause, 2)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

