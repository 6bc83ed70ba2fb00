"""How each coding agent's events are read, and what each of them is answered."""

from __future__ import annotations

import json

import pytest

from otel_loopguard.hooks.agents import AGENTS, EventKind, HookAnswer, Reply
from tests.hooks.exchanges import SAID, Exchange, answers, every_exchange, read

EXCHANGES = list(every_exchange())


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.agent)
def test_an_event_is_read_and_answered(exchange: Exchange) -> None:
    """As it is written beside each payload; nothing is said where nothing is to be said."""
    agent, payload = exchange.agent, exchange.payload
    assert read(agent, payload) == exchange.event
    assert answers(agent, payload) == exchange.answers
    assert AGENTS[agent].answer(payload, HookAnswer()) == {}
    if exchange.event:
        assert bool(exchange.answers.get("hint")) is exchange.event.get("accepts_hint", False)


@pytest.mark.parametrize("agent", AGENTS)
def test_each_kind_that_stops_a_loop_is_read(agent: str) -> None:
    """A call, its result, a new turn and the end of one."""
    kinds = {each.event["kind"] for each in EXCHANGES if each.agent == agent and each.event}
    wanted = (EventKind.CALL, EventKind.RESULT, EventKind.PROMPT, EventKind.STOP)
    assert {kind.value for kind in wanted} <= kinds


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.agent)
def test_a_call_is_refused_with_a_reason(exchange: Exchange) -> None:
    """Also if the guard has none, and however long one is."""
    if not exchange.event or exchange.event["kind"] != "call":
        return
    for reason in ("", "x" * 100_000):
        told = AGENTS[exchange.agent].answer(exchange.payload, HookAnswer(Reply.DENY, reason))
        text = json.dumps(told)
        assert "deny" in text
        assert (reason[:1] or "otel-loopguard") in text
        assert len(text) < 20_000


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("payload", [None, [], "PreToolUse", 7, {}, {"hook_event_name": 7}])
def test_what_is_no_event_is_none(agent: str, payload: object) -> None:
    assert AGENTS[agent].read(payload) is None  # type: ignore[arg-type]
    for said in SAID.values():
        assert AGENTS[agent].answer(payload, said) == {}  # type: ignore[arg-type]


FAILED = [
    ("cat missing.txt", "cat: missing.txt: No such file or directory\n"),
    ("cargo test", "bash: line 1: cargo: command not found\n"),
    ("cd src && /usr/bin/make test", "make: *** No rule to make target 'test'.  Stop.\n"),
    ("ls a b", "ls: cannot access 'a': No such file or directory\nls: cannot access 'b': Not a"),
    ("python run.py", "Traceback (most recent call last):\n  File x\nValueError: no\n"),
    ("FOO=1\ngrep x nothing", "grep: nothing: No such file or directory"),
]
HEALTHY = [
    ("grep -rn 'not found' docs", "docs/faq.md:3: bash: cargo: command not found\n"),
    ("grep -h cat: log.txt", "cat: missing.txt: No such file or directory\n"),
    ("make", "make: Nothing to be done for 'all'.\n"),
    ("true", "bash: warning: setlocale: LC_ALL: cannot change locale\n"),
    ("cat log.txt", "Traceback (most recent call last):\n  File x\n    cut here"),
    ("cat log.txt", "cat: a: No such file or directory\nand then a whole file\n"),
    ("pytest", "1 failed, 3 passed"),
    ("echo", ""),
]


def codex(written: str, line: str) -> tuple[object, str | None]:
    """The outcome and the error of a command that wrote this."""
    said = {
        "hook_event_name": "PostToolUse", "session_id": "chat", "tool_name": "Bash",
        "tool_input": {"command": line}, "tool_response": written,
    }  # fmt: skip
    event = AGENTS["codex"].read(said)
    assert event is not None
    return event.outcome, event.error


@pytest.mark.parametrize(("line", "written"), FAILED)
def test_a_text_that_is_a_complaint_is_a_failure(line: str, written: str) -> None:
    assert codex(written, line) == (written, written)


@pytest.mark.parametrize(("line", "written"), HEALTHY)
def test_a_text_that_names_one_is_none(line: str, written: str) -> None:
    """A search for errors that finds them went well."""
    assert codex(written, line) == (written, None)


@pytest.mark.parametrize(
    "written", ["a: " * 500_000, "x" * 10**6, "\n" * 10**6, "sh: " + " " * 10**6]
)
def test_a_long_text_is_codex(written: str) -> None:
    line = "| " * 500_000
    assert codex(written, line)[0] == written
