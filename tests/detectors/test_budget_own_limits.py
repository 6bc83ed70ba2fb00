"""Limits of single agents and of types of tasks, beside those of the guard (C20)."""

from __future__ import annotations

import pytest

from otel_loopguard import Action, LoopGuard, LoopGuardSettingsError, Settings, control, session
from otel_loopguard.core import Decision, Kind, Step


def call(number: int, agent: str | None, *, error: bool = False) -> Step:
    said = f"answer {number} tells of things that no other answer tells of: {number * 7919:x}"
    step = Step(Kind.TOOL, "read", agent=agent, args={"n": number}, outcome=said)
    step.error = error
    return step


def made(**settings: object) -> tuple[LoopGuard, list[Decision]]:
    """A guard, and what it says of limits that are an agent's or a type's own."""
    found: list[Decision] = []

    def note(_session: object, decision: Decision) -> None:
        if decision.detector == "own_limit":
            found.append(decision)

    return LoopGuard(Settings(**settings), on_decision=note), found


def test_an_agent_has_limits_of_its_own() -> None:
    """Its calls count and those of others do not; said once near and once at the limit."""
    limits = {"writer": {"actions": 5, "action": "ask"}}
    guard, found = made(agent_limits=limits)
    for number in range(20):
        guard.observe(call(number, "critic"), "a")
        if number < 8:
            guard.observe(call(100 + number, "writer"), "a")
    assert [(one.reason, one.action, one.count) for one in found] == [
        ("agent_actions_near", Action.HINT, 4),
        ("agent_actions_limit", Action.ASK, 5),
    ]
    assert "agent 'writer' used 5 of 5 tool calls" in found[1].message


def test_tokens_cost_and_errors_of_an_agent() -> None:
    """Each on its own; a success ends a row of errors."""
    limits = {"writer": {"tokens": 1000, "cost": 1, "errors": 3}}
    guard, found = made(agent_limits=limits, tuning={"budget": {"warning": 1}})
    guard.observe(Step(Kind.MODEL, "m", agent="critic", tokens_in=5000, cost=9), "a")
    guard.observe(Step(Kind.MODEL, "m", agent="writer", tokens_in=900, tokens_out=200), "a")
    guard.observe(Step(Kind.MODEL, "m", agent="writer", cost=2), "a")
    for number, failed in enumerate([True, True, False, True, True, True]):
        guard.observe(call(number, "writer", error=failed), "a")
    assert [one.reason for one in found] == [
        "agent_tokens_limit", "agent_cost_limit", "agent_errors_limit",
    ]  # fmt: skip
    assert {one.action for one in found} == {Action.ALLOW}


def test_a_type_of_task_has_limits_of_its_own() -> None:
    """In the sessions that say so, also before their first step."""
    guard, found = made(task_limits={"question": {"actions": 5, "steps": 9, "action": "pause"}})
    # Guards of other tests may know sessions of simple names.
    for name, kind in (("asks", "question"), ("searches", "research")):
        with session(name):
            assert control.task_type(kind)
    for name in ("asks", "searches", "other"):
        for number in range(5):
            guard.observe(call(number, None), name)
    assert [(one.session, one.reason) for one in found] == [
        ("asks", "task_actions_near"), ("asks", "task_actions_limit"),
    ]  # fmt: skip
    assert guard.flag_of("asks").control.action is Action.PAUSE


def test_nothing_is_said_by_default() -> None:
    """Of no agent and no task."""
    guard, found = made()
    for number in range(200):
        guard.observe(call(number, "writer"), "a")
    assert found == []


@pytest.mark.parametrize(
    "settings",
    [
        {"agent_limits": {"writer": {"actions": 0}}},
        {"agent_limits": {"writer": {"steps": 3}}},
        {"task_limits": {"question": {"action": "deny"}}},
    ],
)
def test_wrong_limits_are_refused(settings: dict[str, object]) -> None:
    """With name and value."""
    with pytest.raises(LoopGuardSettingsError, match="_limits"):
        Settings(**settings)


def test_a_type_has_a_name() -> None:
    """None takes it back."""
    with pytest.raises(ValueError, match="not empty"):
        control.task_type("")
