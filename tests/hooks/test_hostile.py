"""What agents, files of a project and others on the machine bring does not end the guard."""

import json
import os
import pwd
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError, __version__
from otel_loopguard.errors import StoreError
from otel_loopguard.hooks import client
from otel_loopguard.hooks.agents import AGENTS
from otel_loopguard.hooks.install import BACKUP, install, states, uninstall
from otel_loopguard.hooks.process import RequestHandler
from otel_loopguard.hooks.state import HookState, KnownCall, secret_of
from otel_loopguard.hooks.state_folder import GREETING, StateFolder
from otel_loopguard.replay.transcripts.folders import usual_folders
from tests.hooks.running import PROGRAM, Home
from tests.stores.servers import wait_for
from tests.tables import content, rows


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[RequestHandler]:
    folder = StateFolder(str(tmp_path / "{0} {state}"))
    folder.make()
    made = RequestHandler(folder)
    yield made
    made.close()


def ask(handler: RequestHandler, agent: str, event: bytes) -> bytes:
    return handler.handle(f"hook-1 {__version__} {agent} enforce\n".encode() + event)[0]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("agent", ["claude-code", "codex", "vscode"])
@pytest.mark.parametrize(("_", "given"), rows(__file__, "given"))
def test_a_loop_is_seen_whatever_it_passes(
    handler: RequestHandler, agent: str, _: str, given: str, named: bool
) -> None:
    answers: list[bytes] = []
    for number in range(8):
        call = b'{"session_id": "s", "tool_name": "Bash", "tool_input": ' + content(given)
        if named:
            call += b', "tool_use_id": "t%d"' % number
        answers.append(ask(handler, agent, call + b', "hook_event_name": "PreToolUse"}'))
        after = b', "hook_event_name": "PostToolUse", "tool_response": "1 failed \\udc00"}'
        ask(handler, agent, call + after)
    assert any(b"deny" in answer for answer in answers)


def test_a_key_that_a_full_disk_cut_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    key = secret_of(tmp_path / "key")
    assert len(key) >= 32
    assert secret_of(tmp_path / "key") == key
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0


def test_a_full_disk_is_left_as_it_is(tmp_path: Path) -> None:
    """No event leaves a part of a key, which would be a file for each."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            secret_of(tmp_path / "key")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*tmp_path.iterdir()] == []


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


def test_who_is_there_when_it_gives_way_is_answered(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade: an event that it has taken is sent nowhere else."""
    number = home.begin()
    os.kill(number, signal.SIGSTOP)
    lines = connected(home, 100, monkeypatch)
    for place, line in enumerate(lines):
        version = "99.0.0" if place == 0 else "0"
        line.sendall(f"{GREETING} {version} claude-code observe\n{{}}".encode())
        line.shutdown(socket.SHUT_WR)
        line.settimeout(60)
    os.kill(number, signal.SIGCONT)
    assert {line.recv(10) for line in lines} == {b"{}"}
    for line in lines:
        line.close()


def test_two_versions_in_use_do_not_take_turns(home: Home) -> None:
    """As where a user's hook and a project's are of different installations."""
    folder = StateFolder(str(home.state))
    folder.make()
    folder.take_over("0")
    number = home.begin()
    client.send(folder, f"{GREETING} 0 claude-code observe\n{{}}".encode())
    assert home.call() == ({}, {})
    assert home.up() == number
    client.send(folder, f"{GREETING} 99.0.0 claude-code observe\n{{}}".encode())
    wait_for(lambda: not home.is_up())


def test_it_serves_where_its_version_cannot_be_noted(home: Home) -> None:
    (home.state / "version").mkdir(parents=True)
    home.state.chmod(0o700)
    home.begin()


@pytest.mark.parametrize("kind", ["pipe", "device", "garbage", "no time"])
def test_what_is_no_event_in_the_spool_holds_nobody_up(home: Home, kind: str) -> None:
    folder = StateFolder(str(home.state))
    folder.make()
    path = Path(folder.spool, "²-1" if kind == "no time" else "00000000000000000001-1")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"\xff\0" * 1000)
    home.event("SessionStart")  # its own process reads what has waited for long
    assert path.exists() == (kind == "no time")
    home.begin()
    wait_for(lambda: not path.exists())


@pytest.mark.parametrize("name", ["key", "hooks.sqlite", "hook.sock"])
def test_a_folder_in_place_of_a_file_is_named(home: Home, name: str) -> None:
    (home.state / name / "kept").mkdir(parents=True)
    home.state.chmod(0o700)
    assert home.run("hook", "serve").returncode == 2
    assert b"fault" in (home.state / "hook.log").read_bytes()


