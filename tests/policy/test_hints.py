"""What a decision says to a model and to a user."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Decision, Diagnosis
from otel_loopguard.core.decision import Fix
from otel_loopguard.policy.hints import hint
from tests.calls import Run, call

SECRET = "c0ffee-secret"


@pytest.fixture
def decision() -> Decision:
    run = Run(Settings(max_action="hint"))
    for _ in range(3):
        run.calls(call("search", {"q": SECRET}, f"No {SECRET} was found."))
    return run.decisions[-1]


MEASURED = (
    "'search' was called 3 times with equal arguments and an equal 27-character answer, and "
    "nothing was changed in between."
)
USUAL = "Use what you have, try another way, or say what is missing."
REFUSED = "The same again is refused: try another way, or finish with what you have."


@pytest.mark.parametrize(
    ("action", "follows"),
    [
        (Action.HINT, USUAL),
        (Action.STEER, "Stop this, and take another way."),
        (Action.ASK, "Ask the user before you go on. To ask: Go on?"),
        (Action.DENY, REFUSED),
        (Action.PAUSE, "The run is paused until a person lets it go on."),
        (Action.ABORT, "The run is stopped."),
    ],
    ids=str,
)
def test_first_what_was_measured_then_what_follows(
    decision: Decision, action: Action, follows: str
) -> None:
    """The evidence is quoted, by name, count and size."""
    asked = replace(decision, action=action, question="Go on?", advice="")
    assert hint(asked) == f"{MEASURED} {follows}"


def test_a_detectors_own_advice_takes_the_place_of_the_usual_one(decision: Decision) -> None:
    """What fits the case is more to the point."""
    advised = replace(decision, advice="Let Coder answer instead.")
    assert hint(advised) == f"{MEASURED} Let Coder answer instead."


def test_a_fix_that_cannot_be_taken_back_is_named_as_such(decision: Decision) -> None:
    """Cause first, then at most two fixes."""
    known = Diagnosis("x", "It is full", (Fix("look"), Fix("delete it", "high"), Fix("third")))
    assert hint(replace(decision, diagnosis=known)).endswith(
        "Likely cause: It is full. What may help: look; delete it (cannot be taken back)."
    )


def test_after_an_abort_nothing_is_advised(decision: Decision) -> None:
    """There is nobody left to take the advice."""
    known = Diagnosis("x", "It is full", (Fix("look"),))
    over = replace(decision, action=Action.ABORT, diagnosis=known, alternatives=("a",), advice="b")
    assert hint(over) == f"{MEASURED} The run is stopped."


def test_no_content_of_a_call_is_told(decision: Decision) -> None:
    """Neither arguments nor answers stand in anything that leaves the process."""
    assert SECRET not in hint(decision)
    assert SECRET not in repr(decision)


def test_an_ask_has_a_question_for_the_user() -> None:
    """It says what was measured, the likely cause, and what there is to choose from."""
    run = Run(Settings(ask_after=1, max_action="ask"))
    for _ in range(4):
        run.calls(call("read", {"path": "a"}, error="FileNotFoundError: no such file 'a'"))
    last = run.decisions[-1]
    assert last.action is Action.ASK
    assert last.question is not None
    assert last.question.endswith(
        "What is asked for is not at that place, or has another name. Should the agent go on like "
        "this, try another way (which?), or stop?"
    )


@pytest.mark.parametrize("action", ["hint", "steer", "deny", "abort"])
def test_where_nobody_is_asked_there_is_no_question(action: str) -> None:
    """Only an ask and a pause have one."""
    run = Run(Settings(steer_after=1, max_action=action))  # type: ignore[arg-type]
    run.calls(*[call("search", {"q": "x"}, "No results.")] * 8)
    assert [found.question for found in run.decisions] == [None] * len(run.decisions)
