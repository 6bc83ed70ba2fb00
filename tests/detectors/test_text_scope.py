"""A plan that only grows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

ONLY = Settings(switched_off=frozenset({"refinement_spiral"}))
TASKS = [
    "read the parser", "write a test", "fix the lexer", "check the docs", "ask for a review",
    "measure the speed", "rename the module", "add a cache", "translate the page", "tell the team",
]  # fmt: skip

BAD: list[object] = [
    None,
    "",
    "[",
    "no list",
    {"todos": None},
    {"todos": [1, None, {}]},
    {"todos": {"a": 1}},
    [1],
]
"""What may stand where a list of tasks should."""


def say(text: str, agent: str = "planner") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


def boxes(count: int, done: int = 0) -> Step:
    lines = [f"- [{'x' if n < done else ' '}] {task}" for n, task in enumerate(TASKS[:count])]
    return say(f"{TASKS[count - 1]} is needed too.\n" + "\n".join(lines))


def numbered(count: int, heading: str) -> Step:
    lines = [f"{n + 1}. {task}" for n, task in enumerate(TASKS[:count])]
    return say(f"{heading} {TASKS[count - 1]}:\n" + "\n".join(lines))


def todo(count: int, done: int = 0) -> Step:
    items = [
        {"content": task, "status": "completed" if n < done else "pending"}
        for n, task in enumerate(TASKS[:count])
    ]
    return call("write_todos", {"todos": items}, f"Updated todo list: {count} items")


@pytest.mark.parametrize(
    "plans",
    [
        [boxes(n) for n in range(3, 9)],
        [numbered(n, "My plan, with") for n in range(3, 9)],
        [todo(n) for n in range(3, 9)],
    ],
    ids=["boxes", "a numbered plan", "a tool for lists"],
)
def test_a_plan_that_only_grows_is_noticed(plans: list[Step]) -> None:
    """Three tasks, four, five, six, seven, and none of them is done."""
    run = Run(ONLY)
    run.calls(*plans)
    found = [found for found in run.decisions if found.detector == "scope_creep"]
    assert [(one.reason, one.step, one.action) for one in found] == [("plan_only_grows", 4, "hint")]
    assert "from 3 to 7 tasks" in found[0].message


@pytest.mark.parametrize(
    "plans",
    [
        [boxes(n, n - 3) for n in range(3, 10)],
        [todo(n, n - 3) for n in range(3, 10)],
        [boxes(5)] * 8,
        [boxes(n) for n in (6, 5, 4, 3, 2)],
        [numbered(n, "What I found in") for n in range(3, 9)],
    ],
    ids=["tasks get done", "tasks get done in the tool", "the same plan", "it shrinks", "findings"],
)
def test_a_plan_that_is_worked_off_is_healthy(plans: list[Step]) -> None:
    """Tasks are done, or no more are added, or it is no plan."""
    run = Run()
    run.calls(*plans)
    assert "scope_creep" not in [found.detector for found in run.decisions]


@pytest.mark.parametrize("plan", [boxes, todo], ids=["boxes", "a tool for lists"])
def test_work_between_the_plans_is_progress(plan: Callable[[int], Step]) -> None:
    """It is worked on, marked or not."""
    run = Run()
    for count in range(3, 10):
        run.calls(plan(count), call("write_file", {"path": f"f{count}"}, f"wrote {count}"))
    assert "scope_creep" not in [found.detector for found in run.decisions]


def test_a_user_may_want_more() -> None:
    """Each task more was asked for."""
    run = Run()
    for count in range(3, 10):
        run.calls(boxes(count), Step(Kind.OTHER, "user", text="and one thing more"))
    assert run.actions == []


def test_another_plan_is_another_plan() -> None:
    """Longer and longer, and never the same."""
    run = Run(ONLY)
    for count in range(3, 10):
        lines = [f"- [ ] job{count} part{place} of it" for place in range(count)]
        run.calls(say("\n".join(lines)))
    assert run.actions == []


@pytest.mark.parametrize(
    "given",
    BAD,
    ids=str,
)
def test_whatever_a_tool_for_lists_is_given_nothing_throws(given: object) -> None:
    """Bad data is no plan."""
    run = Run()
    run.calls(*(call("write_todos", given, f"answer {number}") for number in range(2)))
    assert run.guard.faults.counts == {}
    assert run.actions == []


def test_the_number_is_a_setting() -> None:
    """`tuning.text.scope_turns`."""
    run = Run(Settings(tuning={"text": {"scope_turns": 2}}))
    run.calls(*(boxes(n) for n in range(3, 6)))
    assert run.actions == ["hint"]
