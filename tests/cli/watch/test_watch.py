"""`otel-loopguard watch --agents` over agents that run: warns, stops, and lets go on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_loopguard.cli.app import app
from tests.cli.watch.processes import Agent, Watch, state_of, watched
from tests.escalation.agents import until
from tests.escalation.hooks import Hook, served
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

Start = Callable[..., Any]
KEY = "996c115b-4f4b-4a0e-9161-c4e20b794525"
(CAPTURE,) = (CAPTURES / "claude/projects/-app").glob("*.jsonl")
STUCK = CAPTURE.read_text("utf-8").splitlines(keepends=True)
DENIED = 3
"""The call at which the guard would have stopped it; see tests/cli/test_recordings.py."""


def _cut() -> int:
    """Lines up to the result of the call at which it is denied."""
    results = 0
    for number, line in enumerate(STUCK):
        results += '"tool_result"' in line
        if results == DENIED:
            return number + 1
    raise AssertionError


CUT = _cut()


@pytest.fixture
def projects(tmp_path: Path, runtime_dir: Path) -> Path:
    del runtime_dir  # for the control socket
    place = tmp_path / "projects"
    place.mkdir()
    return place


@pytest.fixture
def watch(projects: Path, tmp_path: Path) -> Iterator[Callable[..., Watch]]:
    started: list[Watch] = []

    def start(*options: str) -> Watch:
        started.append(Watch(projects, *options, place=tmp_path / f"out-{len(started)}"))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def agent(projects: Path) -> Iterator[Callable[..., Agent]]:
    started: list[Agent] = []

    def start(name: str = KEY, *options: str, **more: Any) -> Agent:
        started.append(Agent(projects / f"{name}.jsonl", *options, **more))
        return started[-1]

    yield start
    for one in started:
        one.end()


@pytest.fixture
def held(watch: Start, agent: Start) -> tuple[Watch, Agent]:
    """A watch and an agent that it has stopped, and asks about."""
    watching, writer = watch("--may-stop"), agent()
    writer.write(STUCK[:CUT])
    writer.wait_for(stopped=True)
    watching.wait_for(f"let {KEY} go on?")
    return watching, writer


def control(*arguments: str) -> str:
    """What another terminal does."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_each_decision_is_a_line_and_nothing_is_stopped(watch: Start, agent: Start) -> None:
    watching, writer = watch(), agent()
    writer.write(STUCK)
    watching.wait_for(f"deny {KEY} (claude-code, app): 'Bash' was called 3 times")
    assert writer.state != "T"
    printed = watching.end()
    assert [action for action, _ in watching.told] == ["hint", "deny"]
    assert "not followed, as their transcripts cannot be read: vscode, cursor\n" in printed


@pytest.mark.parametrize("order", ["y", "allow", "n", "abort"])
def test_who_goes_in_circles_is_stopped_until_a_person_lets_it_go_on(
    order: str, held: tuple[Watch, Agent]
) -> None:
    """Or ends it: by an answer that is typed, or from another terminal."""
    watching, writer = held
    writer.ask(STUCK[CUT])
    if len(order) == 1:
        watching.type("what\n")
        until(lambda: watching.printed.count("go on?") == 2)
        assert writer.state == "T"
        watching.type(f"{order.upper()}\n")
    else:
        control(order, KEY)
    if order in ("n", "abort"):
        assert writer.process.wait(60) == -signal.SIGTERM
        watching.wait_for(f"process {writer.process.pid} of {KEY} was told to end, by ")
    else:
        writer.wait_for(stopped=False)
        watching.wait_for(f"process {writer.process.pid} of {KEY} goes on, by ")
        assert writer.process.stdout is not None
        assert writer.process.stdout.readline()  # it writes on
    watching.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, None])
def test_what_was_stopped_goes_on_when_the_watch_ends(
    number: signal.Signals | None, held: tuple[Watch, Agent]
) -> None:
    """What has ended meanwhile it asks about no more."""
    watching, writer = held
    if number is None:
        writer.end()
        watching.wait_for(f"process {writer.process.pid} of {KEY} has ended")
        watching.end()
        return
    assert f"of {KEY} goes on: the watch ends" in watching.end(number)
    writer.wait_for(stopped=False)
    assert writer.process.poll() is None


