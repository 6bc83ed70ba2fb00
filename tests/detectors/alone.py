"""What one detector of tool calls decides by itself, and evidence made by hand."""

from dataclasses import replace
from typing import Any

from lab import recorded
from lab.tables import Table
from otel_loopguard import Settings
from otel_loopguard.core import Decision, Evidence, Kind, Step
from otel_loopguard.core.evidence import Effect, ErrorClass
from otel_loopguard.detectors import DETECTORS, Registry
from tests.calls import Run

_ENTRIES = Registry(Settings(), DETECTORS).entries
NAMES = frozenset(entry.name for entry in _ENTRIES)
# A name that is a family's as well would switch off more than the one detector.
_SHARED = NAMES & {entry.family for entry in _ENTRIES}


def alone(detector: str, *steps: Step, **settings: Any) -> list[Decision]:
    """What a detector decides about one session while the others are switched off; `all`: all."""
    off, hidden = NAMES - _SHARED - {detector}, _SHARED - {detector}
    if detector == "all":
        off = hidden = frozenset[str]()
    run = Run(Settings(**{"switched_off": off, **settings}))
    run.calls(*steps)
    return [decision for decision in run.decisions if decision.detector not in hidden]


def steps_of(table: Table) -> list[Step]:
    """The steps of a table; `model_call(tokens_in=300)` and `agent_run(cost=0.7)` are such, too."""
    return [_used(step) for step in recorded.steps(table.draw(bare=True))]


def _used(step: Step) -> Step:
    kind = {"model_call": Kind.MODEL, "agent_run": Kind.AGENT}.get(step.name or "")
    if kind is None or not isinstance(step.args, dict):
        return step
    said: Any = {"args": None, **step.args}
    return replace(step, kind=kind, name="m", outcome=None, **said)


def actions(decisions: list[Decision]) -> list[str]:
    """Their actions, in order."""
    return [decision.action.value for decision in decisions]


def evidence(number: int, **given: Any) -> Evidence:
    """Evidence of a call that read something, took no time, and went well."""
    plain: dict[str, Any] = {
        "number": number, "tool": "t", "call": number, "call_exact": number, "guessed": False,
        "fresh": True, "changed": False, "pending": False, "outcome": 7, "outcome_exact": 7,
        "outcome_size": 50, "novelty": 0.0, "echo": False, "nothing": False, "rejects": False,
        "failing": False, "error": False, "error_class": ErrorClass.UNKNOWN, "error_line": None,
        "error_shape": None, "call_error": False, "effect": Effect.READ, "runs_code": False,
        "sample": "", "place": None, "epoch": 0, "time": 0,
        "round": number, "hint_weight": 1.0, "stop_weight": 1.0,
    }  # fmt: skip
    return Evidence(**{**plain, **given})
