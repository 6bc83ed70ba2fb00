"""No coding agent gets an answer that it does not accept, whatever it sends."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from otel_loopguard.hooks.agents import AGENTS, EventKind, HookAnswer, Reply
from tests.hooks.exchanges import every_exchange, something
from tests.hooks.schemas import ANSWERS, refused

EVENTS = 10_000
EXCHANGES = list(every_exchange())
TEXTS = ("session", "sub_agent", "turn", "call_id", "tool", "error", "text", "model", "cwd")


def test_answers_are_taken() -> None:
    """And each form of answer that an agent takes at an event is one that it is given."""
    given: set[tuple[str, str]] = set()
    for each in EXCHANGES:
        for reply, answer in each.answers.items():
            assert refused(each.agent, each.payload, answer) is None, (each.payload, reply)
            given.add((each.agent, (each.event or {})["name"]))
    assert given == {(agent, event) for agent, events in ANSWERS.items() for event in events}


@pytest.mark.parametrize(
    ("agent", "event", "answer"),
    [
        ("codex", "PreToolUse", {"hookSpecificOutput": {"hookEventName": "PreToolUse", "x": 1}}),
        ("codex", "PreToolUse", {"continue": False, "stopReason": "enough"}),
        ("codex", "Stop", {"decision": "block"}),
        ("codex", "PostToolUse", {"reason": "without a decision"}),
        ("cursor", "preToolUse", {"permission": "ask", "user_message": "is not heeded"}),
        ("cursor", "postToolUse", {"additional_context": "x" * 10_001}),
        ("gemini", "BeforeAgent", {"decision": "deny", "reason": "throws the prompt away"}),
    ],
)
def test_other_answers_are_not(agent: str, event: str, answer: dict[str, Any]) -> None:
    """What the vendors' programs are known to refuse, the schemas refuse."""
    assert refused(agent, {"hook_event_name": event}, answer)


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
