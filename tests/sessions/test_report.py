"""What a session came to, and what its application asks and reports about it."""

import gc
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Tracer

from lab import tables
from lab.tables import Table
from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    resilience,
    session,
    sessions,
)
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.report import Report
from tests.agents import provider_with, tool_call
from tests.calls import EPOCH, SECOND, Run, call, handle_of
from tests.detectors.alone import steps_of
from tests.tables import rows

ANSWER = "No results were found for this question, in any of the sources."
TABLES = Path(__file__).with_name("report.txt")


def report_of(*steps: Step, **settings: Any) -> Report:
    run = Run(Settings(**settings))
    run.calls(*steps)
    return handle_of(run.guard).report()


def work(agent: str, start: float, end: float) -> Step:
    """A model call of an agent, in seconds after the epoch of the tests."""
    times = {"start": EPOCH + round(start * SECOND), "end": EPOCH + round(end * SECOND)}
    return Step(Kind.MODEL, "m", agent=agent, **times)


def shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("table", tables.load(TABLES), ids=lambda table: table.name)
def test_what_a_session_came_to(table: Table) -> None:
    """As `report.txt` says it; only one of its runs has times."""
    steps = steps_of(table)
    for step in steps if table.name != "times" else ():
        step.start = step.end = 0
    report = report_of(*steps, **table.settings)
    told = dict(part.split(" ", 1) for part in table.told.split("; "))
    assert {name: shown(attrgetter(name)(report)) for name in told} == told
    assert sum(report.alerts_by_type.values()) == report.alert_count == len(report.alerts)


def test_the_most_used_tools_come_first_with_their_errors() -> None:
    """At most ten of them."""
    steps = [call("read", {"n": n}, f"text {n}" * 9) for n in range(5)]
    steps += [call("write", {"n": n}, error="denied" if n else None) for n in range(3)]
    others = [call(f"tool {n}", {"q": n}, f"text {n}") for n in range(9)]
    report = report_of(*steps, call("once", {"q": 1}, "x"), *others)
    assert len(report.tools) == 10
    assert [(tool.name, tool.calls, tool.errors) for tool in report.tools[:2]] == [
        ("read", 5, 0), ("write", 3, 2),
    ]  # fmt: skip
    assert report.tools[1].error_rate == pytest.approx(2 / 3)


OTHERS = {
    "a boss": Step(Kind.AGENT, "boss", agent="boss", start=EPOCH, end=EPOCH + 60 * SECOND),
    "a user": Step(Kind.OTHER, "user", start=EPOCH + 50 * SECOND, end=EPOCH + 50 * SECOND),
    "no times": Step(Kind.MODEL, "m", agent="a"),
}


def worked(text: str) -> Step:
    """Another step by its name; else `a 0 2` is work of an agent from second 0 to 2."""
    name, *times = text.split()
    return OTHERS.get(text) or work(name, *map(float, times))


@pytest.mark.parametrize(("_name", "steps", "phases"), rows(__file__, "phases"))
def test_phases_follow_the_agents(_name: str, steps: str, phases: str) -> None:
    """Each stretch of work of one agent, with its time; work side by side is one."""
    told = report_of(*map(worked, steps.split(", "))).run.phases
    assert ", ".join(f"{one.name} {one.seconds}" for one in told) == phases


