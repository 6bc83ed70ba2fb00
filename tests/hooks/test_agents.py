"""How each coding agent's events are read, and what each of them is answered."""

from __future__ import annotations

import json

import pytest

from otel_loopguard.hooks.agents import AGENTS, EventKind, HookAnswer, Reply
from tests.hooks.exchanges import SAID, Exchange, answers, every_exchange, read

EXCHANGES = list(every_exchange())


def test_the_command_line_knows_them_by_these_names() -> None:
    assert list(AGENTS) == ["claude-code", "codex", "gemini", "vscode", "cursor", "opencode"]


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