def test_what_was_stopped_goes_on_where_signals_come_together(held: tuple[Watch, Agent]) -> None:
    """As where a terminal is closed: its shell sends one as well."""
    watching, writer = held
    watching.process.send_signal(signal.SIGSTOP)
    until(lambda: state_of(watching.process.pid) == "T")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        watching.process.send_signal(number)
    assert "the watch ends" in watching.end(signal.SIGCONT)
    writer.wait_for(stopped=False)


def test_all_that_was_stopped_goes_on_when_nobody_reads_any_more(
    agent: Start, projects: Path
) -> None:
    """As where a terminal is closed: the first one let go could not be told of, nor the next."""
    with subprocess.Popen(
        watched(projects, "--may-stop"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(b"following ")
        writers = [agent(name) for name in ("one", "two")]
        for name, writer in zip(("one", "two"), writers, strict=True):
            writer.write([line.replace(KEY, name) for line in STUCK[:CUT]])
            writer.wait_for(stopped=True)
        watching.stdout.close()
        watching.send_signal(signal.SIGHUP)
        assert watching.wait(60) == 1
        for writer in writers:
            writer.wait_for(stopped=False)


def test_who_is_continued_from_elsewhere_goes_on(held: tuple[Watch, Agent]) -> None:
    watching, writer = held
    until(lambda: '"pause"' in control("sessions", "--format", "json"))
    # Seen as stopped at one look at least.
    until(lambda: _looks_after(watching))
    os.kill(writer.process.pid, signal.SIGCONT)
    watching.wait_for("something else continued it")
    assert writer.process.poll() is None
    watching.end()


def _looks_after(watching: Watch) -> bool:
    """True if it has looked again: what is typed is answered after a look."""
    asked = watching.printed.count("go on?")
    watching.type("hm\n")
    until(lambda: watching.printed.count("go on?") > asked)
    return True


def test_an_agent_that_opens_the_file_for_each_line_is_known_by_name_and_folder(
    watch: Start, agent: Start, projects: Path
) -> None:
    lines = [line.replace('"cwd": "/app"', f'"cwd": "{projects}"') for line in STUCK]
    other = agent("other", "--by-name")  # in the same folder, and no agent
    watching, writer = watch("--may-stop"), agent(KEY, "--by-name", argv0="claude")
    writer.write(lines[:CUT])
    writer.wait_for(stopped=True)
    assert other.state != "T"
    watching.end()
    writer.wait_for(stopped=False)


def test_of_gemini_cli_the_process_is_stopped_that_its_launcher_started(
    watch: Start, projects: Path
) -> None:
    """It says in a file beside its transcripts where it works, and starts itself with options."""
    work, place = projects.parent / "work", projects / "app/chats"
    work.mkdir()
    place.mkdir(parents=True)
    (place.parent / ".project_root").write_text(str(work), "utf-8")
    (work / "gemini").write_text(LAUNCHER, "utf-8")
    watching = watch("--may-stop")
    command = [sys.executable, "gemini", str(place / "session.jsonl")]
    # A session of its own, so that all of it can be killed.
    with subprocess.Popen(
        command, cwd=work, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as launcher:
        try:
            assert launcher.stdout is not None
            child = int(launcher.stdout.readline())
            watching.wait_for(f"process {child} (")
            assert state_of(launcher.pid) != "T"
            until(lambda: state_of(child) == "T")
            # What it had written by then goes as far as an abort: a person decides on that too.
            watching.wait_for("abort s (gemini, work)")
            watching.type("n\n")
            watching.wait_for(f"process {child} of s was told to end, by ")
            assert launcher.wait(60) == 0
            watching.end()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)


def test_of_opencode_the_process_is_stopped_that_works_in_the_folder(
    watch: Start, projects: Path
) -> None:
    place = projects / "opencode.db"
    with closing(opencode.tables(place)) as database:
        database.execute("UPDATE session SET directory = ?", (str(projects),))
        database.commit()
    watching = watch("--may-stop")
    writer = Agent(place, "--database", argv0="opencode")
    try:
        # A session that changed long ago is taken for one of a database that was moved here.
        now = time.time_ns() // 10**6
        for change in (("UPDATE session SET time_updated = ?", [now]), *opencode.changes()):
            writer.ask(f"{json.dumps(change)}\n")
        watching.wait_for(f"deny {opencode.SESSION} (opencode, projects): 'bash' was called 3")
        watching.wait_for(f"let {opencode.SESSION} go on?")
        writer.wait_for(stopped=True)
        watching.type("n\n")
        assert writer.process.wait(60) == -signal.SIGTERM
        watching.end()
    finally:
        writer.end()


LAUNCHER = """
import json, subprocess, sys
from time import sleep
if "-u" not in sys.orig_argv:
    child = subprocess.Popen([sys.executable, "-u", *sys.argv])
    print(child.pid, flush=True)
    sys.exit(child.wait() and 0)
lines = [{"sessionId": "s", "projectHash": "x", "kind": "main"}]
response = {"functionResponse": {"response": {"error": "no such file: missing.txt"}}}
for number in range(8):
    call = {"id": f"c{number}", "name": "run_shell_command", "args": {"command": "cat x"}}
    call |= {"status": "error", "result": [response]}
    call |= {"timestamp": f"2026-11-23T07:00:{2 * number + 1:02}Z"}
    message = {"id": f"m{number}", "type": "gemini", "content": "", "toolCalls": [call]}
    lines.append(message | {"timestamp": f"2026-11-23T07:00:{2 * number:02}Z"})
for line in lines:
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps(line) + "\\n")
sleep(600)
"""
"""Starts itself with an option, as gemini-cli does; then writes, and goes on."""


def test_of_two_that_may_be_it_none_is_stopped(watch: Start, agent: Start, projects: Path) -> None:
    lines = [line.replace('"cwd": "/app"', f'"cwd": "{projects}"') for line in STUCK]
    other = agent("other", "--by-name", argv0="claude")
    watching, writer = watch("--may-stop"), agent(KEY, "--by-name", argv0="claude")
    writer.write(lines[:CUT])
    watching.wait_for("not stopped: more than one (2) is claude-code in")
    assert "T" not in (other.state, writer.state)
    watching.end()


def test_neither_readers_nor_itself_nor_who_started_it_is_stopped(
    watch: Start, agent: Start, projects: Path
) -> None:
    """The test writes the second transcript, and is the parent of the watch."""
    place = projects / f"{KEY}.jsonl"
    place.touch()
    with subprocess.Popen(["tail", "-f", str(place)], stdout=subprocess.DEVNULL) as reader:
        watching, writer = watch("--may-stop"), agent(KEY, "--by-name")
        writer.write(STUCK[:CUT])
        watching.wait_for("not stopped: no process of yours")
        assert state_of(reader.pid) != "T"
        reader.kill()
    with (projects / "mine.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(line.replace(KEY, "mine") for line in STUCK[:CUT])
        file.flush()
        until(lambda: watching.printed.count("not stopped: no process of yours") == 2)
    watching.end()


def test_the_webhook_is_told_of_what_is_new(
    watch: Start, agent: Start, projects: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with served(Hook()) as hook:
        monkeypatch.setenv("LOOPGUARD_WEBHOOK_URL", hook.url)
        place = projects / f"{KEY}.jsonl"
        place.write_text("".join(STUCK[:CUT]), "utf-8")
        watching, writer = watch(), agent()
        writer.write(STUCK[CUT:])
        fresh = agent("fresh")
        fresh.write([line.replace(KEY, "fresh") for line in STUCK])
        until(lambda: hook.posts)
        watching.end()
        sessions = {json.loads(body)["data"]["session"] for _, body in hook.posts}
        assert sessions == {"fresh"}
    assert watching.told == [("hint", "fresh"), ("deny", "fresh")]
