"""The middleware of Agent Framework in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

AGENT_FRAMEWORK = FRAMEWORKS["agent_framework"]


@cache
def _said(*options: str) -> dict[str, Any]:
    program = AGENT_FRAMEWORK.folder / "cases.py"
    return line_of(finished(started(AGENT_FRAMEWORK, *options, program=program)))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to, with the spans of the framework and without."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


def test_two_runs_are_two_sessions(said: dict[str, Any]) -> None:
    """The second run of an agent is not held by the first."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_the_next_turn_of_a_conversation_goes_on(said: dict[str, Any]) -> None:
    """The framework's session is the session, and a stop does not hold it for ever."""
    assert said["next_turn"] == {"ran": [True, True, True], "sessions": ["talk-7"]}


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is a user message behind the result, and nothing is stopped."""
    assert said["hint"] == {"roles": ["tool", "user"], "hint": "'search'", "stopped": False}


def test_a_stream_is_stopped(said: dict[str, Any]) -> None:
    """The stop comes out where the stream is read, with the results."""
    assert said["streamed"] == {"ran": 4, "parts": 4}


def test_calls_at_once_are_stopped_together(said: dict[str, Any]) -> None:
    """The stop has the results of all calls that were made."""
    assert said["at_once"] == {"parts": True, "few": True}


def test_an_agent_that_is_a_tool_is_in_the_session(said: dict[str, Any]) -> None:
    """Its loop stops the run that it is a part of, and under that run's session."""
    assert said["below"] == {"session": "talk-8", "ran": 4}


def test_a_tool_is_as_it_was_outside_of_a_run(said: dict[str, Any]) -> None:
    """Called by somebody else it runs, and has no span of ours."""
    assert said["outside"] == {"ran": ["y"], "own": 0}


def test_a_failed_call_is_no_result(said: dict[str, Any]) -> None:
    """A stop carries no errors along, and each span of a failed call says so."""
    assert said["failing"] == {"parts": 0, "spans": True}
