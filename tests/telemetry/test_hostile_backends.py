"""A backend that answers with a bomb, and what is logged of its address."""

from __future__ import annotations

import gzip
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from otel_loopguard.telemetry.backends import MLflow

PACKED = gzip.compress(gzip.compress(b"[" + b" " * 100_000_000 + b"]"))


@pytest.fixture
def asked() -> list[str]:
    """The `Authorization` and `Accept-Encoding` of each request."""
    return []


@pytest.fixture
def port(asked: list[str]) -> Iterator[int]:
    """The port of a backend that packs its replies twice."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            asked.append(f"{self.headers['authorization']}, {self.headers['accept-encoding']}")
            self.send_response(200)
            self.send_header("content-encoding", "gzip, gzip")
            self.send_header("content-length", str(len(PACKED)))
            self.end_headers()
            self.wfile.write(PACKED)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_reply_is_not_unpacked_and_the_password_not_told(
    port: int, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    address = f"http://me:hunter2@127.0.0.1:{port}"
    assert MLflow({"MLFLOW_TRACKING_URI": address}, 60).call("POST", "/api", {"a": 1}) is None
    assert asked == ["Basic bWU6aHVudGVyMg==, identity"]
    assert "hunter2" not in caplog.text
