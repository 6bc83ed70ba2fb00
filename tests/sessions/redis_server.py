"""A Redis server for a test, on a free port; gone with it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Runs a server; gives its address. Skips where none is installed, and fails under CI."""
    program = shutil.which("redis-server")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("redis-server is not installed")
        pytest.skip("redis-server is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "--port", str(port), "--save", "", "--dir", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _wait(port: int) -> None:
    deadline = time.monotonic() + 10
    while not _answers(port):
        assert time.monotonic() < deadline, "redis-server does not answer"
        time.sleep(0.02)


def _answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
