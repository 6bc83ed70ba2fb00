"""What a decision says to a model and to a user, and other ways than a tool that gets nowhere."""

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.policy import STRATEGIES, alternatives
from otel_loopguard.policy.hints import kind_of
from tests.calls import Run, call


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
