"""The hooks of CrewAI in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

CREWAI = FRAMEWORKS["crewai"]
NO_RESULTS = ["No results."] * 4


@cache
def _said(*options: str) -> dict[str, Any]:
    program = CREWAI.folder / "cases.py"
    return line_of(finished(started(CREWAI, *options, program=program)))


@pytest.fixture(params=["bare", "instrumented"])
def variant(request: pytest.FixtureRequest) -> str:
    """With OpenInference, and with nothing but the hooks."""
    return str(request.param)


@pytest.fixture
def said(variant: str) -> dict[str, Any]:
    """What every case came to."""
    return _said("--instrumented") if variant == "instrumented" else _said()


@pytest.mark.parametrize("way", ["in_asyncio", "an_agent_alone"])
def test_every_way_to_run_is_stopped(said: dict[str, Any], way: str) -> None:
    """`Crew.akickoff` and `Agent.kickoff` end in the same stop after the same calls."""
    assert said[way] == {"ran": 4, "parts": NO_RESULTS}


def test_a_flow_is_one_run(said: dict[str, Any]) -> None:
    """What two crews of a flow do counts together."""
    assert said["a_flow"] == [2, 2]


def test_calls_that_are_read_out_of_a_text(said: dict[str, Any]) -> None:
    """OpenInference has no spans of these calls; they are seen, told and stopped all the same."""
    assert said["calls_in_a_text"] == {"ran": 6, "parts": 6, "hinted": True}


def test_runs_are_sessions_of_their_own(said: dict[str, Any]) -> None:
    """A run that was aborted does not hold the next one of the same crew."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_a_name_in_the_context_wins(said: dict[str, Any]) -> None:
    """`otel_loopguard.session` names the session."""
    assert said["named"] == "crew-7"


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is the last message, behind the result of the call before."""
    assert said["contract"] == {
        "end": ["assistant", "tool", "user"],
        "hint": "'search'",
        "assistants": 3,
        "results": 3,
        "answer": "Done.",
    }


def test_other_calls_are_made_after_a_deny(said: dict[str, Any]) -> None:
    """Only calls of the denied loop are refused, of two at once too."""
    assert said["after_a_deny"] == {
        "ran": ["x", "x", "x", "x", "y", "z"],
        "told": ["No results.", "No results."],
        "answer": "Done.",
    }


def test_a_refused_call_has_one_span(said: dict[str, Any]) -> None:
    """Four calls were made, and the fifth is on the trace as a failed one."""
    assert said["refused"]["ran"] == 4
    assert [one == "ERROR" for one in said["refused"]["status"]] == [False] * 4 + [True]


def test_a_tool_that_fails(said: dict[str, Any]) -> None:
    """The model is told as without the hooks, and the span says that it failed."""
    assert said["a_tool_that_fails"] == {
        "told": ["Error executing tool: broken"],
        "status": ["ERROR"],
        "answer": "Done.",
    }


def test_a_call_that_another_hook_blocks(said: dict[str, Any]) -> None:
    """It was not made, and no span says that it was."""
    assert said["blocked_by_another"] == {"ran": 0, "answer": "Done.", "failed": True}


def test_a_gate_has_its_limit(said: dict[str, Any]) -> None:
    """`LoopGuardPaused` comes out of `kickoff` with the results so far."""
    assert said["limit"] == {"ran": 1, "parts": ["No results."]}


def test_hooks_are_registered_once(said: dict[str, Any]) -> None:
    """Registering again adds nothing, and nothing is left when they are taken away."""
    assert said["registered_twice"] == [4, 0]


def test_without_a_guard_nothing_changes() -> None:
    """The crew makes all the calls that its model asks for."""
    assert _said("--unguarded")["unguarded"] == {"ran": 30, "answer": "Done."}
