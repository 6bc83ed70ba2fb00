"""JSON over HTTP on loopback: queries to the programs, and the webhook that alerts arrive at."""

from __future__ import annotations

import json
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


def get(port: int, path: str, limit_s: float = 10, **query: str) -> Any:
    """What a program answers, parsed; OSError if it does not, or answers an error."""
    return json.loads(read(port, path, limit_s, **query) or "null")


def read(port: int, path: str, limit_s: float = 10, **query: str) -> str:
    """What a program answers, as text; OSError if it does not, or answers an error."""
    tail = f"?{urllib.parse.urlencode(query)}" if query else ""
    url = f"http://127.0.0.1:{port}{path}{tail}"
    with urllib.request.urlopen(url, timeout=limit_s) as answer:
        text: str = answer.read().decode()
        return text


def answers(port: int, path: str) -> Callable[[], bool]:
    """Says, when called, whether a program answers there."""
    return lambda: read(port, path, 2) is not None


class Webhook:
    """Takes what Alertmanager tells.

    Args:
        port: Where it listens.
        told: Called with each alert as it arrives.

    Attributes:
        alerts: Every alert that was told, with the time of its arrival as `at`, in seconds.
    """

    def __init__(self, port: int, told: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._told = told
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, alert: str, status: str) -> list[dict[str, Any]]:
        """The alerts of one name that are `firing` or `resolved`."""
        return [
            each
            for each in self.alerts
            if each["labels"]["alertname"] == alert and each["status"] == status
        ]

    def _take(self, body: bytes) -> None:
        for alert in json.loads(body)["alerts"]:
            self.alerts.append({**alert, "at": time.time()})
            if self._told is not None:
                self._told(alert)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        return Handler
