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


BOSS = Step(Kind.AGENT, "boss", agent="boss", start=EPOCH, end=EPOCH + 60 * SECOND)
USER = Step(Kind.OTHER, "user", start=EPOCH + 50 * SECOND, end=EPOCH + 50 * SECOND)
WRITER, CODER = work("writer", 0, 2), work("coder", 5, 35)


@pytest.mark.parametrize(
    ("steps", "phases"),
    [
        ([WRITER, CODER, work("writer", 36, 40)], "writer 2.0, coder 30.0, writer 4.0"),
        ([work("north", 0, 10), work("south", 5, 12), work("a", 13, 14)], "north 12.0, a 1.0"),
        ([CODER, BOSS], "coder 30.0"),
        ([WRITER, USER, work("writer", 60, 61)], "writer 2.0, writer 1.0"),
        ([Step(Kind.MODEL, "m", agent="a")], "a None"),
    ],
    ids=["one after the other", "side by side", "a span around it", "a user", "no times"],
)
def test_phases_follow_the_agents(steps: list[Step], phases: str) -> None:
    """Each stretch of work of one agent, with its time; work side by side is one."""
    assert ", ".join(f"{one.name} {one.seconds}" for one in run_of(*steps).phases) == phases


@pytest.mark.parametrize(
    ("tokens", "newest", "most"),
    [((9000, 400, None), 400, 9000), ((None,), None, None), ((-5,), 0, 0)],
)
def test_the_size_of_the_context_is_told(
    tokens: tuple[int | None, ...], newest: int | None, most: int | None
) -> None:
    """What says nothing changes nothing, and no number is odd."""
    run = run_of(*(work("a", n, n + 1, count) for n, count in enumerate(tokens)))
    assert (run.context_tokens, run.peak_context_tokens) == (newest, most)


def test_the_newest_phases_are_kept() -> None:
    """48 of them, whatever the length of the session."""
    run = run_of(*(work(f"agent{number}", number, number + 1) for number in range(200)))
    assert len(run.phases) == 48
    assert [run.phases[0].name, run.phases[-1].name] == ["agent152", "agent199"]


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