def test_a_record_does_not_grow() -> None:
    """Many tools, agents, decisions: what is kept is bounded, and totals stay exact."""
    run = Run(Settings())
    for number in range(3000):
        run.calls(call(f"tool{number}", {"q": number // 4}, ANSWER, at=number))
    for number in range(1200):
        run.calls(call("search", {"q": number // 4}, ANSWER, at=9000 + number))
    for number in range(200):
        run.calls(work(f"agent{number}", 10_300 + number, 10_301 + number))
    report = handle_of(run.guard).report()
    assert (report.actions, report.tools[0].name, report.tools[0].calls) == (4200, "search", 1200)
    assert len(report.alerts) == 10
    assert report.alert_count + sum(report.notes_by_type.values()) == len(run.decisions)
    phases = report.run.phases
    assert (len(phases), phases[0].name, phases[-1].name) == (48, "agent152", "agent199")


WEATHER = "light rain in the west, twenty degrees, and a little wind"


@pytest.fixture
def tracer() -> Iterator[Tracer]:
    provider = provider_with(LoopGuardSpanProcessor(LoopGuard()))
    yield provider.get_tracer("my.agent")
    provider.shutdown()


def search(tracer: Tracer, times: int = 1, **more: str) -> None:
    for _ in range(times):
        tool_call(tracer, result=WEATHER, more=more)


def reported(key: str | None = None) -> Report:
    report = sessions.report() if key is None else sessions.report(key)
    assert report is not None
    return report


def test_the_report_of_the_current_session(tracer: Tracer) -> None:
    """By its context, by its span, or by its key; of two guards the one that saw most reports."""
    other = LoopGuard()
    other.bind(1, "report-run")
    with session("report-run"):
        assert reported().actions == 0
        search(tracer, 2)
        report = reported()
    assert (report.session, report.actions) == ("report-run", 2)
    assert str(report).startswith("session report-run: the flag is allow\n")
    assert reported("report-run") == report
    assert sessions.report("nobody") is sessions.report() is None
    with tracer.start_as_current_span("invoke_agent helper"):
        assert sessions.report() is None
        search(tracer, 3)
        assert reported().actions == 3


@pytest.mark.parametrize("conversation", [{}, {"gen_ai.conversation.id": "noted"}], ids=["", "id"])
def test_what_is_remembered_is_recalled(tracer: Tracer, conversation: dict[str, str]) -> None:
    """By the key of the session, in its context, or under a trace whose session comes later."""
    assert not sessions.remember("insight", "of no session")
    assert sessions.recall() is None
    key = f"early {len(conversation)}"
    assert sessions.remember("pattern", "ids begin with A", key)
    with session(key):
        assert sessions.remember("insight", "before the first span")
        assert sessions.recall() is None
        search(tracer)
        assert sessions.remember("insight", "after it")
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("before the first span", "after it")
    assert known.patterns == ("ids begin with A",)
    with tracer.start_as_current_span("run"):
        assert sessions.remember("insight", "in a trace")
        search(tracer, **conversation)
        known = sessions.recall()
    assert known is not None
    assert known.insights == ("in a trace",)
    with pytest.raises(ValueError, match="topic must be one of"):
        sessions.remember("idea", "x", "nobody")  # type: ignore[arg-type]


def test_feedback_is_counted_and_may_change(tracer: Tracer) -> None:
    """Who speaks last is right; an unknown decision is refused, and that of a session now gone."""
    with session("told"):
        search(tracer, 3)
        decision = control.current().decision_id
        assert decision is not None
        for false_alarm, told in ((True, (1, 0, 0)), (False, (0, 1, 1))):
            assert sessions.feedback(decision, false_alarm=false_alarm)
            report = reported()
            assert (report.false_alarms, report.confirmed, report.precision) == told
    assert not sessions.feedback("0" * 16, false_alarm=True)
    run = Run(Settings(max_sessions=1))
    run.calls(*[call("search", {"q": "x"}, WEATHER)] * 3)
    run.guard.observe(call(), "new")
    gc.collect()
    assert not run.guard.feedback(run.decisions[0].id, false_alarm=True)


def test_retries_and_degraded_steps_are_counted(tracer: Tracer) -> None:
    """The further tries; a degraded result once as a step, and once where a step builds on it."""
    with session("troubled-run"):
        search(tracer)
        for attempt in resilience.retrying(limit=3, delay_s=0):
            with attempt:
                if attempt.retry_state.attempt_number < 3:
                    raise TimeoutError
        search_failed = resilience.degraded("search", "time-out")
        part = resilience.combined({"search": search_failed, "read": "text"})
        mail = resilience.degraded("mail", "no account")
        whole = resilience.combined({"part": part, "mail": mail})
    assert set(whole.missing) == {"search", "mail"}
    assert resilience.degraded("search", "outside of a session").reason == "outside of a session"
    run = reported("troubled-run").run
    assert (run.retries, run.degraded, run.missing_dependencies) == (2, 2, 2)
