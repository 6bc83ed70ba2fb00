"""Stalls on a recording's own clock: each is found at its own time, as `stalls.txt` has it."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.replay import SpanReplay
from otel_loopguard.sessions.active import NEVER
from otel_loopguard.spans.views import RecordedSpan
from tests.calls import EPOCH, SECOND, Run

NAMED = {
    "tool": ("execute_tool", "gen_ai.tool.name"),
    "model": ("chat", "gen_ai.request.model"),
    "agent": ("invoke_agent", "gen_ai.agent.name"),
}
SPAN = re.compile(r"(\w+) (?:(\w+) )?(\d+)-(\d*)")


def spans(text: str) -> list[RecordedSpan]:
    """The spans of a line, below the first of them."""
    found: list[RecordedSpan] = []
    for kind, name, start, end in SPAN.findall(text):
        parts = [(int(start), int(end) if end else None)]
        if kind == "busy":
            parts = [(at, at + 1) for at in range(int(start), int(end), 10)]
        for part in parts:
            above = found[0].span_id if found else None
            found.append(_span("tool" if kind == "busy" else kind, name, *part, above))
    return found


IDS = count(1)


def _span(kind: str, name: str, start: int, end: int | None, above: int | None) -> RecordedSpan:
    attributes = {"gen_ai.conversation.id": "run"}
    if kind in NAMED:
        operation, naming = NAMED[kind]
        attributes |= {"gen_ai.operation.name": operation, naming: name}
    until = None if end is None else EPOCH + end * SECOND
    return RecordedSpan(
        f"{kind} {name}", span_id=next(IDS), trace_id=1, start=EPOCH + start * SECOND, end=until,
        parent_id=above, attributes=attributes,
    )  # fmt: skip


class Known:
    """Limits from past runs, made up."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        return {"quick": 40.0, "slow": 90.0}.get(tool)

    def time_limit(self, tool: str, args: object = None) -> float:
        return 33.0

    def agent_limit(self, agent: str) -> float:
        return 50.0 if agent == "sub" else 600.0


def replayed(lines: list[str], *, known: bool = False, **settings: Any) -> Run:
    """A run that was fed spans; where it is `known` how long tools take."""
    run = Run(Settings(**settings))
    if known:
        run.guard._watchdog._limits = Known()  # type: ignore[assignment]
    for line in lines:
        replay = SpanReplay(run.guard, run.guard.reader.read)
        for one in spans(line):
            replay.add(one)
        replay.finish()
    return run


def said(run: Run) -> str:
    """Reason, second and action of all stalls."""
    return ", ".join(
        f"{one.reason}@{(one.time - EPOCH) / SECOND:g} {one.action}" for one in run.decisions
    )


TEXT = Path(__file__).with_name("stalls.txt").read_text(encoding="utf-8")
CASES = re.split(r"^\[(.+)\]\n", TEXT, flags=re.MULTILINE)


@pytest.mark.parametrize("case", CASES[2::2], ids=CASES[1::2])
def test_what_is_late_is_told_at_its_limit(case: str) -> None:
    """And nothing is due when nothing is open: every deadline goes with what it was for."""
    lines = [line for line in case.splitlines() if line and not line.startswith("#")]
    told = {line.partition(": ")[0]: line.partition(": ")[2] for line in lines if ": " in line}
    expected = [line.removeprefix("= ") for line in lines if line.startswith("= ")]
    settings = json.loads(told.get("with", "{}"))
    run = replayed([line for line in lines if SPAN.match(line)], known="known" in told, **settings)
    assert said(run) == ", ".join(expected)
    assert run.guard.due == NEVER
    assert run.guard.flag_named("run").stops is any(one.action.stops for one in run.decisions)


def test_a_span_that_never_ends_costs_no_more_than_its_limits() -> None:
    """Years later, after a handful of looks, it has said what there is to say."""
    run = replayed(["agent a 0-, tool t 1-"], limits="standard", budget_action="allow")
    run.guard.tick(EPOCH + 10**9 * SECOND)
    assert len(run.decisions) == len({one.reason for one in run.decisions}) == 10
    assert run.guard.due == NEVER
