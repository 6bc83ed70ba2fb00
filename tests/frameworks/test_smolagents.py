"""Guarded agents of smolagents in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

SMOLAGENTS = FRAMEWORKS["smolagents"]
NO_RESULTS = ["No results."] * 4


@cache
def _said(*options: str) -> dict[str, Any]:
    program = SMOLAGENTS.folder / "cases.py"
    return line_of(finished(started(SMOLAGENTS, *options, program=program)))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to: with nothing else, and with OpenInference."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


@pytest.mark.parametrize("way", ["code", "code_that_catches", "streamed"])
def test_every_way_to_run_is_stopped(said: dict[str, Any], way: str) -> None:
    """Calls out of code, code that catches the stop, and a stream end after the same calls."""
    assert said[way] == {"ran": 4, "parts": NO_RESULTS}


def test_a_managed_agent_is_guarded_too(said: dict[str, Any]) -> None:
    """Its stop ends the agent above it."""
    assert said["managed"] == {"ran": 4, "parts": 4}


def test_runs_are_sessions_of_their_own(said: dict[str, Any]) -> None:
    """A run that was aborted does not hold the next one of the same agent."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_a_name_in_the_context_wins(said: dict[str, Any]) -> None:
    """`otel_loopguard.session` names the session, in the interpreter's thread too."""
    assert said["named"] == "smol-7"


def test_the_hint_is_told_with_the_result(said: dict[str, Any]) -> None:
    """It stands in the last message, and nothing is left in the caller's context."""
    assert said["contract"] == {
        "last": "tool-response",
        "with the result": True,
        "answer": "Done.",
        "session": None,
    }


def test_other_calls_are_made_after_a_deny(said: dict[str, Any]) -> None:
    """Only calls of the denied loop are refused, of two at once too."""
    assert said["after_a_deny"] == {"ran": ["x", "x", "x", "x", "y", "z"], "answer": "Done."}


def test_a_refused_call_has_a_span(said: dict[str, Any]) -> None:
    """Four calls were made, and what was refused is on the trace as failed, before the abort."""
    assert said["refused"]["ran"] == 4
    assert said["refused"]["failed"][:4] == [False] * 4
    assert set(said["refused"]["failed"][4:]) == {True}


def test_a_tool_that_fails(said: dict[str, Any]) -> None:
    """The model is told as without the guard."""
    assert said["a_tool_that_fails"] == {"ran": ["broken"], "told": True, "answer": "Done."}


def test_a_gate_has_its_limit(said: dict[str, Any]) -> None:
    """`LoopGuardPaused` comes out of `run` with the results so far."""
    assert said["limit"] == {"ran": 1, "parts": ["No results."]}


def test_without_a_guard_nothing_changes() -> None:
    """The agent makes all the calls that its model asks for."""
    assert _said("--unguarded")["unguarded"] == {"ran": 30, "answer": "Done."}
