"""Backtests: what the guard would have decided about very many recorded sessions.

`replay_session` is a pure function from the rows of one session to its decisions. `run` applies it
to all sessions of a source: they are parted into buckets on disk, and each bucket is replayed by
itself. DuckDB, pyarrow, Ray and chdb are extras, imported where they are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from otel_loopguard._util.fields import text
from otel_loopguard.backtest.rows import (
    OPEN,
    RUN,
    SPAN,
    STEP,
    BrokenRow,
    label_of,
    span_of,
    step_of,
)
from otel_loopguard.engine import (
    Decision,
    DecisionRecord,
    Engine,
    Kind,
    Observation,
    RecordedSpan,
    Settings,
    Step,
)
from otel_loopguard.replay import Run, SessionResult, SpanChecks, SpanReplay, replay_run
from otel_loopguard.replay.formats import ENDLESS, ended

__all__ = ["BacktestResult", "replay_session"]

Rows = Iterable[tuple[str, Mapping[str, object]]]
"""The form of each row, and the row."""


@dataclass(slots=True)
class Spent:
    """The usage of a session so far. None is unknown."""

    steps: int = 0
    calls: int = 0
    tokens: int | None = None
    cost: float | None = None
    start: int = 0
    end: int = 0

    def add(self, step: Step, cost: float | None) -> None:
        """Counts one step."""
        self.steps += 1
        self.calls += step.kind is Kind.TOOL
        if step.tokens is not None:
            self.tokens = (self.tokens or 0) + step.tokens
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost
        if step.start:
            self.start = min(self.start or step.start, step.start)
        self.end = max(self.end, step.end or step.start)

    @property
    def seconds(self) -> float | None:
        """From the first start to the last end."""
        return (self.end - self.start) / 1e9 if self.start else None


@dataclass(slots=True)
class BacktestResult(SessionResult):
    """The result of a session, with its label and what it used.

    Attributes:
        loop: True if it is labelled as a loop; None without a label.
        tier: How the label came about; empty without one.
        spent: What the session used as a whole.
        stopped: The first decision that stops (deny, pause, abort), if there is one.
        until: What had been used when it was made.
    """

    loop: bool | None = None
    tier: str = ""
    spent: Spent = field(default_factory=Spent)
    stopped: Decision | None = None
    until: Spent | None = None

    def add(self, decision: Decision) -> None:
        """Adds a decision."""
        self.decisions.append(decision)
        if self.stopped is None and decision.action.stops:
            self.stopped, self.until = decision, replace(self.spent)


def replay_session(  # noqa: PLR0913
    rows: Rows,
    settings: Settings,
    *,
    session: str = "",
    source: str = "",
    broken: Counter[str] | None = None,
    like: Engine | None = None,
) -> list[BacktestResult]:
    """The guard's decisions about the rows of one session, on their own clock.

    The result depends on the rows, their order and the settings alone, and is what the guard of a
    process decides that sees this session. Spans of one trace may be of several sessions, so there
    may be several results.

    Args:
        rows: Forms and rows, in the order of their export.
        settings: Settings of the guard.
        session: Name of a session whose rows do not say it.
        source: Where the rows come from.
        broken: Counts what was wrong in rows, and rows that came again, by reason.
        like: A guard of these settings, to make the session's own from.
    """
    reasons = Counter[str]() if broken is None else broken
    guard = Engine(settings, clock="replay", like=like)
    results = _Results(source, guard.cost_of)
    guard.subscribe("backtest", on_step=results.on_step, on_decision=results.on_decision)
    try:
        stream = iter(rows)
        first = next(stream, None)
        if first is None:
            return []
        if first[0] == SPAN:
            replay = SpanReplay(guard, guard.reader.read)
            for span in _spans(chain((first,), stream), results, reasons):
                replay.add(span)
            replay.finish()
            return results.all()
        run = _run(chain((first,), stream), session, reasons)
        if run is None:
            return []
        replay_run(guard, run)
        return [results.of_run(run, source)]
    finally:
        guard.shutdown()


def _spans(rows: Rows, results: _Results, broken: Counter[str]) -> Iterator[RecordedSpan]:
    checks = SpanChecks(broken)
    for _, row in rows:
        try:
            span = span_of(row)
        except BrokenRow as error:
            broken[str(error)] += 1
            continue
        if not checks.takes(span):
            continue
        if row.get("Duration") != OPEN and not ended(span):
            broken[ENDLESS] += 1
        try:
            loop = label_of(row)
        except BrokenRow as error:
            broken[str(error)] += 1
        else:
            results.loop = results.loop if loop is None else loop
        yield span


def _run(rows: Rows, session: str, broken: Counter[str]) -> Run | None:
    """The labelled run that rows of steps make."""
    run = Run(session)
    for form, row in rows:
        if form == RUN:
            loop = row.get("loop")
            run.id, run.source = text(row.get("id")), text(row.get("source"))
            run.tier, run.loop = text(row.get("tier")), loop if isinstance(loop, bool) else None
        elif form == STEP:
            run.steps.append(step_of(row))
        else:
            broken["a row is not an object"] += 1
    return run if run.id else None


class _Results:
    """The results of the sessions that a guard saw."""

    def __init__(self, source: str, cost_of: Callable[[Step], float | None]) -> None:
        self.loop: bool | None = None
        self._source = source
        self._cost_of = cost_of
        # By the object, for the key may change while spans come in.
        self._found: dict[int, tuple[Observation | DecisionRecord, BacktestResult]] = {}

    def on_step(self, seen: Observation) -> None:
        self._result(seen).spent.add(seen.step, self._cost_of(seen.step))

    def on_decision(self, made: DecisionRecord) -> None:
        self._result(made).add(made.decision)

    def all(self) -> list[BacktestResult]:
        """One for each session, in the order of their first steps."""
        for first, result in self._found.values():
            result.session = first.session.key
            result.loop = self.loop
        return [result for _, result in self._found.values()]

    def of_run(self, run: Run, source: str) -> BacktestResult:
        """The one of a labelled run."""
        found = self.all()
        result = found[0] if found else BacktestResult()
        result.session, result.source = run.id, run.source or source
        result.loop, result.tier = run.loop, run.tier
        return result

    def _result(self, seen: Observation | DecisionRecord) -> BacktestResult:
        first = seen, BacktestResult(self._source)
        return self._found.setdefault(id(seen.session), first)[1]
