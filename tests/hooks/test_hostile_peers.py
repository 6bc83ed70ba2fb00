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
from otel_loopguard.hooks.state import HookState, secret_of
from otel_loopguard.hooks.state_folder import StateFolder
from tests.hooks.running import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.end()


def test_a_key_that_a_full_disk_cut_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    key = secret_of(tmp_path / "key")
    assert len(key) >= 32
    assert secret_of(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0


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
