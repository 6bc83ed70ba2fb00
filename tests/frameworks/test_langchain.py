"""The LangChain middleware in the real framework, beyond what all adapters share."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

LANGCHAIN = FRAMEWORKS["langchain"]
VARIANTS = ("bare", "instrumented")
NO_RESULTS = ["No results."] * 4


@cache
def _said(*options: str) -> dict[str, Any]:
    program = LANGCHAIN.folder / "cases.py"
    return line_of(finished(started(LANGCHAIN, *options, program=program)))


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    """With OpenInference, and with nothing but the middleware."""
    return str(request.param)


@pytest.fixture
def said(variant: str) -> dict[str, Any]:
    """What every case came to."""
    return _said("--instrumented") if variant == "instrumented" else _said()


def test_asyncio_is_as_good(said: dict[str, Any], variant: str) -> None:
    """`ainvoke` ends in the same stop; before Python 3.11 OpenInference's span is not found."""
    if variant == "instrumented" and sys.version_info < (3, 11):
        assert said["in_asyncio"] is None
    else:
        assert said["in_asyncio"] == {"ran": 4, "parts": NO_RESULTS}


def test_a_tool_without_arguments(said: dict[str, Any], variant: str) -> None:
    """That it has none is known from the middleware, whatever the span says."""
    assert said["without_arguments"] == 4
    if variant == "bare" or sys.version_info >= (3, 11):
        assert said["without_arguments_in_asyncio"] == 4


def test_runs_without_an_id_are_sessions_of_their_own(said: dict[str, Any]) -> None:
    """A run that was aborted does not hold the next one of the same agent."""
    assert said["two_runs"] == {"ran": [4, 4], "same": False}


def test_runs_in_one_trace(said: dict[str, Any], variant: str) -> None:
    """Without an instrumentation each has its key; with one both are turns of one session.

    What was counted in the first run weighs half in the second.
    """
    one = {"ran": [4, 2], "same": True}
    two = {"ran": [4, 4], "same": False}
    assert said["two_runs_in_one_trace"] == (one if variant == "instrumented" else two)


def test_a_thread_is_the_session(said: dict[str, Any]) -> None:
    """Under the key of the thread people pause, resume and abort it; the next turn goes on."""
    assert said["thread"] == "thread-7"
    assert said["next_turn"] == "Done."


def test_the_hint_keeps_the_contract_of_messages(said: dict[str, Any]) -> None:
    """It is the last message, behind the results of the calls, in one request only."""
    assert said["contract"] == {
        "last": ["HumanMessage", "'search'"],
        "before": "ToolMessage",
        "answered": True,
        "in state": False,
        "answer": "Done.",
    }


def test_other_calls_are_made_after_a_deny(said: dict[str, Any]) -> None:
    """Only calls of the denied loop are refused."""
    assert said["after_a_deny"] == {
        "ran": ["x", "x", "x", "x", "y", "z"],
        "status": ["success", "success"],
        "answer": "Done.",
    }


def test_a_refused_call_has_a_result(said: dict[str, Any]) -> None:
    """A `ToolMessage` with the id of the call says why it was not made."""
    assert said["refused"] == {"ran": 4, "told": "'search'", "id": "call_5_0"}


@pytest.mark.parametrize(
    ("case", "told"), [("continued", "No results."), ("guided", "Look elsewhere.")]
)
def test_a_pause_may_be_an_interrupt(said: dict[str, Any], case: str, told: str) -> None:
    """The graph ends its call, and goes on where it was; a text is told the model."""
    found = said[case]
    assert [asked["reason"] for asked in found["asked"]] == ["a person looks at it"]
    assert found["ran"] == [1, 2]
    assert found["answer"] == "Done."
    assert found["told"] == told


def test_an_interrupt_may_be_answered_by_an_abort(said: dict[str, Any]) -> None:
    """The run ends where it would have gone on."""
    assert said["aborted"]["ran"] == [1, 1]
    assert "aborted)" in said["aborted"]["stop"]


def test_a_gate_has_its_limit(said: dict[str, Any]) -> None:
    """Nobody resumed it: `LoopGuardPaused`, with the results so far."""
    assert said["limit"] == {"ran": 1, "parts": ["No results."]}


def test_a_gate_holds_inside_of_a_running_loop_too(said: dict[str, Any]) -> None:
    """`invoke` called by a coroutine waits, as it would for a model."""
    assert said["in_a_running_loop"] == {"answer": "Done.", "ran": 2}


def test_a_run_is_one_trace(said: dict[str, Any], variant: str) -> None:
    """The middleware opens a span for the agent where none is open, and ends it with the run."""
    if variant == "instrumented":
        assert all(len(traces) < 3 for traces in said["one_trace"].values())
        return
    found = said["one_trace"]
    agent, tool = "invoke_agent looper", "execute_tool search"
    calls = [[tool, agent, "UNSET"]] * 4 + [[tool, agent, "ERROR"]] * 3
    assert found["invoke"] == found["ainvoke"] == [[[agent, "", "ERROR"], *calls]]
    assert found["too many steps"] == [[[agent, "", "ERROR"], [tool, agent, "UNSET"]]]
    assert found["half read"] == [[[agent, "", "UNSET"]]]
    assert found["no spans"] == []
    (below,) = found["below a span"]
    assert [[name, above] for name, above, _ in below] == [
        ["request", ""], *([[tool, "request"]] * len(below[1:])),
    ]  # fmt: skip
    assert len(found["beside each other"]) == 2
    assert all(len({above for _, above, _ in run}) == 2 for run in found["beside each other"])


def test_a_tool_that_interrupts_did_not_fail(said: dict[str, Any], variant: str) -> None:
    """Its own span is no failure, and the graph goes on with the answer."""
    assert said["a_tool_that_interrupts"] == {
        "asked": ["May I?"],
        "status": [] if variant == "instrumented" else ["UNSET"],
        "answer": "A person said yes.",
    }


def test_what_a_tool_raises_comes_out(said: dict[str, Any], variant: str) -> None:
    """As without the middleware; its own span has the failure."""
    status = [] if variant == "instrumented" else ["ERROR"]
    assert said["a_tool_that_fails"] == {"raised": "broken", "status": status}


def test_a_command_is_a_result(said: dict[str, Any]) -> None:
    """A tool that answers with a `Command` loops like any other."""
    assert said["a_tool_that_commands"] == {"ran": 4, "parts": ["Not found."] * 4}


def test_a_graph_of_ones_own(said: dict[str, Any]) -> None:
    """`ToolNode(wrap_tool_call=…)` refuses and ends as in `create_agent`."""
    own = said["a_graph_of_ones_own"]
    assert (own["ran"], own["parts"], own["told"][:4]) == (4, 4, ["success"] * 4)
    assert set(own["told"][4:]) == {"error"}


def test_no_node_is_added(said: dict[str, Any]) -> None:
    """A limit of steps is reached no sooner than without the middleware."""
    assert said["nodes"] is True


def test_without_a_guard_nothing_changes() -> None:
    """The agent makes all the calls that its model asks for."""
    assert _said("--unguarded")["unguarded"] == {"ran": 30, "answer": "Done."}
