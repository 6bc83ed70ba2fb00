"""No turn is ended that was not hinted at and refused, in answers that were delivered."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import __version__, set_testing
from otel_loopguard._util.clock import now
from otel_loopguard.errors import StoreError
from otel_loopguard.hooks.process import RequestHandler, judge_here
from otel_loopguard.hooks.state import HookState
from otel_loopguard.hooks.state_folder import GREETING, StateFolder
from tests.hooks.running import FAILED, hint_of, is_denied
from tests.tables import rows

SAID: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "pytest -q tests/test_a.py"}}
CALLS = 60


def event(name: str, call: int, **more: Any) -> bytes:
    """An event of Claude Code, about a call that is the same each time."""
    said = SAID | {"tool_use_id": f"toolu_{call}"} | more
    payload = {"hook_event_name": name, "session_id": "chat", "cwd": "/app", **said}
    return json.dumps(payload).encode()


class Machine:
    """What a client of the hooks meets: a process that is there, starts, is gone or is late."""

    def __init__(self, folder: Path, clock: Any, starts_s: float) -> None:
        self.folder = StateFolder(str(folder))
        self.folder.make()
        self.clock = clock
        self.starts_s = starts_s
        self.late = 0
        self.loses = ""
        self.handler: RequestHandler | None = None
        self.calls = 0
        self._ready: int | None = None

    def close(self) -> None:
        if self.handler is not None:
            self.handler.close()
        self.handler = self._ready = None

    def answer(self, payload: bytes) -> dict[str, Any]:
        request = f"{GREETING} {__version__} claude-code enforce\n".encode() + payload
        self._ready = self._ready or now() + round(self.starts_s * 1e9)
        if self.handler is None and now() >= self._ready:
            self.handler = RequestHandler(self.folder)
            self.handler.handle_spooled()
        if self.handler is None:
            Path(self.folder.spool, f"{now():020d}-1").write_bytes(request)
            return {}
        answer, undelivered = self.handler.handle(request)
        said = json.loads(answer) if answer.startswith(b"{") else {}  # as the hook
        if self.late or _kind(said) == self.loses:
            self.late, self.loses = max(self.late - 1, 0), ""
            if undelivered is not None:  # it was no failure
                undelivered()
            return {}
        return said

    def call(self, number: int, pace_s: float) -> list[str]:
        """Makes a call; returns what was heard."""
        self.clock.advance(pace_s / 2)
        before = _kind(self.answer(event("PreToolUse", number)))
        self.clock.advance(pace_s / 2)
        if before in {"deny", "abort"}:
            return [before]
        after = _kind(self.answer(event("PostToolUse", number, tool_response=FAILED)))
        return [said for said in (before, after) if said]

    def run(self, pace_s: float) -> list[str]:
        """Makes calls until the turn is ended; returns what was heard, each once."""
        heard: list[str] = []
        while "abort" not in heard and self.calls < CALLS:
            heard += self.call(self.calls, pace_s)
            self.calls += 1
        self.close()
        return list(dict.fromkeys(heard))


def _kind(said: dict[str, Any]) -> str:
    if said.get("continue") is False:
        return "abort"
    return "deny" if is_denied(said) else "hint" if hint_of(said) else ""


@pytest.fixture
def clock() -> Iterator[Any]:
    with set_testing(True) as clock:
        yield clock


@pytest.fixture
def machine(tmp_path: Path, clock: Any) -> Iterator[Machine]:
    with closing(Machine(tmp_path, clock, 0)) as machine:
        yield machine


@pytest.mark.parametrize(("_name", "times"), rows(__file__, "machines"))
def test_whatever_becomes_of_the_process_a_stop_has_a_refusal_before_it(
    tmp_path: Path, clock: Any, _name: str, times: str
) -> None:
    """It may be gone after some calls, and answer some events too late."""
    starts_s, pace_s, calls, late = map(float, times.split())
    gone = int(calls)
    machine = Machine(tmp_path, clock, 0 if gone else starts_s)
    machine.late = int(late)
    heard: list[str] = []
    for number in range(gone):
        heard += machine.call(number, pace_s)
    machine.calls = gone
    if gone:
        machine.close()
        machine.starts_s = starts_s
    assert [*dict.fromkeys([*heard, *machine.run(pace_s)])] == ["hint", "deny", "abort"]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("word", ["allow", "resume", "prompt"])
def test_a_person_s_word_stands_where_the_clock_was_set_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, word: str, restarts: bool
) -> None:
    """The turn is ended while the machine's clock is an hour ahead."""
    true = time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: true() + 3600 * 10**9)
        assert "abort" in machine.run(2)
        assert machine.call(CALLS, 2) == ["abort"]
    if word == "prompt":
        machine.answer(event("UserPromptSubmit", CALLS, prompt="Try something else."))
    else:
        assert machine.handler is not None
        asked = {"op": word, "session": "chat", "by": "ada"}
        assert b'"ok":true' in machine.handler.handle(json.dumps(asked).encode())[0]
    if restarts:
        machine.close()
    assert machine.call(CALLS + 1, 2) in ([], ["hint"])


@pytest.mark.parametrize("lost", ["hint", "deny"])
def test_an_answer_that_was_not_delivered_is_given_again(machine: Machine, lost: str) -> None:
    """The agent made its call, which is evidence all the same."""
    machine.loses = lost
    assert machine.run(2) == ["hint", "deny", "abort"]
    assert not machine.loses


@contextmanager
def full(state: HookState) -> Iterator[None]:
    """As `HookState.together` where the disk is full: nothing of the block is kept."""
    with HOLDS(state):
        yield
        raise StoreError("database or disk is full")


HOLDS = HookState.together


@pytest.mark.parametrize("before", range(1, 7))
def test_what_could_not_be_kept_was_not_heard(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """A disk that is full for a while: the agent goes on without an answer."""
    heard = [said for number in range(before) for said in machine.call(number, 2)]
    with monkeypatch.context() as patched:
        patched.setattr(HookState, "together", full)
        for number in range(before, before + 20):
            assert machine.call(number, 2) == []
    machine.calls = before + 20
    assert [*dict.fromkeys([*heard, *machine.run(2)])] == ["hint", "deny", "abort"]


def test_an_answer_that_nobody_reads_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a client judges by itself, as without a process."""
    monkeypatch.setattr("os.umask", lambda _: 0)  # that of this process is for other tests, too
    folder = StateFolder(str(tmp_path))
    folder.make()
    answers: list[dict[str, Any]] = []

    def write(answer: bytes) -> None:
        answers.append(json.loads(answer))
        if hint_of(answers[-1]) and sum(bool(hint_of(one)) for one in answers) == 1:
            raise BrokenPipeError

    for number in range(4):
        judge_here(folder, "claude-code", "enforce", event("PreToolUse", number), write)
        if number < 3:
            done = event("PostToolUse", number, tool_response=FAILED)
            judge_here(folder, "claude-code", "enforce", done, write)
    hints = [hint_of(one) for one in answers if hint_of(one)]
    assert len(hints) == 2
    assert all("decided before" in hint or "3 times" in hint for hint in map(str.lower, hints))
