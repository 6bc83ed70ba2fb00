"""A server that is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_finish(told: signal.Signals) -> None:
    """What it holds is stored and sent before it ends, which is no failure."""
    program = str(Path(sys.executable).with_name("otel-loopguard"))
    command = [program, "serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        while "only this machine is served" not in server.stdout.readline():
            assert server.poll() is None
        server.send_signal(told)
        assert server.wait(60) == 0
