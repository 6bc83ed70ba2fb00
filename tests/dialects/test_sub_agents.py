"""A sub-agent's span under OpenInference says what it was asked and what it answered.

`sub_agent_captures/` has a run of a manager whose sub-agent is asked the same in every turn, and
one whose sub-agent gets another task each time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_loopguard.core import Action, Kind, Step
from tests.dialects import loops
from tests.dialects.sub_agent_captures.record import ANSWERS, STUCK, TASKS
from tests.test_untraced import Seen

FOLDER = Path(__file__).parent / "sub_agent_captures"
FRAMEWORKS = pytest.mark.parametrize("framework", ["smolagents", "langgraph"])


def replayed(name: str) -> tuple[Seen, list[Step]]:
    seen = Seen().replay(loops.spans(name, FOLDER))
    return seen, [step for step in seen.steps if step.kind is Kind.AGENT and step.parent_id]


def said(steps: list[Step]) -> list[tuple[object, object]]:
    return [(step.args, step.outcome) for step in steps]


@FRAMEWORKS
def test_a_sub_agent_that_is_asked_the_same_again_is_stopped(framework: str) -> None:
    seen, runs = replayed(f"{framework}-stuck")
    assert said(runs) == [*zip(*STUCK, strict=True)]
    told = [(one.action, one.reason) for one in seen.decisions]
    assert told[:2] == [(Action.HINT, "same_instruction"), (Action.DENY, "same_instruction")]


@FRAMEWORKS
def test_a_sub_agent_that_is_asked_for_something_else_is_left_alone(framework: str) -> None:
    """Its manager says the same each time, and acts: it asks."""
    seen, runs = replayed(f"{framework}-fine")
    assert said(runs) == [*zip(TASKS, ANSWERS, strict=True)]
    assert {one.action for one in seen.decisions} <= {Action.ALLOW}
