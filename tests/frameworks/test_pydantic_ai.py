"""The pydantic-ai capability in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

PYDANTIC_AI = FRAMEWORKS["pydantic_ai"]
NO_RESULTS = ["No results."] * 4


@cache
def _said(*options: str) -> dict[str, Any]:
    program = PYDANTIC_AI.folder / "cases.py"
    # One call against the refusal is enough.
    process = started(PYDANTIC_AI, *options, program=program, LOOPGUARD_ABORT_AFTER="2")
    return line_of(finished(process))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to: without spans of the framework, and with, both without content."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


def test_a_stream_is_stopped_too(said: dict[str, Any]) -> None:
    """`run_stream` ends in the same stop after the same calls."""
    assert said["streamed"] == {"ran": 4, "parts": NO_RESULTS}


def test_runs_without_an_id_are_sessions_of_their_own(said: dict[str, Any]) -> None:
    """A run that was aborted does not hold the next one of the same agent."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_a_name_in_the_context_wins(said: dict[str, Any]) -> None:
    """`otel_loopguard.session` goes before the id of the conversation."""
    assert said["named"] == "run-42"


def test_a_conversation_is_the_session(said: dict[str, Any]) -> None:
    """One whose run was aborted goes on with the user's next turn."""
    assert said["conversation"] == {"session": "conversation-2", "answer": "Done."}


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It stands behind the result, in the same request, and stays in the history."""
    assert said["contract"] == {
        "parts": ["ToolCallPart", "ToolReturnPart", "UserPromptPart"],
        "requests": ["ModelResponse", "ModelRequest"],
        "kept": True,
        "answer": "Done.",
    }


def test_other_calls_are_made_after_a_deny(said: dict[str, Any]) -> None:
    """Only calls of the denied loop are refused."""
    assert said["after_a_deny"] == {"ran": ["x", "x", "x", "x", "y", "z"], "answer": "Done."}


def test_a_refused_call_is_a_failed_one(said: dict[str, Any]) -> None:
    """It is on the trace once, as an error."""
    assert said["refused"] == {"ran": 4, "status": ["UNSET"] * 4 + ["ERROR"]}


def test_a_gate_has_its_limit(said: dict[str, Any]) -> None:
    """Nobody resumed it: `LoopGuardPaused`, with the results so far."""
    assert said["limit"] == {"ran": 1, "parts": ["No results."]}


def test_what_a_tool_raises_comes_out(said: dict[str, Any]) -> None:
    """As without the capability."""
    assert said["a_tool_that_fails"] == {"raised": "broken", "status": ["ERROR"]}


def test_a_retry_is_passed_on(said: dict[str, Any]) -> None:
    """The model tries again, as without the capability."""
    assert said["a_tool_that_asks_again"] == {
        "ran": ["x", "y"],
        "answer": "Done.",
        "status": ["ERROR", "UNSET"],
    }


def test_a_deferred_call_did_not_fail(said: dict[str, Any]) -> None:
    """Somebody else makes it; its span is no error."""
    assert said["a_call_that_is_deferred"] == {"deferred": ["later"], "failed": False}


def test_fifty_runs_in_one_loop(said: dict[str, Any]) -> None:
    """Each is a session of its own, and every one is stopped after four calls."""
    assert said["in_one_loop"] == 50


def test_without_a_guard_nothing_changes() -> None:
    """The agent makes all the calls that its model asks for."""
    assert _said("--unguarded")["unguarded"] == {"ran": 30, "answer": "Done."}
