"""What one detector of tool calls decides by itself, and evidence made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence
from otel_loopguard.detectors import DETECTORS, Registry
from tests.calls import Run

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Step

_ENTRIES = Registry(Settings(), DETECTORS).entries
# A name that is a family's as well would switch off more than the one detector.
_SHARED = frozenset(entry.name for entry in _ENTRIES) & {entry.family for entry in _ENTRIES}
_OTHERS = frozenset(entry.name for entry in _ENTRIES) - _SHARED


def alone(detector: str, *steps: Step, **settings: Any) -> list[Decision]:
    """What a detector decides about one session while the others are switched off; `all`: all."""
    off, hidden = _OTHERS - {detector}, _SHARED - {detector}
    if detector == "all":
        off = hidden = frozenset[str]()
    run = Run(Settings(switched_off=off, **settings))
    run.calls(*steps)
    return [decision for decision in run.decisions if decision.detector not in hidden]


def actions(decisions: list[Decision]) -> list[str]:
    """Their actions, in order."""
    return [decision.action.value for decision in decisions]


STEPS = ("detector", "told", "steps", "settings")


def case(what: str, told: str, *steps: Step, **settings: Any) -> tuple[Any, ...]:
    """A row of a table: what a detector tells of steps, in the form of `told_of`."""
    return what, told, steps, settings


def cases(table: Mapping[str, Iterable[tuple[Any, ...]]]) -> list[Any]:
    """The rows of a table by detector, as parameters of a test."""
    return [
        pytest.param(detector, *said, id=f"{detector}: {what}")
        for detector, rows in table.items()
        for what, *said in rows
    ]


def told_of(decisions: list[Decision]) -> str:
    """Reason, steps and actions of decisions, as `call_error: 1 hint, 2 deny`."""
    return "; ".join(
        f"{reason}: {', '.join(f'{one.step} {one.action}' for one in found)}"
        for reason, found in groupby(decisions, key=lambda one: one.reason)
    )


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
