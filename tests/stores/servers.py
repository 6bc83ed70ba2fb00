"""Real Redis servers on free local ports."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import redis

from tests.zero_code.interpreter import lacking

_T = TypeVar("_T")


def need_redis() -> str:
    """The program; skips without it, and fails under CI, which has to have it."""
    return shutil.which("redis-server") or lacking("redis-server is missing")


def free_port() -> int:
    """A port that nobody listens on; 10,000 above it there is room, which a Cluster needs."""
    while True:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port: int = taken.getsockname()[1]
        if port < 55_000:
            return port


def wait_for(true: Callable[[], _T], limit_s: float = 300) -> _T:
    """Waits until something is true, and returns it, or fails."""
    until = time.monotonic() + limit_s
    while not (found := true()):
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.005)
    return found


class Server:
    """A redis-server in a folder of its own; what it has written it reads again when restarted."""

    def __init__(self, folder: Path, *options: str, port: int | None = None) -> None:
        self.port = port or free_port()
        self.folder = folder
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> Any:
        """A connection of the test's own."""
        return redis.Redis(port=self.port, protocol=2, socket_timeout=5)

    def start(self) -> Server:
        command = [need_redis(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self.folder), "--daemonize", "no"]
        command += ["--repl-diskless-sync-delay", "0", *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(self._answers)
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            with socket.create_connection(("127.0.0.1", self.port), 0.2) as open_:
                open_.settimeout(0.5)
                open_.sendall(b"PING\r\n")
                said = open_.recv(100)
                return said.startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """As a crash: nothing is said to anybody."""
        if self.process is not None:
            self.process.kill()
            self.process.send_signal(signal.SIGCONT)
            self.process.wait()
            self.process = None


def listen(store: Any, topic: str) -> tuple[list[bytes], Any]:
    """The messages that arrive from now on, and the subscription."""
    heard: list[bytes] = []
    joined = threading.Event()
    subscription = store.subscribe(topic, heard.append, joined.set)
    assert joined.wait(60)
    return heard, subscription


def listening() -> list[threading.Thread]:
    """The threads of subscriptions."""
    return [one for one in threading.enumerate() if one.name == "loopguard-listening"]
