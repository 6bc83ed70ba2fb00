"""The Unix socket: its user only, bounded, and gone with its process."""

import gc
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardError
from otel_loopguard.core import Kind, Step
from otel_loopguard.escalation import unix as places
from otel_loopguard.escalation.unix import SocketTransport
from tests.escalation.agents import stuck, until, watched


@pytest.fixture
def place(runtime_dir: Path) -> Path:
    """A runtime folder of the test's own."""
    return runtime_dir / "otel-loopguard"


@pytest.fixture
def guard(place: Path) -> Iterator[LoopGuard]:
    found = watched(control_socket="auto")
    stuck(found, "held")
    yield found
    found.shutdown()


def path_of(guard: LoopGuard) -> Path:
    return until(lambda: server_of(guard).path)


def server_of(guard: LoopGuard) -> places.SocketServer:
    (server,) = guard.escalation().listeners
    assert isinstance(server, places.SocketServer)
    return server


def said(path: Path, data: bytes, *, end: bool = True) -> dict[str, Any] | None:
    """The reply to some bytes; None for nothing."""
    got = b""
    with socket.socket(socket.AF_UNIX) as line, suppress(BrokenPipeError, ConnectionResetError):
        line.settimeout(10)
        line.connect(str(path))
        line.sendall(data)
        if end:
            line.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: line.recv(65_536), b""))
    return json.loads(got) if got else None


def listed(path: Path | None = None) -> dict[str, str]:
    """The action of each session that is found."""
    rows, _ = SocketTransport(str(path) if path else None).sessions()
    return {row["session"]: row["action"] for row in rows}


def test_its_user_only(guard: LoopGuard, place: Path) -> None:
    """The socket has mode 600, in a folder with mode 700."""
    path = path_of(guard)
    assert path.parent == place
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert list(place.iterdir()) == [path]


def test_a_line_without_end(guard: LoopGuard) -> None:
    """It is cut off at 64 KiB: nothing grows with what is sent."""
    reply = said(path_of(guard), b"x" * 5_000_000, end=False)
    assert reply is None or reply["error"] == "too_long"
    assert listed() == {"held": "pause"}


def test_many_that_say_nothing_hold_nobody(guard: LoopGuard) -> None:
    """A hundred connections that drip: others are answered, and none stays for long."""
    path = path_of(guard)
    done = threading.Event()
    cut = threading.Semaphore(0)

    def drip() -> None:
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(str(path))
                while not done.is_set():
                    line.sendall(b" ")
                    time.sleep(0.05)
            except OSError:
                cut.release()

    with ThreadPoolExecutor(100) as dripping:
        for _ in range(100):
            dripping.submit(drip)
        for _ in range(10):
            assert listed(path)
        for _ in range(100):
            assert cut.acquire(timeout=60)
        done.set()
    assert guard.faults.counts == {}


def test_one_that_reads_nothing_holds_nobody(guard: LoopGuard) -> None:
    """A reply that nobody fetches waits by itself."""
    for number in range(300):
        guard.observe(Step(Kind.TOOL, "t", args={}, outcome="x"), f"{number}" * 60)
    with ExitStack() as waiting:
        for _ in range(12):
            line = waiting.enter_context(socket.socket(socket.AF_UNIX))
            line.connect(str(path_of(guard)))
            line.sendall(b'{"op": "sessions"}\n')
        assert len(listed(path_of(guard))) == 301


def test_another_user_is_refused(guard: LoopGuard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever got past the modes: the kernel says who it is."""
    if not hasattr(socket, "SO_PEERCRED"):
        pytest.skip("this system does not tell who connects")
    path, mine = path_of(guard), os.getuid()
    for user in (mine + 1, mine):
        monkeypatch.setattr(os, "getuid", lambda it=user: it)
        assert (said(path, b'{"op": "sessions"}\n') is None) is (user != mine)


@pytest.mark.parametrize("wrong", ["open", "file", "other"])
def test_a_folder_that_cannot_be_trusted(
    place: Path, wrong: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No socket is made in it, none is looked for, and the agent runs on."""
    if wrong == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o755 if wrong == "open" else 0o700)
    if wrong == "other":
        monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)
    guard = watched(control_socket="auto")
    guard.observe(Step(Kind.TOOL, "t", args={}, outcome="x"), "a")
    until(lambda: "cannot be served" in caplog.text)
    assert server_of(guard).path is None
    with pytest.raises(LoopGuardError, match="otel-loopguard"):
        listed()
    guard.shutdown()


