"""What a decision says to a model and to a user, and other ways than a tool that gets nowhere."""

from dataclasses import replace
from typing import Any

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Diagnosis
from otel_loopguard.core.decision import Fix
from otel_loopguard.policy import STRATEGIES, alternatives
from otel_loopguard.policy.hints import hint, kind_of
from tests.calls import Run, call


def test_a_fix_that_cannot_be_taken_back_is_named_as_such() -> None:
    """At most two fixes, after the cause; after an abort there is nobody left to take advice."""
    run = Run()
    run.calls(*[call("search", {"q": "x"}, "No results.")] * 3)
    fixes = (Fix("look"), Fix("delete it", "high"), Fix("third"))
    known = replace(run.decisions[-1], diagnosis=Diagnosis("x", "It is full", fixes))
    assert hint(known).endswith(
        "Likely cause: It is full. What may help: look; delete it (cannot be taken back)."
    )
    ended = replace(known, action=Action.ABORT, alternatives=("a",), advice="b")
    assert hint(ended).endswith("changed in between. The run is stopped.")


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
