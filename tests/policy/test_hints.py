"""What a decision says to a model and to a user."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Diagnosis
from otel_loopguard.core.decision import Fix
from otel_loopguard.policy.hints import hint
from tests.calls import Run, call

MEASURED = (
    "'search' was called 3 times with equal arguments and an equal 11-character answer, and "
    "nothing was changed in between."
)
FIXES = (Fix("look"), Fix("delete it", "high"), Fix("third"))
CAUSE = "Likely cause: It is full. What may help: look; delete it (cannot be taken back)."
KNOWN = {"diagnosis": Diagnosis("x", "It is full", FIXES)}


@pytest.mark.parametrize(
    ("action", "given", "follows"),
    [
        (Action.HINT, {}, "Use what you have, try another way, or say what is missing."),
        (Action.STEER, {}, "Stop this, and take another way."),
        (Action.ASK, {"question": "Go on?"}, "Ask the user before you go on. To ask: Go on?"),
        (Action.DENY, {},
         "The same again is refused: try another way, or finish with what you have."),
        (Action.PAUSE, {}, "The run is paused until a person lets it go on."),
        (Action.ABORT, {}, "The run is stopped."),
        # A detector's own advice is more to the point than the usual one.
        (Action.HINT, {"advice": "Let Coder answer instead."}, "Let Coder answer instead."),
        # After an abort there is nobody left to take advice.
        (Action.ABORT, {**KNOWN, "alternatives": ("a",), "advice": "b"}, "The run is stopped."),
    ],
    ids=str,
)  # fmt: skip
def test_first_what_was_measured_then_what_follows(
    action: Action, given: dict[str, Any], follows: str
) -> None:
    """The evidence is quoted, by name, count and size."""
    run = Run(Settings(max_action="hint"))
    run.calls(*[call("search", {"q": "x"}, "No results.")] * 3)
    decision = replace(run.decisions[-1], action=action, advice="")
    assert hint(replace(decision, **given)) == f"{MEASURED} {follows}"
    # Cause first, then at most two fixes; one that cannot be taken back is named as such.
    told = hint(replace(decision, **KNOWN))
    assert told.endswith(CAUSE) is (action is not Action.ABORT)


def test_an_ask_has_a_question_for_the_user() -> None:
    """It says what was measured, the likely cause, and what there is to choose from."""
    run = Run(Settings(ask_after=1, max_action="ask"))
    run.calls(*[call("read", {"path": "a"}, error="FileNotFoundError: no such file 'a'")] * 4)
    last = run.decisions[-1]
    assert last.action is Action.ASK
    assert (last.question or "").endswith(
        "What is asked for is not at that place, or has another name. Should the agent go on like "
        "this, try another way (which?), or stop?"
    )


@pytest.mark.parametrize("action", ["hint", "steer", "deny", "abort"])
def test_where_nobody_is_asked_there_is_no_question(action: Any) -> None:
    """Only an ask and a pause have one."""
    run = Run(Settings(steer_after=1, max_action=action))
    run.calls(*[call("search", {"q": "x"}, "No results.")] * 8)
    assert [found.question for found in run.decisions] == [None] * len(run.decisions)
