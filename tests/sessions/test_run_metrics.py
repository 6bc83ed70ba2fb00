"""The metrics of a run in the report: phases, retries, degraded steps, compactions, context."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from typer.testing import CliRunner

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, control, resilience, session, sessions
from otel_loopguard.cli.app import app
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.report import RunMetrics
from tests.agents import tool_call
from tests.calls import EPOCH, SECOND


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(LoopGuardSpanProcessor(LoopGuard()))
    yield made
    made.shutdown()


def work(agent: str, start: float, end: float, tokens: int | None = None) -> Step:
    """A model call of an agent, in seconds after the epoch of the tests."""
    times = {"start": EPOCH + round(start * SECOND), "end": EPOCH + round(end * SECOND)}
    return Step(Kind.MODEL, "m", agent=agent, tokens_in=tokens, **times)


def run_of(*steps: Step) -> RunMetrics:
    guard = LoopGuard(clock="replay")
    for step in steps:
        guard.observe(step, "run")
    report = guard.report("run")
    assert report is not None
    return report.run


def of_session(key: str) -> RunMetrics:
    report = sessions.report(key)
    assert report is not None
    return report.run


def test_phases_follow_the_agents() -> None:
    """Each stretch of work of one agent, with its time; the last one goes on."""
    run = run_of(
        work("planner", 0, 2), work("planner", 3, 5), work("coder", 5, 35), work("planner", 36, 40)
    )
    assert run.phases == (("planner", 5.0), ("coder", 30.0), ("planner", 4.0))


def test_agents_side_by_side_are_one_phase() -> None:
    """Work that begins before all other work has ended begins no phase, and lengthens its own."""
    run = run_of(work("north", 0, 10), work("south", 5, 12), work("editor", 13, 14))
    assert run.phases == (("north", 12.0), ("editor", 1.0))


def test_a_span_around_a_phase_is_no_part_of_it() -> None:
    """The run of the agent that hands on, which ends last."""
    around = Step(Kind.AGENT, "boss", agent="boss", start=EPOCH, end=EPOCH + 60 * SECOND)
    run = run_of(work("coder", 5, 10), around)
    assert run.phases == (("coder", 5.0),)


def test_a_turn_of_the_user_begins_a_phase() -> None:
    """The same agent goes on, with the user's next request."""
    user = Step(Kind.OTHER, "user", start=EPOCH + 50 * SECOND, end=EPOCH + 50 * SECOND)
    run = run_of(work("a", 0, 2), user, work("a", 60, 61))
    assert run.phases == (("a", 2.0), ("a", 1.0))


def test_without_times_the_seconds_of_a_phase_are_unknown() -> None:
    """None, and not 0."""
    assert run_of(Step(Kind.MODEL, "m", agent="a")).phases == (("a", None),)


def test_the_newest_phases_are_kept() -> None:
    """48 of them, whatever the length of the session."""
    run = run_of(*(work(f"agent{number}", number, number + 1) for number in range(200)))
    assert len(run.phases) == 48
    assert [run.phases[0].name, run.phases[-1].name] == ["agent152", "agent199"]


def test_the_size_of_the_context_is_told() -> None:
    """The newest, and the most; what says nothing changes nothing, and no number is odd."""
    run = run_of(work("a", 0, 1, 9000), work("a", 1, 2, 400), work("a", 2, 3))
    assert (run.context_tokens, run.peak_context_tokens) == (400, 9000)
    none = run_of(work("a", 0, 1))
    assert (none.context_tokens, none.peak_context_tokens) == (None, None)
    assert run_of(work("a", 0, 1, -5)).context_tokens == 0


def test_compactions_are_counted() -> None:
    """Those that the input tokens show, and those that the application says."""
    guard = LoopGuard()
    for number, tokens in enumerate((10_000, 20_000, 3000, 3200)):
        guard.observe(work("a", number, number + 1, tokens), "compacted-run")
    assert of_session("compacted-run").compactions == 1
    assert control.compacted("compacted-run")
    assert of_session("compacted-run").compactions == 2


def test_retries_are_counted(provider: TracerProvider) -> None:
    """The further tries, and not the first."""
    with session("retried-run"):
        tool_call(provider.get_tracer("agent"))
        for attempt in resilience.retrying(limit=3, delay_s=0):
            with attempt:
                if attempt.retry_state.attempt_number < 3:
                    raise TimeoutError
    assert of_session("retried-run").retries == 2


def test_degraded_steps_and_what_misses_them_are_counted(provider: TracerProvider) -> None:
    """A degraded result counts once as a step, and once where a step builds on it."""
    with session("degraded-run"):
        tool_call(provider.get_tracer("agent"))
        with resilience.degrading("search") as step:
            raise TimeoutError
        part = resilience.combined({"search": step.result, "read": "text"})
        whole = resilience.combined(
            {"part": part, "mail": resilience.degraded("mail", "no account")}
        )
    assert set(whole.missing) == {"search", "mail"}
    run = of_session("degraded-run")
    assert (run.degraded, run.missing_dependencies) == (2, 2)


def test_outside_of_a_session_nothing_is_in_the_way() -> None:
    """Without a guard, and with one that knows no session here."""
    assert resilience.degraded("search", "it is down").reason == "it is down"
    guard = LoopGuard()
    guard.observe(work("a", 0, 1), "other-run")
    resilience.degraded("search", "it is down")
    assert of_session("other-run").degraded == 0


def test_the_command_line_has_the_run(tmp_path: Path) -> None:
    """`report --format json` prints what the report has, by the same names."""
    entry = {"kind": "llm", "model": "m", "agent": "a", "tokens_in": 700}
    file = tmp_path / "runs.jsonl"
    file.write_text(json.dumps({"id": "one", "steps": [entry]}) + "\n")
    log = logging.getLogger("otel_loopguard")
    filters = list(log.filters)
    told = CliRunner().invoke(app, ["report", "--format", "json", str(file)])
    log.filters[:] = filters  # the command line leaves decisions out of the log
    assert told.exit_code == 0, told.output
    run = json.loads(told.stdout.splitlines()[0])["run"]
    assert list(run) == [field.name for field in fields(RunMetrics)]
    assert run["phases"] == [{"name": "a", "seconds": None}]


def test_every_field_of_the_run_is_explained() -> None:
    """The docstring has every field."""
    text = RunMetrics.__doc__ or ""
    assert [one.name for one in fields(RunMetrics) if f"        {one.name}: " not in text] == []
