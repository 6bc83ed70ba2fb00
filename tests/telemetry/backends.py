"""A backend's API on loopback that answers as the test says, and keeps the requests."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.server.serving import listening


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Backend:
    """What was asked, the next statuses and replies by path; nothing is said until it is free."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    replies: dict[str, Any] = field(default_factory=dict)
    free: threading.Event = field(default_factory=threading.Event)

    def of(self, method: str, path: str) -> list[Request]:
        return [one for one in self.requests if (one.method, one.path) == (method, path)]


@contextmanager
def serving() -> Iterator[Backend]:
    backend = Backend()
    backend.free.set()

    def answer(to: BaseHTTPRequestHandler, raw: bytes) -> None:
        parts, body = urlsplit(to.path), json.loads(raw) if raw else None
        headers = {name.lower(): value for name, value in to.headers.items()}
        query = dict(parse_qsl(parts.query))
        backend.requests.append(Request(to.command, parts.path, query, headers, body))
        backend.free.wait(60)
        said = json.dumps(backend.replies.get(parts.path, {})).encode()
        to.send_response(backend.statuses.pop(0) if backend.statuses else 200)
        to.send_header("content-length", str(len(said)))
        to.end_headers()
        to.wfile.write(said)

    with listening(answer) as backend.url:
        yield backend
        backend.free.set()
