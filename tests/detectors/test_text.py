"""Model texts that go in circles: what `text.txt` cannot say."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call


@pytest.mark.parametrize(
    ("trace", "gap_s", "actions"),
    [(1, 30, []), (1, 0.5, ["hint"]), (0, -0.999, [])],
    ids=["after a user's pause", "at once", "samples beside each other"],
)
def test_who_answers_a_user_announces_nothing_again(
    trace: int, gap_s: float, actions: list[str]
) -> None:
    """Nobody types within a second; after a pause in another trace somebody may have."""
    run = Run()
    for number in range(8):
        step = Step(Kind.MODEL, "chat", agent="writer", text=f"I now begin to work ({number}).")
        step.start = EPOCH + round(number * (gap_s + 1) * SECOND)
        step.end = step.start + SECOND
        step.trace_id = trace * (number + 1)
        run.calls(step)
    assert run.actions == actions


@pytest.mark.parametrize(
    "text",
    [
        "I'll look up the secret of Oslo now.",
        "The secret of Oslo is not what I expected, so I look again. " * 12,
        "The secret of Oslo has a length that nobody would have expected, and so I look.",
    ],
)
def test_a_message_holds_no_content(text: str) -> None:
    """What was measured, and nothing of what was written."""
    run = Run()
    run.calls(*[Step(Kind.MODEL, "chat", agent="writer", text=text)] * 8)
    assert run.decisions
    assert not any("Oslo" in one.message + one.advice for one in run.decisions)


@pytest.mark.parametrize(
    "given",
    [None, "", "[", "no list", {"todos": None}, {"todos": [1, None, {}]}, {"todos": {"a": 1}}, [1]],
    ids=str,
)
def test_whatever_a_tool_for_lists_is_given_nothing_throws(given: object) -> None:
    """Bad data is no plan."""
    run = Run()
    run.calls(*(call("write_todos", given, f"answer {number}") for number in range(2)))
    assert run.guard.faults.counts == {}
    assert run.actions == []
