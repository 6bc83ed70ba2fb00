"""States that settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.calls import call
from tests.detectors.graphs import actions, judged, node, said

if TYPE_CHECKING:
    from otel_loopguard.core import Step

ONLY = "state_convergence"


def settled(turns: int, state: object = None) -> list[Step]:
    return [node("revise", state or {"draft": "the same words"}) for _ in range(turns)]


def test_three_unchanged_states_are_noticed() -> None:
    """The first gives the state, the next three leave it as it was."""
    found = judged(*settled(4), only=ONLY)
    assert actions(found) == ["hint"]
    assert found[0].reason == "state_unchanged"
    assert "unchanged 3 times" in found[0].message
    assert judged(*settled(3), only=ONLY) == []


def test_it_asks_for_another_way_and_stops_nothing() -> None:
    """A node may do its work where no state shows it."""
    assert actions(judged(*settled(80), only=ONLY)) == ["hint", "steer"]


def test_a_log_that_repeats_itself_holds_nothing_new() -> None:
    """What the node gets grows by lines that stood there already."""
    turns = [
        node("critic", {"verdict": "reject"}, {"log": ["plan", "reject: same plan"] * number})
        for number in range(1, 7)
    ]
    assert actions(judged(*turns, only=ONLY))[:1] == ["hint"]


def test_order_ids_and_times_are_no_change() -> None:
    """Ids of messages and calls differ in every run; keys stand in any order."""
    turns = [
        node(
            "agent",
            {
                "messages": [
                    {
                        "type": "ai",
                        "content": "I could not find it.",
                        "id": f"run--{number}",
                        "usage_metadata": {"input_tokens": 100 + number},
                    }
                ],
                "took": f"{number}.3 s",
            },
        )
        for number in range(6)
    ]
    assert actions(judged(*turns, only=ONLY))[:1] == ["hint"]


@pytest.mark.parametrize(
    "changing",
    [
        pytest.param(lambda n: {"n": n}, id="a counter"),
        pytest.param(lambda n: {"rows": [{"id": n, "name": "x"}]}, id="the id of a record"),
        pytest.param(lambda n: f"{n} % done", id="a text"),
        pytest.param(lambda n: {"deep": {"er": [[{"x": n}]]}}, id="deep inside"),
        pytest.param(lambda n: {"many": [0] * 5000, "x": {str(n): 1}}, id="beside a long list"),
        pytest.param(lambda n: {"many": {f"k{i}": i or n for i in range(900)}}, id="of many"),
        pytest.param(lambda n: "x" * 300_000 + str(n), id="at the end of a long text"),
    ],
)
def test_a_state_that_changes_is_no_convergence(changing: Callable[[int], object]) -> None:
    """Numbers are never masked: 37 % and 41 % is progress."""
    turns = [node("worker", changing(number)) for number in range(12)]
    assert judged(*turns) == []


def test_work_beside_the_state_is_work() -> None:
    """The node says ok; a tool in it answered something new."""
    turns = [
        step
        for number in range(12)
        for step in (call("get", {"n": number}, f"row {number}"), node("worker", {"ok": True}))
    ]
    assert judged(*turns) == []


def test_an_answer_that_was_not_captured_may_be_new() -> None:
    """Missing is not empty."""
    turn = [call("get", {"n": 1}, None), node("worker", {"ok": True})]
    assert judged(*turn * 30) == []


def test_a_change_of_the_world_is_progress() -> None:
    """Each edit is another one, and tests and state are as before."""
    turns = [
        step
        for number in range(12)
        for step in (
            said(""),
            call("edit_file", {"path": "a.py", "new": f"v{number}"}, "ok"),
            node("edit", {"tests": "failing"}),
        )
    ]
    assert judged(*turns) == []


@pytest.mark.parametrize("how", ["by the clock", "by its tool", "declared"])
def test_waiting_is_no_convergence(how: str) -> None:
    """A node that polls a job every ten seconds, or sleeps in between."""
    if how == "by the clock":
        turns = [node("poll", {"job": "pending"}, at=10 * number) for number in range(30)]
        assert judged(*turns) == []
        return
    tool = "sleep" if how == "by its tool" else "job_state"
    turn = [call(tool, {"seconds": 10}, "done"), node("poll", {"job": "pending"})]
    assert judged(*turn * 30, poll_tools=frozenset({"job_state"})) == []


def test_waiting_has_a_budget() -> None:
    """After half an hour without anything new it counts."""
    turns = [node("poll", {"job": "pending"}, at=10 * number) for number in range(200)]
    found = judged(*turns, only=ONLY)
    assert actions(found)[:1] == ["hint"]
    assert found[0].step >= 180
