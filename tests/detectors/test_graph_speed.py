"""Graphs that spin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.calls import call
from tests.detectors.graphs import actions, judged, node

if TYPE_CHECKING:
    from otel_loopguard.core import Step

ONLY = "rapid_iteration"


def spin(visits: int, pause: float) -> list[Step]:
    return [
        node("ab"[n % 2], {"gave": "ab"[n % 2]}, at=n * pause, took=pause / 2)
        for n in range(visits)
    ]


def test_a_graph_that_spins_is_noticed_early() -> None:
    """Five transitions of 20 ms that give what was given before."""
    found = judged(*spin(8, 0.02), only=ONLY)
    assert actions(found) == ["hint"]
    assert found[0].reason == "rapid_iteration"
    assert found[0].step == 7
    assert "20.0 ms" in found[0].message


def test_it_only_hints() -> None:
    """However long it spins."""
    assert actions(judged(*spin(300, 0.02), only=ONLY)) == ["hint"]


def test_at_the_pace_of_work_it_is_left_alone() -> None:
    """150 ms for a transition are no spin; another rule looks at what came of them."""
    assert judged(*spin(40, 0.15), only=ONLY) == []


def test_without_times_nothing_counts() -> None:
    """A recording without times is not infinitely fast."""
    turns = [node("ab"[n % 2], {"gave": "ab"[n % 2]}) for n in range(40)]
    assert judged(*turns, only=ONLY) == []


def test_a_fast_healthy_graph_is_not_stuck() -> None:
    """A map over two hundred items in 2 ms each."""
    turns = [
        node("worker", {"ok": True}, {"item": n}, at=n * 0.002, took=0.001) for n in range(200)
    ]
    assert set(actions(judged(*turns))) <= {"allow"}


def test_a_fast_chain_of_nodes_is_not_stuck() -> None:
    """Twelve nodes that check and change nothing: none was there before."""
    turns = [node(f"check {chr(97 + n)}", {}, {"doc": 1}, at=n * 0.002) for n in range(12)]
    assert judged(*turns) == []


def test_fast_tools_that_bring_news_are_work() -> None:
    """A graph over a local index: 3 ms for each query."""
    turns = [
        step
        for n in range(60)
        for step in (
            call("lookup", {"word": f"w{n}"}, f"meaning {n}", at=n * 0.003, took=0.001),
            node("tools", at=n * 0.003, took=0.0015),
        )
    ]
    assert set(actions(judged(*turns))) <= {"allow"}
