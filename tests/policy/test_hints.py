"""What a decision says to a model and to a user, and other ways than a tool that gets nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Diagnosis
from otel_loopguard.core.decision import Fix
from otel_loopguard.policy import STRATEGIES, alternatives
from otel_loopguard.policy.hints import hint, kind_of
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


@pytest.mark.parametrize("tool", ["bash", "edit", "sql", "python", "search", "frobnicate"])
def test_every_tool_has_other_ways(tool: str) -> None:
    """At most three, and all different; a user's own stand in front, by name or by pattern."""
    ways = alternatives(tool, {})
    assert ways == STRATEGIES[kind_of(tool)]
    assert len(set(ways)) == len(ways) == 3
    own = {"grep": ("read the index",), f"{tool[:2]}*": ("ask the API", "ask me")}
    assert alternatives(tool, own)[:2] == ("ask the API", "ask me")
    assert alternatives("grep", own)[0] == "read the index"


def test_an_error_that_is_understood_has_fixes_instead_of_other_ways() -> None:
    """Fixes for the error at hand are more to the point; the user's own ways are still named."""
    for own, ways in (({}, ()), ({"read": ("read the index",)}, ("read the index",))):
        run = Run(Settings(strategies=own))
        run.calls(*[call("read", {"path": "a"}, error="no such file 'a'")] * 4)
        denied = next(found for found in run.decisions if found.action.stops)
        assert denied.diagnosis is not None
        assert denied.alternatives == ways


def test_a_steer_says_which_ways_there_are() -> None:
    """The model hears them with the flag; a hint before it does not name them yet."""
    run = Run(Settings(steer_after=1, max_action="steer", strategies={"grep": ("read the index",)}))
    grep = call("grep", {"pattern": "x"}, "Nothing was found, sorry about that.")
    flag = run.guard.flag_named("run")
    run.calls(*[grep] * 3)
    assert "Other ways" not in (flag.control.hint or "Other ways")
    assert run.calls(grep) == ["hint", "steer"]
    assert run.decisions[-1].alternatives[0] == "read the index"
    assert flag.control.hint == (
        "'grep' was called 4 times with equal arguments and an equal 36-character answer, and "
        "nothing was changed in between. Stop this, and take another way. Other ways: read the "
        "index; search for other words, fewer of them, or a more general term; look in another "
        "place."
    )