def test_without_a_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the user's number below the one for temporary files."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert places.sockets() == []
    with suppress(OSError):  # the path of a test may be too long for a socket
        places.path_of("auto", 1)
    found = places.trusted_folder()
    assert found == tmp_path / f"otel-loopguard-{os.getuid()}"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


@pytest.mark.parametrize("meanwhile", ["", "precious"])
def test_a_path_of_its_own(tmp_path: Path, meanwhile: str) -> None:
    """A stale socket there is replaced; a shutdown removes the one that it made, nothing else."""
    path = tmp_path / "own.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    guard = watched(control_socket=str(path))
    stuck(guard, "held")
    assert path_of(guard) == path
    assert listed(path) == {"held": "pause"}
    if meanwhile:
        path.unlink()
        path.write_text(meanwhile)
    guard.shutdown()
    assert path.exists() is bool(meanwhile)
    assert not meanwhile or path.read_text() == meanwhile
    with pytest.raises(LoopGuardError, match="own.sock" if meanwhile else "there is no socket"):
        listed(path)


ODD = ["file", "folder", "link", "dead link", "other kind", "pipe", "long"]


@pytest.mark.parametrize("what", ODD)
def test_what_is_no_socket_of_ours_is_left_alone(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told in the log, the agent runs on, and a shutdown removes nothing.

    Nor is a path taken that is too long for an address.
    """
    path, aim = tmp_path / ("x" * 120 if what == "long" else "own.sock"), tmp_path / "aim"
    other = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if what in ("file", "long"):
        path.write_text("precious")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "other kind":
        other.bind(str(path))
    else:
        path.symlink_to(aim)
    if what == "link":
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(aim))
    before = path.lstat()
    guard = watched(control_socket=str(path))
    stuck(guard, "held")
    until(lambda: "cannot be served" in caplog.text)
    guard.shutdown()
    gc.collect()
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert what != "file" or path.read_text() == "precious"
    assert aim.exists() == (what == "link")
    assert guard.faults.counts == {}
    other.close()


def test_two_that_want_the_same_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of eight that begin at once one has it, and keeps it until it ends; another takes it then."""
    path = tmp_path / "own.sock"
    guards = [watched(control_socket=str(path)) for _ in range(8)]
    for number, each in enumerate(guards):
        stuck(each, f"{number}", calls=1)
    until(lambda: caplog.text.count("another process listens") == 7)
    having = [each for each in guards if server_of(each).path]
    assert len(having) == 1
    waiting = [each for each in guards if each is not having[0]]
    for each in waiting[1:]:
        each.shutdown()
    first = listed(path)
    assert len(first) == 1
    having[0].shutdown()
    assert path_of(waiting[0]) == path
    assert first.keys().isdisjoint(listed(path))
    assert caplog.text.count("cannot be served") == 7
    waiting[0].shutdown()
    assert not path.exists()


def test_gone_with_its_guard(place: Path) -> None:
    """The thread ends and the socket goes, also where nobody shuts it down."""
    guard = watched(control_socket="auto")
    stuck(guard, "held")
    path = path_of(guard)
    del guard
    gc.collect()
    until(lambda: not path.exists())


_PROGRAM = """
import os, sys
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
guard = LoopGuard(Settings(control_socket="auto"))
step = Step(Kind.TOOL, "t", args={}, outcome="x")
guard.observe(step, "parent")
child = os.fork()
if not child:
    guard.observe(step, "child")
    print("up", flush=True)
    sys.stdin.readline()
    os._exit(0)
print("up", flush=True)
sys.stdin.readline()
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_has_its_own(place: Path) -> None:
    """Parent and child each answer for their own sessions; a program that ends leaves nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for _ in range(2):
            assert program.stdout.readline() == "up\n"
        until(lambda: listed() == {"child": "allow", "parent": "allow"})
        program.stdin.write("\n\n")
        program.stdin.flush()
        program.stdin.close()
    # The child leaves by `os._exit`, as a killed one would: its socket stays, and is passed over.
    assert listed() == {}
    assert len(list(place.iterdir())) <= 1


def test_off_by_default(place: Path) -> None:
    """No socket, no thread."""
    before = set(threading.enumerate())
    stuck(watched(), "a", calls=1)
    assert set(threading.enumerate()) <= before  # those of other tests may end
    assert not place.exists()
