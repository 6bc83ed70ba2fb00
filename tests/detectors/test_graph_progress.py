"""Graphs that go round without progress."""

from __future__ import annotations

from tests.calls import call
from tests.detectors.graphs import actions, judged, node, said

ONLY = "no_progress"


def test_five_iterations_with_nothing_new_are_noticed() -> None:
    """Whatever way the graph takes: the nodes come in no fixed order."""
    ways = [["a", "b"], ["b", "a"], ["a", "a"], ["b", "b"], ["b", "a"], ["a", "b"], ["a", "b"]]
    turns = [node(name, {"gave": name}) for way in ways for name in way]
    found = judged(*turns, only=ONLY)
    assert actions(found)[:1] == ["hint"]
    assert found[0].reason == "no_progress"
    assert found[0].count == 5
    assert judged(*turns[:10], only=ONLY) == []


def test_it_asks_for_another_way_and_stops_nothing() -> None:
    """A hint, and then steer."""
    turn = [node("a", {"gave": "a"}), node("b", {"gave": "b"})]
    assert actions(judged(*turn * 50, only=ONLY)) == ["hint", "steer"]


def test_a_repeated_call_is_no_news() -> None:
    """Tool calls are told apart with their answers, not by being made."""
    turn = [said("I search again"), node("agent"), call("s", {"q": 1}, "none"), node("tools")]
    found = judged(*turn * 7, only=ONLY)
    assert actions(found)[:1] == ["hint"]
    assert "'tools'" in found[0].message or "'agent'" in found[0].message


def test_one_new_text_is_progress() -> None:
    """A decision that was not made before begins again."""
    turn = [node("a", {"gave": "a"}), node("b", {"gave": "b"})]
    steps = [step for n in range(9) for step in (*turn * 2, said(f"let us try way {n}"))]
    assert judged(*steps) == []


def test_different_steps_under_one_name_are_no_iterations() -> None:
    """Some instrumentations name every node after its class; their states tell them apart."""
    turns = [node("Agent.task", {"step": number % 7}) for number in range(7 * 3)]
    assert judged(*turns) == []


def test_visits_beside_each_other_are_one() -> None:
    """A fan-out of sixty workers that overlap and give the same is no sixty iterations."""
    turns = [node("worker", {"ok": True}, at=number * 0.001, took=1) for number in range(60)]
    assert judged(*turns) == []
