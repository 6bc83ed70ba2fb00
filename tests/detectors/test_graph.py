"""Graph nodes and agents of a run that come back without progress."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call
from tests.detectors.alone import STEPS, case, cases, told_of
from tests.detectors.graphs import FAMILY, actions, agent, judged, node, said
from tests.zero_code.interpreter import environment, interpreter


def again(**args: object) -> Step:
    return call("search", args or {"q": "x"}, "No results for x. Try another query.")


@pytest.mark.parametrize("period", range(1, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """Nodes that give what they gave before, in the same order."""
    turn = [node(f"node {letter}", {"at": letter}) for letter in "abcdefghijklmnop"[:period]]
    found = judged(*turn * 6, only="node_cycle")
    assert [decision.period for decision in found][:1] == [period]
    assert found[0].step <= 5 * period + 1


def test_it_does_not_stop_by_default() -> None:
    """The user is to be asked, and no more; a setting allows a pause."""
    turn = [again(), node("agent", {"next": "tools"}), node("tools", {"next": "agent"})]
    assert set(actions(judged(*turn * 60))) <= {"hint", "steer", "ask", "allow"}
    assert actions(judged(*turn * 60, only="node_cycle")) == ["hint", "steer", "ask"]
    found = judged(*turn * 60, only="node_cycle", tuning={"graph": {"max_action": "pause"}})
    assert actions(found) == ["hint", "pause"]
    found = judged(*turn * 60, only="node_cycle", tuning={"graph": {"max_action": "hint"}})
    assert actions(found) == ["hint"]


def test_agents_that_go_round_are_a_cycle() -> None:
    """planner and critic give the same again and again."""
    turn = [agent("planner", "the plan as before"), agent("critic", "reject: same plan")]
    found = judged(*turn * 6, only="node_cycle")
    assert actions(found)[:1] == ["hint"]
    assert "2 agents" in found[0].message


def test_a_user_who_speaks_starts_anew() -> None:
    """The same turns, and a word of the user after every third."""
    turn = [again(), node("agent"), again(), node("tools")]
    steps = [*turn * 3, Step(Kind.OTHER, "user", text="again, please")] * 5
    assert judged(*steps) == []


ONLY = "state_convergence"


def test_a_log_that_repeats_itself_holds_nothing_new() -> None:
    """What the node gets grows by lines that stood there already."""
    turns = [
        node("critic", {"verdict": "reject"}, {"log": ["plan", "reject: same plan"] * number})
        for number in range(1, 7)
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


ONLY_PROGRESS = "no_progress"


def test_five_iterations_with_nothing_new_are_noticed() -> None:
    """Whatever way the graph takes: the nodes come in no fixed order."""
    ways = [["a", "b"], ["b", "a"], ["a", "a"], ["b", "b"], ["b", "a"], ["a", "b"], ["a", "b"]]
    turns = [node(name, {"gave": name}) for way in ways for name in way]
    found = judged(*turns, only=ONLY_PROGRESS)
    assert actions(found)[:1] == ["hint"]
    assert found[0].reason == "no_progress"
    assert found[0].count == 5
    assert judged(*turns[:10], only=ONLY_PROGRESS) == []


def test_one_new_text_is_progress() -> None:
    """A decision that was not made before begins again."""
    turn = [node("a", {"gave": "a"}), node("b", {"gave": "b"})]
    steps = [step for n in range(9) for step in (*turn * 2, said(f"let us try way {n}"))]
    assert judged(*steps) == []


LIMIT = "graph_limit"


def turns(number: int, first: int = 0) -> list[Step]:
    return [
        step
        for n in range(first, first + number)
        for step in (node("agent", {"n": n}), node("tools", {"got": n}))
    ]


def test_the_limit_is_noted_and_touches_nothing() -> None:
    """A warning at 40, the limit at 50, once each; the run goes on."""
    run = Run(Settings(graph_iterations=50, budget_action="allow"))
    run.calls(*turns(200))
    found = [decision for decision in run.decisions if decision.detector == LIMIT]
    assert [(d.action.value, d.reason, d.count) for d in found] == [
        ("allow", "iteration_warning", 40),
        ("allow", "iteration_limit", 50),
    ]
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert not flag.raised


def test_a_user_turn_begins_again() -> None:
    """In one conversation every turn of the user has its own count."""
    user = Step(Kind.OTHER, "user", text="and now the rest")
    steps = [*turns(30), user, *turns(30, 30), user, *turns(30, 60)]
    assert judged(*steps) == []


def ran(how: str, *switched_off: str) -> tuple[list[str], list[tuple[str, str, int]]]:
    """The visits of a run, and the decisions on it: detector, action, visits so far."""
    python = interpreter("langgraph", "openinference.instrumentation.langchain")
    script = Path(__file__).with_name("langgraph_loop.py")
    done = subprocess.run(
        [python, str(script), how, *switched_off],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout.splitlines()[-1])
    visits, decisions, faults = found
    assert faults == {}
    return visits, [(detector, action, at) for detector, action, at in decisions]


def test_a_graph_that_goes_round_is_noticed_and_not_stopped() -> None:
    """The same page, read again and again: its state settles, it goes round, and nothing stops."""
    visits, decisions = ran("stuck", "repetition")
    assert visits[:4] == ["choose", "read", "choose", "read"]
    assert len(visits) == 62
    found = [one for one in decisions if one[0] in FAMILY]
    assert found[0][:2] == ("state_convergence", "hint")
    assert found[0][2] <= 12
    assert "node_cycle" in {name for name, _, _ in found}
    assert {action for _, action, _ in found} <= {"allow", "hint", "steer", "ask"}


def test_a_graph_that_learns_is_left_alone() -> None:
    """Another page in each of thirty turns, a few milliseconds each."""
    visits, decisions = ran("learning")
    assert len(visits) == 62
    assert [one for one in decisions if one[0] in FAMILY] == []


TOLD = {
    "the family": [
        # The state that the node gets is another one each time; what it gives is the same.
        case("a map over a list is left alone", "",
             *[node("worker", {"status": "ok"}, {"item": number}) for number in range(60)]),
        # Six runs of one graph, three turns each, are no six times three turns.
        case("another graph run counts by itself", "",
             *[node(name, {"state": "settled"}, at=run * 10 + place * 0.2, trace=run + 1)
             for run in range(6) for place, name in enumerate(["a", "b"] * 3)]),
        # A fan-out of sixty workers that overlap and give the same is no sixty iterations.
        case("visits beside each other are one", "",
             *[node("worker", {"ok": True}, at=number * 0.001, took=1) for number in range(60)]),
        # A map over two hundred items in 2 ms each.
        case("a fast healthy graph is not stuck", "", *[node("worker", {"ok": True}, {"item": n},
             at=n * 0.002, took=0.001) for n in range(200)]),
        # Twelve nodes that check and change nothing: none was there before.
        case("a fast chain of nodes is not stuck", "",
             *[node(f"check {chr(97 + n)}", {}, {"doc": 1}, at=n * 0.002) for n in range(12)]),
        # A graph over a local index: 3 ms for each query.
        case("fast tools that bring news are work", "",
             *[step for n in range(60) for step in (call("lookup", {"word": f"w{n}"},
             f"meaning {n}", at=n * 0.003, took=0.001), node("tools", at=n * 0.003, took=0.0015))]),
        # Three runs of thirty iterations do not make ninety.
        case("each run of a graph has its own count", "", *[node("agent", {"n": n},
             at=100 * run + n, trace=run + 1) for run in range(3) for n in range(30)]),
        # Two hundred different nodes, each visited once; more than are remembered.
        case("many nodes are no iterations", "",
             *[node(f"n{chr(97 + n % 26)}{n}x", {"n": n}) for n in range(200)]),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    only = None if detector == "the family" else detector
    assert told_of(judged(*steps, only=only, **settings)) == told
