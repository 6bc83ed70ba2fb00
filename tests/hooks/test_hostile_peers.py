"""Others on the machine, a full disk, a wrong clock and a damaged file do not end the guard."""

from __future__ import annotations

import os
import resource
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from otel_loopguard.errors import StoreError
from otel_loopguard.hooks import http
from otel_loopguard.hooks.http import HookHttpServer
from otel_loopguard.hooks.state import HookState, secret_of
from otel_loopguard.hooks.state_folder import StateFolder
from tests.hooks.running import Home
from tests.stores.servers import wait_for

TOKEN = "t" * 40


@pytest.fixture
def server() -> Iterator[HookHttpServer]:
    with HookHttpServer(("127.0.0.1", 0), TOKEN, lambda _: (b'{"answered": true}', None)) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.end()


def connect(server: HookHttpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server_port), timeout=60)


def status(server: HookHttpServer, *headers: str, token: str = TOKEN) -> int:
    """The answer to a request whose body never comes."""
    lines = ("POST /hook/claude-code HTTP/1.1", f"Authorization: Bearer {token}", *headers, "", "")
    with connect(server) as line:
        line.sendall("\r\n".join(lines).encode("latin-1"))
        return int(line.recv(1000).split()[1])


def test_without_the_token_no_body_is_waited_for(server: HookHttpServer) -> None:
    assert status(server, "Content-Length: 16000000", token="x") == 401
    assert status(server, token="") == 401


@pytest.mark.parametrize(("size", "code"), [("²", 411), ("-1", 411), ("9" * 5_000, 413)])
def test_a_size_that_is_none_is_refused(server: HookHttpServer, size: str, code: int) -> None:
    assert status(server, f"Content-Length: {size}") == code


def test_idle_connections_are_bounded(server: HookHttpServer) -> None:
    idle = [connect(server) for _ in range(64)]
    with connect(server) as one_more:
        assert one_more.recv(1) == b""
    for line in idle:
        line.close()
    wait_for(lambda: answers(server))


def answers(server: HookHttpServer) -> bool:
    try:
        return status(server, "Content-Length: 0") == 200
    except (OSError, IndexError):
        return False


def test_a_connection_that_says_nothing_is_shut(
    server: HookHttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_LIMIT_S", 0.1)
    with connect(server) as line:
        line.sendall(b"POST /hook/claude-code HTTP/1.1\r\n")
        assert line.recv(1) == b""


def test_a_token_that_a_full_disk_cut_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    token = secret_of(tmp_path / "token")
    assert len(token) >= 32
    assert secret_of(tmp_path / "token") == token
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


def test_a_clock_that_was_set_back_keeps_nobody_waiting(home: Home) -> None:
    folder = StateFolder(str(home.state))
    folder.make()
    Path(folder.starting).touch()
    future = time.time() + 10**8
    os.utime(folder.starting, (future, future))
    home.begin()


def connected(home: Home, count: int, monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """Connections to its process; its address may be too long for one."""
    monkeypatch.chdir(home.state)
    lines = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for line in lines:
        line.connect("hook.sock")
    return lines


def test_clients_that_drip_do_not_keep_others_waiting(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.begin()
    done = threading.Event()
    lines = connected(home, 20, monkeypatch)

    def drip() -> None:
        while not done.wait(0.2):
            for line in lines:
                with suppress(OSError):  # shut
                    line.sendall(b"h")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert home.call()[0] == {}
    finally:
        done.set()
        dripping.join()
        for line in lines:
            line.close()


def test_it_outlives_too_many_open_files(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    number = home.begin()
    resource.prlimit(number, resource.RLIMIT_NOFILE, (40, 40))
    lines = connected(home, 60, monkeypatch)
    assert home.up() == number
    for line in lines:
        line.close()


def test_a_file_that_is_damaged_inside_is_begun_anew(tmp_path: Path) -> None:
    state = HookState(tmp_path)
    with state.together():
        state.use("s", "guard")
        state.submit("s", [(str(number), b"x" * 100) for number in range(900)])
    state.close()
    with (tmp_path / "hooks.sqlite").open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xff" * 4096 * 10)
    state = HookState(tmp_path)
    for _ in range(3):
        try:
            state.journal("s")
            with state.together():
                state.submit("s", [("new", b"y")])
        except StoreError:  # noqa: PERF203  # the first that meets the damage
            pass
    assert state.journal("s")[-1] == ("new", b"y")
    assert (tmp_path / "broken-hooks.sqlite").exists()
    state.close()


def test_a_file_that_is_locked_is_kept(tmp_path: Path) -> None:
    state = HookState(tmp_path)
    with state.together():
        state.use("s", "guard")
    state.close()
    other = sqlite3.connect(tmp_path / "hooks.sqlite", isolation_level=None)
    other.execute("PRAGMA journal_mode = DELETE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="locked"):
        HookState(tmp_path)
    other.close()
    assert HookState(tmp_path).mode("s") == "guard"


def test_a_process_that_never_ends_forgets_what_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = HookState(tmp_path)
    now = time.time()
    with state.together():
        state.use("old", "guard")
    monkeypatch.setattr(time, "time", lambda: now + 8 * 24 * 3600)
    with state.together():
        state.use("new", "guard")
        state.submit("new", [("1", b"x")])
    assert (state.mode("old"), state.mode("new")) == (None, "guard")
    state.close()
