"""A server that is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.server.serving import call, exporter, request, serving
from tests.stores.servers import wait_for


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


@pytest.mark.parametrize("path", ["control?wait=60", "events"])
def test_who_waits_for_the_flag_is_answered_when_it_ends(path: str) -> None:
    """A client that follows the flag always waits; a 500 would be an error of the server."""
    with ThreadPoolExecutor() as asker:
        with serving() as server:
            url = f"{server.url}/v1/sessions/chat-1/{path}"
            answer = asker.submit(httpx.get, url, timeout=60)
            wait_for(lambda: server._api._made and server._api._made._waiters)
        assert answer.result().status_code == 200
        assert "allow" in answer.result().text


def test_what_was_begun_is_answered_before_it_ends() -> None:
    """A sender takes an unknown error for final, and drops its spans."""
    body = request(call(0)).SerializeToString()
    with serving(grpc="127.0.0.1:0") as hop, ThreadPoolExecutor() as sender, ExitStack() as channel:
        forward = f"grpc://127.0.0.1:{hop.grpc_port}"
        with serving(grpc="127.0.0.1:0", forward=forward, lateness_s=1) as server:
            answer = sender.submit(channel.enter_context(exporter(server)), body, timeout=60)
            wait_for(lambda: any(each._batch for each in server.engines.values()))
        assert answer.result() is not None
        assert [each.guard.flag_of("chat-1") is not None for each in hop.engines.values()] == [True]
