"""What the guard cannot see is told once per process and reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.blind_spots import warn_blind
from otel_loopguard.rehearsal import set_testing

if TYPE_CHECKING:
    import pytest


def test_each_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The second call with a reason says nothing, another reason does."""
    told = [warn_blind("no_tools", "%d model calls", n) for n in (3, 4)]
    assert told == [True, False]
    assert warn_blind("no_session", "no session")
    assert [one.getMessage() for one in caplog.records] == [
        "otel-loopguard: 3 model calls",
        "otel-loopguard: no session",
    ]


def test_nothing_is_told_where_the_guard_is_off() -> None:
    """Tests of agents that switch the guard off hear nothing, and nothing is spent."""
    with set_testing("off"):
        assert not warn_blind("no_tools", "nothing")
    assert warn_blind("no_tools", "something")
