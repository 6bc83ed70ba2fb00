"""Visits of nodes for tests, and what the detectors of graphs decide about them."""

from __future__ import annotations

from typing import Any

from otel_loopguard import Settings
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.detectors import DETECTORS, Registry
from tests.calls import EPOCH, SECOND, Run

FAMILY = frozenset(
    ("node_cycle", "state_convergence", "no_progress", "rapid_iteration", "graph_limit")
)
PARENT = 77
_OTHERS = frozenset(entry.name for entry in Registry(Settings(), DETECTORS).entries)


def node(
    name: str,
    gave: object = None,
    got: object = None,
    *,
    at: float | None = None,
    took: float = 0.01,
    trace: int = 0,
) -> Step:
    """One finished visit; `at` seconds after the epoch of the tests, or without times.

    With a trace, its graph run is the span `PARENT` of that trace.
    """
    start = 0 if at is None else EPOCH + round(at * SECOND)
    end = 0 if at is None else start + round(took * SECOND)
    step = Step(Kind.NODE, name, node=name, args=got, outcome=gave, start=start, end=end)
    if trace:
        step.trace_id, step.span_id, step.parent_id = trace, 1 + start, PARENT
    return step


def agent(name: str, gave: object = None) -> Step:
    """One finished run of an agent among others."""
    return Step(Kind.AGENT, name, agent=name, outcome=gave)


def said(text: str | None) -> Step:
    """One finished model call."""
    return Step(Kind.MODEL, "m", model="m", text=text)


def judged(*steps: Step, only: str | None = None, **settings: Any) -> list[Decision]:
    """What the family decides about one session; with `only`, what it alone would decide."""
    off = (FAMILY | _OTHERS) - {only} if only else frozenset[str]()
    run = Run(Settings(switched_off=off, **settings))
    run.calls(*steps)
    return [decision for decision in run.decisions if decision.detector in FAMILY]


def actions(decisions: list[Decision]) -> list[str]:
    """Their actions, in order."""
    return [decision.action.value for decision in decisions]
