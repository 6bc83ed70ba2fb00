"""Guarded agents of LlamaIndex in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

LLAMA_INDEX = FRAMEWORKS["llama_index"]


@cache
def _said(*options: str) -> dict[str, Any]:
    program = LLAMA_INDEX.folder / "cases.py"
    return line_of(finished(started(LLAMA_INDEX, *options, program=program)))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to: with nothing else, and with OpenInference."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


def test_a_workflow_of_agents_is_stopped(said: dict[str, Any]) -> None:
    """An `AgentWorkflow` is guarded with all its agents."""
    assert said["a_workflow"] == {"ran": 4, "parts": ["No results."] * 4}


def test_a_tool_that_takes_the_context(said: dict[str, Any]) -> None:
    """It gets the workflow's context, which is no argument of the loop."""
    assert said["a_tool_that_takes_the_context"] == {
        "ran": 4,
        "parts": ["No results were noted."] * 4,
    }


def test_runs_are_sessions_of_their_own(said: dict[str, Any]) -> None:
    """A run that was aborted does not hold the next one of the same agent."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_a_name_in_the_context_wins(said: dict[str, Any]) -> None:
    """`otel_loopguard.session` names the session."""
    assert said["named"] == "llama-7"


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It stands behind the result of the call before, and stays in the history."""
    assert said["contract"] == {
        "end": ["assistant", "tool", "user"],
        "requests": 2,
        "answer": "Done.",
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
    assert said["a_tool_that_fails"] == {
        "ran": ["broken"],
        "told": ["tool", "broken"],
        "answer": "Done.",
    }


def test_a_gate_has_its_limit(said: dict[str, Any]) -> None:
    """`LoopGuardPaused` comes out of the handler with the results so far."""
    assert said["limit"] == {"ran": 1, "parts": ["No results."]}


def test_without_a_guard_nothing_changes() -> None:
    """The agent makes all the calls that its model asks for."""
    assert _said("--unguarded")["unguarded"] == {"ran": 30, "answer": "Done."}
