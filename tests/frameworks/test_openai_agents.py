"""The hooks of the OpenAI Agents SDK in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

OPENAI = FRAMEWORKS["openai_agents"]


@cache
def _said(*options: str) -> dict[str, Any]:
    program = OPENAI.folder / "cases.py"
    # One call against the refusal is enough.
    return line_of(finished(started(OPENAI, *options, program=program, LOOPGUARD_ABORT_AFTER="2")))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to, with OpenInference and without."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


@pytest.mark.parametrize("case", ["mcp", "streamed"])
def test_every_call_is_guarded(said: dict[str, Any], case: str) -> None:
    """A tool of an MCP server and a streamed run end as others do."""
    assert said[case] == {"ran": 4, "parts": 4}


@pytest.mark.parametrize("case", ["two_runs", "untraced"])
def test_two_runs_are_two_sessions(said: dict[str, Any], case: str) -> None:
    """The second run of an agent is not held by the first, with the SDK's tracing off too."""
    assert said[case] == {"ran": [4, 4], "same": False}


def test_a_stored_conversation_stays_whole(said: dict[str, Any]) -> None:
    """Every call in it has an output, and the stop knows what the run had come to."""
    history = said["history"]
    assert history["answered"] is True
    assert history["last"].startswith("'search' was called 4 times")
    assert history["kept"] == 10


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is a message of the user behind the result of the call, and the model may answer it."""
    assert said["hint"] == {"role": "user", "before": "function_call_output", "requests": 4}


def test_guardrails_of_the_application_come_first(said: dict[str, Any]) -> None:
    """Ours is added once, whatever number of runs there is."""
    assert said["own_guardrail"] == ["yours", "loopguard"]


def test_a_failed_call_is_no_result(said: dict[str, Any]) -> None:
    """A stop carries no errors along."""
    assert said["failing"]["parts"] == 0


def test_own_spans_say_that_a_call_failed() -> None:
    """As many as calls were made, without an instrumentation."""
    assert _said()["failing"]["as many"] is True


def test_a_tool_that_ends_the_run_leaves_nothing_open(said: dict[str, Any]) -> None:
    """The SDK tells nobody of its end; the call ends with its context."""
    assert said["raising"] == {"raised": "UserError", "open": 0}
