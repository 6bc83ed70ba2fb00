"""Graph nodes and agents that come back without progress: what `graph.txt` cannot say."""

import json
from pathlib import Path

import pytest

from otel_loopguard.core import Decision, Step
from tests.calls import agent, node
from tests.detectors.alone import alone
from tests.zero_code.interpreter import interpreter, run

FAMILY = frozenset(
    ("node_cycle", "state_convergence", "no_progress", "rapid_iteration", "graph_limit")
)


def judged(*steps: Step) -> list[Decision]:
    """What the family decides about one session."""
    return [decision for decision in alone("all", *steps) if decision.detector in FAMILY]


@pytest.mark.parametrize("period", range(1, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """Nodes that give what they gave before, in the same order."""
    turn = [node(f"node {letter}", {"at": letter}) for letter in "abcdefghijklmnop"[:period]]
    found = alone("node_cycle", *turn * 6)
    assert [decision.period for decision in found][:1] == [period]
    assert found[0].step <= 5 * period + 1


def test_agents_and_logs_go_round_too() -> None:
    """Planner and critic give the same again and again; a log grows by lines that stood there."""
    turn = [agent("planner", "the plan as before"), agent("critic", "reject: same plan")]
    found = alone("node_cycle", *turn * 6)
    assert found[0].action == "hint"
    assert "2 agents" in found[0].message
    turns = [
        node("critic", {"verdict": "reject"}, {"log": ["plan", "reject: same plan"] * number})
        for number in range(1, 7)
    ]
    assert alone("state_convergence", *turns)[0].action == "hint"


OK = {"status": "ok"}


@pytest.mark.parametrize(
    "steps",
    [
        [node("worker", OK, {"item": n}) for n in range(60)],
        [node(name, OK, at=run * 10 + place * 0.2, trace=run + 1)
         for run in range(6) for place, name in enumerate(["a", "b"] * 3)],
        [node("agent", {"n": n}, at=100 * (n // 30) + n, trace=n // 30 + 1) for n in range(90)],
        [node("worker", OK, at=n * 0.001, took=1) for n in range(60)],
        [node("worker", OK, {"item": n}, at=n * 0.002, took=0.001) for n in range(200)],
    ],
    ids=["a map over a list", "six runs of one graph, three turns each",
         "three runs of thirty iterations", "side by side", "fast and healthy"],
)  # fmt: skip
def test_visits_that_are_no_turns_are_left_alone(steps: list[Step]) -> None:
    assert judged(*steps) == []


def ran(how: str, *switched_off: str) -> tuple[list[str], list[tuple[str, str, int]]]:
    """The visits of a run, and the family's decisions on it: detector, action, visits so far."""
    python = interpreter("langgraph", "openinference.instrumentation.langchain")
    script = Path(__file__).with_name("langgraph_loop.py")
    done = run(python, str(script), how, *switched_off)
    assert done.returncode == 0, done.stderr
    visits, decisions, faults = json.loads(done.stdout.splitlines()[-1])
    assert faults == {}
    return visits, [tuple(one) for one in decisions if one[0] in FAMILY]


def test_a_real_graph_that_goes_round_is_noticed_and_not_stopped() -> None:
    """The same page, read again and again, and nothing stops; another page each time is work."""
    visits, found = ran("stuck", "repetition")
    assert visits[:4] == ["choose", "read", "choose", "read"]
    assert len(visits) == 62
    assert found[0][:2] == ("state_convergence", "hint")
    assert found[0][2] <= 12
    assert "node_cycle" in {name for name, _, _ in found}
    assert {action for _, action, _ in found} <= {"allow", "hint", "steer", "ask"}
    visits, found = ran("learning")
    assert (len(visits), found) == (62, [])
