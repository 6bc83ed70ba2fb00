"""The limit of iterations."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run
from tests.detectors.graphs import actions, judged, node

ONLY = "graph_limit"


def turns(number: int, first: int = 0) -> list[Step]:
    return [
        step
        for n in range(first, first + number)
        for step in (node("agent", {"n": n}), node("tools", {"got": n}))
    ]


def test_there_is_no_limit_until_it_is_set() -> None:
    """200 iterations of a healthy graph are nobody's business."""
    run = Run()
    run.calls(*turns(200))
    assert [decision for decision in run.decisions if decision.detector == ONLY] == []


def test_the_limit_is_noted_and_touches_nothing() -> None:
    """A warning at 40, the limit at 50, once each; the run goes on."""
    run = Run(Settings(graph_limit_action="allow"))
    run.calls(*turns(200))
    found = [decision for decision in run.decisions if decision.detector == ONLY]
    assert [(d.action.value, d.reason, d.count) for d in found] == [
        ("allow", "iteration_warning", 40),
        ("allow", "iteration_limit", 50),
    ]
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert not flag.raised


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("allow", ["allow", "allow"]),
        ("hint", ["hint", "hint"]),
        ("pause", ["hint", "pause"]),
        ("abort", ["hint", "abort"]),
    ],
)
def test_the_action_is_a_setting(action: str, expected: list[str]) -> None:
    """The warning is a hint if the limit is more than a note."""
    assert actions(judged(*turns(60), only=ONLY, graph_limit_action=action)) == expected


def test_limit_and_warning_are_settings() -> None:
    """Ten iterations, warned at half."""
    found = judged(
        *turns(12), only=ONLY, graph_iterations=10, tuning={"graph": {"iterations_warning": 0.5}}
    )
    assert [decision.count for decision in found] == [5, 10]
    assert "the limit is 10" in found[0].message


def test_a_limit_without_a_warning_before_it() -> None:
    """A warning at 100 % is the limit itself, said once."""
    found = judged(*turns(60), only=ONLY, tuning={"graph": {"iterations_warning": 1.0}})
    assert [decision.reason for decision in found] == ["iteration_limit"]


def test_each_run_of_a_graph_has_its_own_count() -> None:
    """Three runs of thirty iterations do not make ninety."""
    steps = [
        node("agent", {"n": n}, at=100 * run + n, trace=run + 1)
        for run in range(3)
        for n in range(30)
    ]
    assert judged(*steps) == []


def test_a_user_turn_begins_again() -> None:
    """In one conversation every turn of the user has its own count."""
    user = Step(Kind.OTHER, "user", text="and now the rest")
    steps = [*turns(30), user, *turns(30, 30), user, *turns(30, 60)]
    assert judged(*steps) == []


def test_many_nodes_are_no_iterations() -> None:
    """Two hundred different nodes, each visited once; more than are remembered."""
    assert judged(*[node(f"n{chr(97 + n % 26)}{n}x", {"n": n}) for n in range(200)]) == []


def test_it_can_be_switched_off() -> None:
    """By its name, or with its family."""
    for off in (ONLY, "graph"):
        run = Run(Settings(switched_off=frozenset({off})))
        run.calls(*turns(60))
        assert [d.detector for d in run.decisions if d.detector == ONLY] == []