def test_it_outlives_too_many_open_files(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    number = home.begin()
    resource.prlimit(number, resource.RLIMIT_NOFILE, (40, 40))
    lines = connected(home, 60, monkeypatch)
    assert home.up() == number
    for line in lines:
        line.close()


def test_a_full_disk_is_told_of(home: Home) -> None:
    """With each event, and by `status`; once there is room, events are judged."""
    home.run("hook", "install", "claude-code")
    number = home.begin()
    event = b'{"hook_event_name": "SessionStart", "session_id": "s"}'
    for most, told in ((0, b"no event is judged: "), (resource.RLIM_INFINITY, b"")):
        resource.prlimit(number, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        done = home.run("hook", "run", "claude-code", given=event)
        assert (done.returncode, done.stdout) == (0, b"{}\n")
        assert told in done.stderr
        assert bool(done.stderr) is bool(told)
    full = ["sh", "-c", 'ulimit -f 0 && exec "$0" hook status', PROGRAM]
    status = subprocess.run(full, capture_output=True, check=True, env=home.environment)
    assert b"no event is judged: " in status.stdout


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


@pytest.mark.parametrize("each", [1600, 100])
def test_a_session_keeps_its_newest_items(tmp_path: Path, each: int) -> None:
    """Though two take turns, or no process lives for long."""
    for begin in range(0, 1600, each):
        with closing(HookState(tmp_path)) as state, state.together():
            for number in map(str, range(begin, begin + each)):
                for session in "ab":
                    state.use(session, "guard")
                    state.submit(session, [(number, b"x")])
                    state.put_call(session, number, KnownCall("done", 0, ""))
    with closing(HookState(tmp_path)) as state:
        for session in "ab":
            assert 1000 <= len(state.journal(session)) <= 1000 + 256
            assert 500 <= len(state.calls(session, "done")) <= 500 + 256


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
    with closing(HookState(tmp_path)) as state:
        assert state.mode("s") == "guard"


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


def test_a_user_without_a_home_writes_nothing_where_an_agent_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container that runs under a number which it has no name for."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    folder = Path(StateFolder().path)
    assert folder.parent == Path(tempfile.gettempdir())
    assert str(os.getuid()) in folder.name
    with pytest.raises(FileNotFoundError, match="HOME"):
        list(states(tmp_path))
    with pytest.raises(FileNotFoundError, match="HOME"):
        usual_folders()


def test_a_link_that_another_user_laid_is_not_followed(tmp_path: Path) -> None:
    """As in the folder for temporary files, which is used without a home; one's own link is."""
    if os.getuid():
        pytest.skip("only root may give a link away")
    (tmp_path / "mine").mkdir(0o700)
    (tmp_path / "state").symlink_to("mine")
    folder = StateFolder(str(tmp_path / "state"))
    os.lchown(folder.path, 12345, 12345)
    with pytest.raises(PermissionError):
        folder.make()
    assert not [*(tmp_path / "mine").iterdir()]
    os.lchown(folder.path, os.getuid(), os.getgid())
    folder.make()
    assert [*(tmp_path / "mine").iterdir()]


HOOK = {"type": "command", "command": "otel-loopguard hook run claude-code"}


@pytest.fixture
def settings(user: Path) -> Path:
    """The settings of the project in `home`; there are none yet."""
    file = user / "project" / ".claude" / "settings.json"
    file.parent.mkdir()
    return file


def problem_of(file: Path) -> str | None:
    return next(state.problem for state in states(file.parent.parent) if state.file == file)


def set_hooks(file: Path) -> None:
    install("claude-code", "project", "observe", file.parent.parent, "otel-loopguard")


def test_a_backup_does_not_follow_a_link(settings: Path, user: Path) -> None:
    keys = user / "authorized_keys"
    keys.write_text("mine\n")
    settings.write_text("/*\nssh-rsa AAAA theirs\n*/\n{}\n")
    settings.chmod(0o600)
    backup = settings.with_name(settings.name + BACKUP)
    backup.symlink_to(keys)
    set_hooks(settings)
    assert keys.read_text() == "mine\n"
    assert "theirs" in backup.read_text()
    assert not backup.is_symlink()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


def test_what_is_written_meanwhile_is_not_lost(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent keeps there what its user has just allowed."""
    settings.write_text("{}")
    flush = os.fsync

    def slow(descriptor: int) -> None:  # of the backup
        settings.write_text('{"permissions": {}}')
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(LoopGuardSettingsError, match="nothing was changed"):
        set_hooks(settings)
    assert settings.read_text() == '{"permissions": {}}'
    set_hooks(settings)
    assert "permissions" in settings.read_text()


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "folder", "huge"])
def test_what_is_no_ordinary_file_is_not_read(settings: Path, place: str) -> None:
    if place == "pipe":
        os.mkfifo(settings)
    elif place == "folder":
        settings.mkdir()
    elif place == "huge":
        settings.touch()
        os.truncate(settings, 1 << 34)
    else:
        settings.symlink_to(place)
    why = "has more than" if place == "huge" else "it is not a regular file"
    assert why in str(problem_of(settings))
    with pytest.raises(LoopGuardSettingsError, match=why):
        set_hooks(settings)


def test_a_command_made_for_regular_expressions_is_searched_in_linear_time(settings: Path) -> None:
    command = "otel-loopguard" * 100_000  # 25 minutes of a search that is not
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"command": command}]}]}}))
    assert problem_of(settings) is None


def test_thousands_of_hooks_are_taken_away_at_once(settings: Path) -> None:
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [HOOK]}] * 20_000}}))
    set_hooks(settings)
    assert settings.read_text().count("hook run") == len(AGENTS["claude-code"].installed)
    uninstall("claude-code", "project", settings.parent.parent)
    assert not settings.exists()
