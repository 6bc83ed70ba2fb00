"""Cycles of nodes, and of agents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.graphs import actions, agent, judged, node, said


def again(**args: object) -> Step:
    return call("search", args or {"q": "x"}, "No results for x. Try another query.")


def test_five_turns_with_nothing_new_are_a_cycle() -> None:
    """agent, tools, agent, tools, with the same call and the same answer: five turns."""
    turn = [said(""), node("agent"), again(), node("tools")]
    found = judged(*turn * 6, only="node_cycle")
    assert actions(found)[:1] == ["hint"]
    assert found[0].reason == "node_cycle"
    assert found[0].period == 2
    assert found[0].step < 5 * len(turn) + 2
    assert "went round 5 times" in found[0].message
    assert judged(*turn * 4, only="node_cycle") == []


@pytest.mark.parametrize("period", range(1, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """Nodes that give what they gave before, in the same order."""
    turn = [node(f"node {letter}", {"at": letter}) for letter in "abcdefghijklmnop"[:period]]
    found = judged(*turn * 6, only="node_cycle")
    assert [decision.period for decision in found][:1] == [period]
    assert found[0].step <= 5 * period + 1


def test_a_react_agent_that_learns_is_left_alone() -> None:
    """Forty turns of agent and tools, and every answer is another one: nothing but a note."""
    turns = [
        step
        for number in range(40)
        for step in (
            said(""),
            node("agent"),
            call("read", {"page": number}, f"Page {number} tells of subject{number} and more."),
            node("tools"),
        )
    ]
    assert {decision.detector for decision in judged(*turns)} <= {"graph_limit"}
    assert set(actions(judged(*turns))) <= {"allow"}


def test_new_calls_with_the_same_answer_are_work() -> None:
    """A map over a list: each call is another one, each answer is `ok`."""
    turns = [
        step
        for number in range(60)
        for step in (node("pick"), call("process", {"item": number}, "ok"), node("work"))
    ]
    assert set(actions(judged(*turns))) <= {"allow"}


def test_a_map_over_a_list_is_left_alone() -> None:
    """The state that the node gets is another one each time; what it gives is the same."""
    turns = [node("worker", {"status": "ok"}, {"item": number}) for number in range(60)]
    assert set(actions(judged(*turns))) <= {"allow"}


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(lambda n: said(f"Now I see that {n} is the cause"), id="a text"),
        pytest.param(lambda n: call("look", {"at": n}, "nothing there"), id="a call"),
        pytest.param(lambda n: call("look", {}, f"{n} % done"), id="an answer"),
        pytest.param(lambda n: Step(Kind.HANDOFF, "b", args=f"do part {n}"), id="a hand-over"),
        pytest.param(lambda n: node("count", {"n": n}), id="a state"),
    ],
)
def test_anything_new_begins_again(news: Callable[[int], Step]) -> None:
    """Once in a turn is enough."""
    turns = [
        step
        for number in range(30)
        for step in (again(), node("agent"), again(), node("tools"), news(number))
    ]
    assert set(actions(judged(*turns))) <= {"allow"}


def test_without_knowledge_it_hints_late_and_goes_no_further() -> None:
    """Answers were not captured: whether they bring news cannot be told."""
    turn = [said(None), node("agent"), call("search", {"q": "x"}, None), node("tools")]
    found = judged(*turn * 120, only="node_cycle")
    assert actions(found) == ["hint"]
    assert found[0].reason == "node_cycle_unseen"
    assert found[0].step >= 39 * len(turn)
    assert judged(*turn * 39, only="node_cycle") == []


def test_equal_texts_of_models_are_no_knowledge() -> None:
    """A classifier that says `spam` of each of thirty mails: what it was given is not captured."""
    turn = [node("fetch"), said("spam"), node("classify")]
    assert judged(*turn * 30) == []


def test_it_does_not_stop_by_default() -> None:
    """The user is to be asked, and no more; a setting allows a pause."""
    turn = [again(), node("agent", {"next": "tools"}), node("tools", {"next": "agent"})]
    assert set(actions(judged(*turn * 60))) <= {"hint", "steer", "ask", "allow"}
    assert actions(judged(*turn * 60, only="node_cycle")) == ["hint", "steer", "ask"]
    found = judged(*turn * 60, only="node_cycle", graph_max_action="pause")
    assert actions(found) == ["hint", "pause"]
    assert actions(judged(*turn * 60, only="node_cycle", graph_max_action="hint")) == ["hint"]


def test_agents_that_go_round_are_a_cycle() -> None:
    """planner and critic give the same again and again."""
    turn = [agent("planner", "the plan as before"), agent("critic", "reject: same plan")]
    found = judged(*turn * 6, only="node_cycle")
    assert actions(found)[:1] == ["hint"]
    assert "2 agents" in found[0].message


def test_another_graph_run_counts_by_itself() -> None:
    """Six runs of one graph, three turns each, are no six times three turns."""
    turns = [
        node(name, {"state": "settled"}, at=run * 10 + place * 0.2, trace=run + 1)
        for run in range(6)
        for place, name in enumerate(["a", "b"] * 3)
    ]
    assert judged(*turns) == []


def test_a_user_who_speaks_starts_anew() -> None:
    """The same turns, and a word of the user after every third."""
    turn = [again(), node("agent"), again(), node("tools")]
    steps = [*turn * 3, Step(Kind.OTHER, "user", text="again, please")] * 5
    assert judged(*steps) == []
