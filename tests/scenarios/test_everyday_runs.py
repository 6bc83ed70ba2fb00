"""Runs written down as data: honest work is let through, and who is stuck is noticed."""

import json
import logging
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from lab import tables
from lab.runs import Row, Scenario
from lab.scenarios import load, play
from lab.stable import flips
from otel_loopguard import LoopGuardSpanProcessor, Refusal, set_testing, turn
from tests.agents import provider_with

RUNS = [
    run
    for path in sorted((Path(__file__).parents[2] / "scenarios").glob("*.jsonl.gz"))
    for run in load(path)
]
NOT_YET: dict[str, str] = json.loads(Path(__file__).with_name("not_yet.json").read_text("utf-8"))
"""What is wanted of a run and not so yet; what is mended leaves this list."""
OFTEN = {
    "blocked-path",
    "breaker: five sessions, each gets one 429 at the same time and then works",
    "grep: 12 patterns, nine without a match, then found",
    "poll-every-5-min",
    "rows-without-arguments",
    "server start: 'curl localhost:8000/health' refused 12 times, 2 s apart, then 200",
}
"""Few runs, for which all changes are tried each time; for the others they are a rare test."""
LATE = {
    "cookie_banner", "formatter_vs_linter", "nl-doopregister-dat-niet-bestaat",
    "rag-grade-rewrite-loop", "retranslates-after-summary", "s-ar-nusukh-la-tantahi",
    "s-kitchen-resend", "s-user-turns-same-fail", "s3-graph-critic-same", "w8-pedido-sem-resposta",
    "w8-rebase-again",
}  # fmt: skip
"""Noticed late: where each call takes longer the run is over first, or what is rested before them
counts less."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is decided is seen by the test, and need not be printed for each run."""
    caplog.set_level(logging.CRITICAL, "otel_loopguard")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.id)
def test_runs_are_judged_as_wanted(run: Scenario) -> None:
    """No call of honest work is refused, by whatever part; a loop is stopped where it is wanted."""
    assert ", ".join(play(run).faults(run)) == NOT_YET.get(run.id, "")


@pytest.mark.parametrize(
    "run",
    [pytest.param(one, marks=() if one.id in OFTEN else pytest.mark.rare) for one in RUNS],
    ids=lambda run: run.id,
)
def test_a_change_that_changes_nothing_changes_no_judgement(run: Scenario) -> None:
    """Honest work in words of no language, slower, by another convention; a loop that is slower."""
    tried, found = flips(run)
    assert tried or run.id in NOT_YET
    assert [flip for flip in found if run.id not in LATE or "as slow" not in flip] == []


TROUBLED = [
    pytest.param(table.draw(), id=table.name)
    for table in tables.load(Path(__file__).with_name("troubled.txt"))
]


@pytest.mark.parametrize("run", TROUBLED)
def test_trouble_that_passes_refuses_no_call(run: Scenario) -> None:
    """Asked by `control.refused`, with default settings."""
    played = play(run)
    assert (played.refused, played.faults(run)) == ([], [])


@pytest.mark.parametrize("run", TROUBLED)
def test_trouble_that_passes_refuses_no_call_of_a_turn(run: Scenario) -> None:
    """The same in a loop of one's own."""
    provider = provider_with(LoopGuardSpanProcessor())
    refused: list[Row] = []
    with set_testing(True) as clock, ExitStack() as open_turns:
        turns: dict[str, turn] = {}
        for row in run.steps:
            session = f"{run.id} {row.get('session')}"
            clock.advance(row.get("wait", 0) + row.get("model", {}).get("seconds", 0))
            if "tool" not in row:
                continue
            if session not in turns:
                turns[session] = open_turns.enter_context(turn(session, tracer_provider=provider))

            def answer(row: Row = row, **_: object) -> str:
                clock.advance(row["seconds"])
                if "error" in row:
                    raise RuntimeError(row["error"])
                return row["result"]

            turns[session].hint()
            with suppress(RuntimeError):
                if isinstance(turns[session].tool(row["tool"], row["args"], answer), Refusal):
                    refused.append(row)
    provider.shutdown()
    assert refused == []
