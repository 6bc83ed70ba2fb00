"""The hooks of Strands in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

STRANDS = FRAMEWORKS["strands"]


@cache
def _said(*options: str) -> dict[str, Any]:
    return line_of(finished(started(STRANDS, *options, program=STRANDS.folder / "cases.py")))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to, with the spans of Strands and without."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


def test_the_history_stays_whole(said: dict[str, Any]) -> None:
    """Every call has a result, and the stop has the results of all that were made."""
    assert said["history"] == {"ran": 4, "parts": 4, "whole": True}


def test_calls_at_once_are_stopped_together(said: dict[str, Any]) -> None:
    """The agent may be asked again, and its history is whole then."""
    assert said["at_once"] == {"parts": True, "again": True, "whole": True}


def test_two_runs_are_two_sessions(said: dict[str, Any]) -> None:
    """The second run of an agent is not held by the first."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_the_next_turn_of_a_conversation_goes_on(said: dict[str, Any]) -> None:
    """`session.id` of the agent is the session, and a stop does not hold it for ever."""
    assert said["next_turn"]["ran"] == [True, True, True]
    assert _said("--instrumented")["next_turn"]["sessions"] == ["talk-7"]


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is behind the text of the last result, and nothing is stopped."""
    assert said["hint"] == {"first": "No results.", "hint": "'search'", "stopped": False}


def test_a_failed_call_is_no_result(said: dict[str, Any]) -> None:
    """A stop carries no errors along, and no call stays open."""
    assert (said["failing"]["parts"], said["failing"]["open"]) == (0, 0)


def test_own_spans_say_that_a_call_failed() -> None:
    """As many as calls were made, where Strands writes none."""
    assert _said()["failing"]["own"] is True


def test_a_graph_passes_the_stop_on(said: dict[str, Any]) -> None:
    """The caller of the graph gets it."""
    assert said["graph"] == {"stopped": True, "ran": 4}


def test_a_swarm_ends_as_failed(said: dict[str, Any]) -> None:
    """The stop is the result of its node."""
    assert said["swarm"] == {"status": "failed", "stop": True, "ran": 4}
