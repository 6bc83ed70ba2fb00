"""How each coding agent's events are read, and what each of them is answered."""

import json
import random
from typing import Any

import pytest

from otel_loopguard.hooks.agents import AGENTS, EventKind, HookAnswer, Reply
from tests.hooks.exchanges import SAID, Exchange, answers, every_exchange, read, something
from tests.hooks.schemas import ANSWERS, refused
from tests.tables import rows

EVENTS = 10_000
EXCHANGES = list(every_exchange())
TEXTS = ("session", "sub_agent", "call_id", "tool", "error", "text", "model")


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.agent)
def test_an_event_is_read_and_answered(exchange: Exchange) -> None:
    """As it is written beside each payload; nothing is said where nothing is to be said.

    A call is refused with a reason, also if the guard has none, and however long one is.
    """
    agent, payload = exchange.agent, exchange.payload
    assert read(agent, payload) == exchange.event
    assert answers(agent, payload) == exchange.answers
    assert AGENTS[agent].answer(payload, HookAnswer()) == {}
    if exchange.event:
        assert bool(exchange.answers.get("hint")) is exchange.event.get("accepts_hint", False)
    for reason in ("", "x" * 100_000) if (exchange.event or {}).get("kind") == "call" else ():
        text = json.dumps(AGENTS[agent].answer(payload, HookAnswer(Reply.DENY, reason)))
        assert "deny" in text
        assert (reason[:1] or "otel-loopguard") in text
        assert len(text) < 20_000


@pytest.mark.parametrize("agent", AGENTS)
def test_each_kind_that_stops_a_loop_is_read(agent: str) -> None:
    """A call, its result, a new turn and the end of one."""
    kinds = {each.event["kind"] for each in EXCHANGES if each.agent == agent and each.event}
    wanted = (EventKind.CALL, EventKind.RESULT, EventKind.PROMPT, EventKind.STOP)
    assert {kind.value for kind in wanted} <= kinds


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("payload", [None, [], "PreToolUse", 7, {}, {"hook_event_name": 7}])
def test_what_is_no_event_is_none(agent: str, payload: object) -> None:
    assert AGENTS[agent].read(payload) is None  # type: ignore[arg-type]
    for said in SAID.values():
        assert AGENTS[agent].answer(payload, said) == {}  # type: ignore[arg-type]


def codex(written: str, line: str) -> tuple[object, str | None]:
    """The outcome and the error of a command that wrote this."""
    said = {
        "hook_event_name": "PostToolUse", "session_id": "chat", "tool_name": "Bash",
        "tool_input": {"command": line}, "tool_response": written,
    }  # fmt: skip
    event = AGENTS["codex"].read(said)
    assert event is not None
    return event.outcome, event.error


LONG = [("| " * 500_000, it, "well") for it in ("a: " * 500_000, "\n" * 10**6, "x" * 10**6)]


@pytest.mark.parametrize(("line", "written", "how"), [*rows(__file__, "complaints"), *LONG])
def test_a_text_that_is_a_complaint_is_a_failure(line: str, written: str, how: str) -> None:
    """One that only has such a text went well, as a search for errors that finds them."""
    line, written = (text.replace("\\n", "\n") for text in (line, written))
    assert codex(written, line) == (written, written if how == "fails" else None)


def test_answers_are_taken() -> None:
    """And each form of answer that an agent takes at an event is one that it is given."""
    given: set[tuple[str, str | None]] = set()
    for each in EXCHANGES:
        for reply, answer in each.answers.items():
            assert refused(each.agent, each.payload, answer) is None, (each.payload, reply)
            given.add((each.agent, AGENTS[each.agent].event(each.payload)))
    assert given == {(agent, event) for agent, events in ANSWERS.items() for event in events}


@pytest.mark.parametrize(("agent", "event", "answer"), rows(__file__, "refused"))
def test_other_answers_are_not(agent: str, event: str, answer: str) -> None:
    """What the vendors' programs are known to refuse, the schemas refuse."""
    told = json.loads(answer.replace("<10001 times x>", "x" * 10_001))
    assert refused(agent, {"hook_event_name": event}, told)


def harmed(payload: dict[str, Any], dice: random.Random) -> Any:
    """An event with some of its fields missing, of another type, or of another event."""
    others = dice.choice(EXCHANGES).payload
    changed = dict(payload)
    for _ in range(dice.randrange(4)):
        key = dice.choice([*payload, *others])
        act = dice.randrange(4)
        if act == 0:
            changed.pop(key, None)
        elif act == 1:
            changed[key] = something(dice)
        elif act == 2:
            changed[key] = others.get(key, something(dice))
        else:
            changed[dice.choice(list(payload))] = changed.pop(key, None)
    return changed if dice.random() < 0.98 else something(dice)


def is_sound(event: Any) -> bool:
    """Whether each field has the type that it says."""
    texts = (getattr(event, name) for name in TEXTS)
    return (
        isinstance(event.kind, EventKind)
        and bool(event.session)
        and all(each is None or isinstance(each, str) for each in texts)
        and (event.args is None or isinstance(event.args, dict))
        and (event.duration_ns is None or isinstance(event.duration_ns, int))
    )


@pytest.mark.parametrize("agent", AGENTS)
def test_events_of_any_shape_are_read_and_answered(agent: str) -> None:
    """10,000 in all, among them events of the other agents."""
    dice = random.Random(f"hooks of {agent}")
    known = 0
    for _ in range(EVENTS // len(AGENTS) + 1):
        own = [each for each in EXCHANGES if each.agent == agent or dice.random() < 0.05]
        payload = harmed(dice.choice(own).payload, dice)
        event = AGENTS[agent].read(payload)
        assert event is None or is_sound(event), payload
        known += event is not None
        reply = dice.choice(list(Reply))
        said = HookAnswer(reply, dice.choice(["", "why"]), dice.choice(["", "x" * 30_000]))
        answer = AGENTS[agent].answer(payload, said)
        assert refused(agent, payload, json.loads(json.dumps(answer))) is None, (payload, said)
    assert known > EVENTS // len(AGENTS) // 3
