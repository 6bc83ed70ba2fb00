"""Other ways than a tool that gets nowhere (C7)."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.policy import STRATEGIES, alternatives
from otel_loopguard.policy.hints import kind_of
from tests.calls import Run, call


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
    settings = Settings(steer_after=1, max_action="steer", strategies={"grep": ("read the index",)})
    run = Run(settings)
    flag = None
    for number in range(4):
        run.calls(call("grep", {"pattern": "x"}, "Nothing was found, sorry about that."))
        flag = run.guard.flag_of("run")
        if number == 2:
            assert flag is not None
            assert "Other ways" not in (flag.control.hint or "")
    assert run.actions == ["hint", "steer"]
    assert run.decisions[-1].alternatives[0] == "read the index"
    assert flag is not None
    assert flag.control.hint == (
        "'grep' was called 4 times with equal arguments and an equal 36-character answer, and "
        "nothing was changed in between. Stop this, and take another way. Other ways: read the "
        "index; search for other words, fewer of them, or a more general term; look in another "
        "place."
    )
