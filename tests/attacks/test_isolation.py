"""A part that fails takes nothing from the others: neither the step, nor the end, nor the start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, semconv
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Detection, Kind, Step
from otel_loopguard.evidence import EXTRACTORS
from otel_loopguard.guard import guard as guards
from tests.agents import Ended, agent, provider_with, tool_call
from tests.control.messages import begin, call, flag, new_name


class Broken:
    """An extractor and a detector that fail at every step."""

    def __init__(self, *_given: object) -> None:
        pass

    def extract(self, step: Step) -> None:
        raise RecursionError(step.name)

    def observe(self, evidence: object) -> Detection | None:
        raise RecursionError(str(type(evidence)))


def _extractor(monkeypatch: pytest.MonkeyPatch) -> LoopGuard:
    broken = {**EXTRACTORS, Kind.TOOL: (Broken, *EXTRACTORS[Kind.TOOL])}
    monkeypatch.setattr("otel_loopguard.sessions.session.EXTRACTORS", broken)
    return LoopGuard(Settings())


def _detector(monkeypatch: pytest.MonkeyPatch) -> LoopGuard:
    monkeypatch.setattr("otel_loopguard.detectors.repetition.Cycle.observe", Broken.observe)
    return LoopGuard(Settings())


@pytest.mark.parametrize("broken", [_extractor, _detector])
def test_the_others_still_notice(
    broken: Callable[[pytest.MonkeyPatch], LoopGuard],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The fault is counted, and logged once."""
    raise_faults(False)
    guard, run = broken(monkeypatch), new_name()
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        for _ in range(12):
            guard.observe(call(), run)
    assert flag(guard, run).control.action.stops
    ((kind, count),) = guard.faults.counts.items()
    assert kind.endswith(":RecursionError")
    assert count
    assert sum(kind in line for line in caplog.messages) == 1


@pytest.mark.parametrize("key", [semconv.PLAN, "crew_tasks", "crewai.crew.tasks"])
@pytest.mark.parametrize("levels", [40, 1000])
def test_a_deep_plan_blinds_nobody(key: str, levels: int) -> None:
    """Comparing it with the one before would go down level by level."""
    plan = '[{"id": "a", "args": ' + "[" * levels + "]" * levels + "}]"
    guard = LoopGuard(Settings())
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with agent(tracer, gen_ai__conversation__id=(run := new_name())):
        for _ in range(12):
            tool_call(tracer, more={key: plan})
    assert flag(guard, run).control.action.stops
    assert guard.faults.counts == {}


PARTS = ["_sessions", "_resilience", "_replication", "_escalation", "telemetry"]


@pytest.mark.parametrize("part", PARTS)
def test_a_shutdown_goes_on_past_a_part_that_fails(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And raises nothing into the application, whose own exporters come after it."""
    raise_faults(False)
    guard, ended, after = LoopGuard(Settings()), list[str](), Ended()
    guard.escalation()

    def close(name: str) -> None:
        ended.append(name)
        if name == part:
            raise MemoryError

    for name in PARTS:
        known = getattr(guard, name)
        monkeypatch.setattr(type(known), "close", lambda _, *given, name=name: close(name))
    monkeypatch.setattr(after, "shutdown", lambda: ended.append("after"))
    provider_with(LoopGuardSpanProcessor(guard), after).shutdown()
    assert ended == [*PARTS, "after"]
    assert sum(guard.faults.counts.values()) == 1


def test_a_guard_that_is_being_made_hears_of_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another guard's session, say: it has no table to look it up in."""
    other, run = LoopGuard(Settings()), new_name()
    begin(run, other)
    real = guards.ResilienceRegistry

    def meanwhile(*given: object) -> object:
        there = threading.Thread(target=flag(other, run).set, args=(Action.PAUSE,))
        there.start()
        there.join()
        return real(*given)  # type: ignore[arg-type]

    raise_faults(False)
    monkeypatch.setattr(guards, "ResilienceRegistry", meanwhile)
    guard = LoopGuard(Settings())
    assert flag(other, run).control.action is Action.PAUSE
    assert guard.faults.counts == {}
