"""The agent and the team of the AutoGen adapter in the real framework."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

AUTOGEN = FRAMEWORKS["autogen"]
VARIANTS = {
    "bare": (),
    "native": ("--instrumented",),
    "openinference": ("--openinference",),
    "both": ("--instrumented", "--openinference"),
}


@cache
def _said(*options: str) -> dict[str, Any]:
    return line_of(finished(started(AUTOGEN, *options, program=AUTOGEN.folder / "cases.py")))


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    """Who writes spans besides the adapter: nobody, AutoGen, OpenInference, both."""
    return str(request.param)


@pytest.fixture
def said(variant: str) -> dict[str, Any]:
    """What every case came to."""
    return _said(*VARIANTS[variant])


def test_two_runs_are_two_sessions(said: dict[str, Any]) -> None:
    """The second run of an agent is not held by the first."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_the_history_stays_whole(said: dict[str, Any]) -> None:
    """Every call has a result, and the stop has the results of all that were made."""
    assert said["history"] == {"parts": True, "whole": True}


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is a user message behind the results, and not in the context that is kept."""
    last = ["FunctionExecutionResultMessage", "UserMessage"]
    assert said["hint"] == {"last": last, "kept": False, "stopped": False}


def test_a_stream_is_stopped(said: dict[str, Any]) -> None:
    """The stop comes out where the stream is read, with the results."""
    assert said["streamed"] == {"ran": 4, "parts": 4}


def test_a_team_is_one_session_and_passes_the_stop_on(said: dict[str, Any]) -> None:
    """Its caller gets the `LoopGuardAbort`, with the results of all its agents."""
    assert said["team"]["parts"] == said["team"]["ran"]
    assert said["team"]["few"]


def test_a_healthy_team_is_left_alone(said: dict[str, Any]) -> None:
    """It runs to its end."""
    assert said["healthy_team"] == ["user", "first", "second", "first", "second"]


def test_an_abort_before_a_call_does_not_leave_the_agent_waiting(said: dict[str, Any]) -> None:
    """No call and no request is made after it, and the caller gets it."""
    assert said["aborted"] == {"ran": 1, "requests": 2, "whole": True, "session": "run-a"}


def test_an_agent_that_is_a_tool_is_in_the_session(said: dict[str, Any]) -> None:
    """Its loop stops the run that it is a part of."""
    assert said["below"] == {"ran": 4, "parts": 4}


def test_tools_of_a_workbench_are_guarded(said: dict[str, Any]) -> None:
    """One that does not stream, too."""
    assert said["workbench"] == {"ran": 4, "parts": 4}


def test_no_span_is_doubled(said: dict[str, Any], variant: str) -> None:
    """Own spans of calls, and of refused ones, are there where nothing else writes them."""
    known = {"bare": [4, 3], "native": [0, 3], "openinference": [0, 0], "both": [0, 0]}
    assert said["own_spans"] == known[variant]


def test_the_component_is_the_agent_without_the_guard(said: dict[str, Any]) -> None:
    """Written down it can be loaded without us."""
    plain = "autogen_agentchat.agents.AssistantAgent"
    assert said["component"] == [plain, "ReplayChatCompletionClient"]


def test_a_failed_call_is_no_result(said: dict[str, Any], variant: str) -> None:
    """A stop carries no errors along; spans say so, but for those of OpenInference alone."""
    assert said["failing"] == {"parts": 0, "errors": variant != "openinference"}
