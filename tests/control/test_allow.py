"""`control.allow`: a false alarm is let through."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, control
from otel_loopguard.core import Action
from tests.calls import call


def stuck(guard: LoopGuard, session: str, times: int, tool: str = "search") -> Action:
    for _ in range(times):
        guard.observe(call(tool, {"q": "x"}, "No results for that."), session)
    flag = guard.flag_of(session)
    assert flag is not None
    return flag.control.action


def test_the_loop_goes_on_and_another_is_judged(caplog: Any) -> None:
    """`call`: this loop only. The log names the setting, at the deny and at the allow."""
    caplog.set_level(logging.INFO)
    guard = LoopGuard()
    assert stuck(guard, "loop", 4) is Action.DENY
    lasting = 'to allow this for good, set exempt_tools = ["search"]'
    assert caplog.text.count(lasting) == 1
    assert control.allow("loop", by="ann")
    assert caplog.text.count(lasting) == 2
    assert stuck(guard, "loop", 12) is Action.ALLOW
    assert stuck(guard, "loop", 4, "other") is Action.DENY


def test_a_session_may_do_what_it_likes() -> None:
    """`session`: decisions are noted, and stop nothing."""
    guard = LoopGuard()
    stuck(guard, "session", 8)
    assert control.allow("session", "session")
    assert stuck(guard, "session", 12, "other") is Action.ALLOW


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"scope": "all"}, ValueError),
        ({"by": 3}, ValueError),
        ({"by": "policy"}, LoopGuardSettingsError),
    ],
)
def test_what_cannot_be_is_refused(given: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        control.allow("s", **given)


def test_a_session_that_is_not_known() -> None:
    assert not control.allow("nobody")
