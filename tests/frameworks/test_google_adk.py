"""The plugin of Google ADK in the real framework, beyond what all adapters share."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

pytestmark = pytest.mark.rare

ADK = FRAMEWORKS["google_adk"]


@cache
def _said(*options: str) -> dict[str, Any]:
    return line_of(finished(started(ADK, *options, program=ADK.folder / "cases.py")))


@pytest.fixture(params=["bare", "instrumented"])
def said(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What every case came to, with ADK's own spans and without."""
    return _said("--instrumented") if request.param == "instrumented" else _said()


def test_a_stop_ends_the_run_as_adk_does(said: dict[str, Any]) -> None:
    """The last answer says so, the plugin keeps the exception, and the history stays whole."""
    assert said["stopped"] == {
        "ran": 4,
        "codes": ["LOOPGUARD_STOP"],
        "parts": 4,
        "session": "stopped",
        "answered": True,
    }


@pytest.mark.parametrize("case", ["next_turn", "next_request"])
def test_the_next_turn_goes_on(said: dict[str, Any], case: str) -> None:
    """What was stopped in a conversation does not hold it for ever, below a server's span too."""
    assert all(said[case])


def test_a_workflow_ends(said: dict[str, Any]) -> None:
    """A `LoopAgent` does not ask its agent again."""
    assert said["workflow"] == {"ran": 4, "stopped": True}


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is a content of the user behind the result of the call, and nothing is stopped."""
    assert said["hint"] == {"role": "user", "before": True, "codes": [], "stopped": False}


def test_what_a_tool_raises_comes_out(said: dict[str, Any]) -> None:
    """As without the plugin; the span has the failure, and nothing stays open."""
    assert said["raising"] == {"raised": "x", "on the span": True, "open": 0}


def test_a_tool_that_answers_with_an_error_failed(said: dict[str, Any]) -> None:
    """It is a loop like any other, and its errors are no results."""
    assert said["told_failures"] == {"fewer than 10": True, "stopped": True, "parts": 0}
