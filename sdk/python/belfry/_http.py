"""Calls to the servers of Belfry, with the standard library."""
from __future__ import annotations

import http.client, json, random, secrets, ssl, threading, time
from typing import Any, Callable, List, Optional, Union
from urllib.parse import urlsplit

PROBLEM = "urn:belfry:problem:"
TRY_AGAIN = {408, 421, 429}  # too slow, another server, too much
ANSWER_MAX = 64 << 20


class BelfryError(Exception):
    """A server has refused a request, and would refuse it again."""

    def __init__(self, status: int, type: str, detail: str, hint: str = "") -> None:
        super().__init__(detail + (": " + hint if hint else ""))
        self.status, self.type, self.detail, self.hint = status, type, detail, hint


class SessionOver(BelfryError):
    """The session of the worker is over."""


class Unanswered(Exception):
    """No server has answered: the request may be done or not."""

    def __init__(self, text: str, after: float = 0) -> None:
        super().__init__(text)
        self.after = after  # seconds that the server asks to wait


def ulid() -> str:
    """Makes an identity: 48 bits of milliseconds and 80 random bits in Crockford's base 32."""
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[number >> shift & 31] for shift in range(125, -1, -5))


def is_loopback(host: Optional[str]) -> bool:
    return host == "localhost" or host == "::1" or (host or "").startswith("127.")


class Servers:
    """The servers of a cluster, which are equivalent. It is for many threads, each with a connection of its own."""

    def __init__(self, urls: Union[str, List[str]], token: Union[str, Callable[[], str]], *, plain_http: bool = False,
                 ca: Optional[str] = None, agent: str = "belfry-python") -> None:
        self.urls = [urlsplit(u.rstrip("/")) for u in ([urls] if isinstance(urls, str) else urls)]
        for u in self.urls:
            if u.scheme not in ("http", "https") or not u.hostname:
                raise ValueError(f"{u.geturl()!r} is not the address of a server, such as https://belfry.example.com:8420")
            if u.scheme == "http" and not plain_http and not is_loopback(u.hostname):
                raise ValueError(f"{u.geturl()!r} has no TLS, and others could read the token: use https, or plain_http=True")
        self.token = token if callable(token) else lambda: token
        self.context = ssl.create_default_context(cafile=ca) if any(u.scheme == "https" for u in self.urls) else None
        self.agent, self.first, self.local = agent, 0, threading.local()

    def private(self) -> bool:
        """Tells whether secrets may come from each server."""
        return all(u.scheme == "https" or is_loopback(u.hostname) for u in self.urls)

    def once(self, method: str, path: str, body: Any = None, timeout: float = 10, headers: Optional[dict] = None) -> Any:
        """Makes a request to the server that answered last; raises Unanswered and takes the next one if it does not."""
        url = self.urls[self.first % len(self.urls)]
        kept = getattr(self.local, "kept", None)
        connection = kept[1] if kept and kept[0] is url else None
        self.local.kept = None
        try:
            if connection is None:
                connection = (http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout, context=self.context)
                              if url.scheme == "https" else http.client.HTTPConnection(url.hostname, url.port, timeout=timeout))
            connection.timeout = timeout
            if connection.sock:
                connection.sock.settimeout(timeout)
            data = None if body is None else json.dumps(body).encode()
            every = {"Authorization": "Bearer " + self.token().strip(), "Accept": "application/json", "User-Agent": self.agent}
            if data is not None:
                every["Content-Type"] = "application/json"
            connection.request(method, url.path + "/api/v1" + path, data, {**every, **(headers or {})})
            response = connection.getresponse()
            if (response.length or 0) > ANSWER_MAX:
                raise ValueError(f"the answer has {response.length} bytes")
            value = _answer(response, response.read())
            self.local.kept = (url, connection)
            return value
        except (OSError, http.client.HTTPException, ValueError, Unanswered) as e:
            if connection:
                connection.close()
            self.first += 1
            raise e if isinstance(e, Unanswered) else Unanswered(f"{url.netloc}: {e or type(e).__name__}") from e

    def call(self, method: str, path: str, body: Any = None, *, timeout: float = 10, within: Optional[float] = None,
             quit: Optional[threading.Event] = None, said: Optional[Callable[[str], None]] = None, headers: Optional[dict] = None) -> Any:
        """Repeats a request until a server has answered, some seconds have passed, or quit is set."""
        pause, end = 0.25, None if within is None else time.monotonic() + within
        while True:
            try:
                return self.once(method, path, body, timeout, headers)
            except Unanswered as e:
                if said:
                    said(str(e))
                wait = max(e.after, pause * (0.5 + random.random() / 2))
                if end is not None and time.monotonic() + wait > end:
                    raise
                if quit is None:
                    time.sleep(wait)
                elif quit.wait(wait):
                    raise
                pause = min(2 * pause, 10)


def _answer(response: http.client.HTTPResponse, content: bytes) -> Any:
    if 200 <= response.status < 300:
        return json.loads(content) if content else None
    after = response.headers.get("Retry-After", "")
    try:
        problem = json.loads(content)
        kind = problem["type"]
    except (ValueError, TypeError, KeyError):
        kind = ""
    if not kind.startswith(PROBLEM) or response.status >= 500 or response.status in TRY_AGAIN:
        raise Unanswered(f"the status is {response.status}", float(after) if after.isdigit() else 0)
    refused = SessionOver if kind == PROBLEM + "session-over" else BelfryError
    raise refused(response.status, kind[len(PROBLEM):], problem.get("detail") or problem.get("title", ""), problem.get("hint", ""))
