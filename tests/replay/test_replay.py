"""A replay feeds starts and ends in order of time, whatever the order; over processes, too."""

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import LoopGuardError
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import (
    REPEATED,
    Recording,
    Run,
    SpanChecks,
    SpanReplay,
    replay_run,
    workers,
)
from otel_loopguard.replay.workers import spread
from otel_loopguard.spans.views import RecordedSpan, SpanView
from tests.tables import rows


class Log:
    def __init__(self) -> None:
        self.said, self.bound = list[tuple[str, int]](), list[tuple[int, str]]()
        self.views, self.steps = list[SpanView](), list[tuple[str, Step]]()

    def on_start(self, span: SpanView) -> None:
        self.said.append(("open", span.span_id))
        self.views.append(span)

    def on_end(self, span: SpanView, *, step: Step | None = None) -> None:
        self.said.append(("close", span.span_id))

    def tick(self, now: int) -> None:
        self.said.append(("tick", now))

    def bind(self, trace_id: int, session: str) -> None:
        self.said.append(("bind", trace_id))
        self.bound.append((trace_id, session))

    def observe(self, step: Step, session: str) -> None:
        self.said.append(("step", step.start))
        self.steps.append((session, step))

    @property
    def events(self) -> list[tuple[str, int]]:
        return [event for event in self.said if event[0] in ("open", "close")]

    @property
    def ticks(self) -> list[int]:
        return [now for what, now in self.said if what == "tick"]


def span(key: int, start: int, end: int | None, parent: int = 0, trace: int = 1) -> RecordedSpan:
    return RecordedSpan("s", "", "INTERNAL", trace, key, parent or None, start, end)


def fed(*spans: RecordedSpan, **limits: int) -> Log:
    log = Log()
    replay = SpanReplay(log, lambda _span: None)
    vars(replay).update(limits)
    for known in spans:
        replay.add(known)
    replay.finish()
    return log


OPEN, CLOSE = "open", "close"


@pytest.mark.parametrize(("_", "told", "order"), rows(__file__, "orders"))
def test_orders(_: str, told: str, order: str) -> None:
    """Parents start before and end after their children; the clock is moved before each event."""
    given = [[None if one == "-" else int(one) for one in each.split()] for each in told.split(",")]
    spans = [span(*one) for one in given]  # type: ignore[arg-type]
    events = [(OPEN if one[0] == "+" else CLOSE, int(one[1:])) for one in order.split()]
    log = fed(*spans)
    assert log.events == events
    times = {(OPEN, one.span_id): one.start for one in spans}
    times |= {(CLOSE, one.span_id): max(one.start, one.end or 0) for one in spans}
    ticks = [("tick", time) for time in sorted({times[event] for event in events})]
    assert [each for each in log.said if each[0] == "tick"] == ticks
    for event in events:
        said = log.said[: log.said.index(event)]
        assert [each for each in said if each[0] == "tick"][-1] == ("tick", times[event])


def test_an_opened_span_is_open() -> None:
    """What a guard sees of a span that starts is without end, status and events."""
    known = span(1, 10, 20)
    known.status, known.description, known.events = "error", "no", [("exception", {})]
    [view] = fed(known).views
    assert (view.end, view.status, view.description, list(view.events)) == (None, "unset", None, [])


def test_a_session_is_bound_before_its_spans() -> None:
    """A session id that only the last span of a trace carries is told before the first is fed."""
    log = Log()
    root = span(1, 10, 50)
    replay = SpanReplay(log, lambda known: Step(Kind.AGENT, session="s") if known is root else None)
    replay.add(span(2, 20, 30, 1))
    replay.add(root)
    replay.add(span(3, 30, 35, 1))
    replay.finish()
    assert log.bound == [(1, "s")]
    assert log.said[0] == ("bind", 1)


def test_a_full_buffer_feeds_the_earliest() -> None:
    """By spans or by text; a late span is fed all the same."""
    log = fed(*(span(i, 10 * i, 10 * i + 5) for i in range(2, 9)), span(1, 0, 5), max_spans=2)
    assert sorted(log.events) == sorted(
        event for i in range(1, 9) for event in (("open", i), ("close", i))
    )
    assert log.ticks == sorted(log.ticks)
    log = Log()
    replay = SpanReplay(log, lambda _span: None)
    replay.max_chars = 10_000
    for index in range(1, 4):
        known = span(index, index * 10, index * 10 + 1)
        known.attributes = {"a": [{"b": "x" * 5_000}]}
        replay.add(known)
    assert (CLOSE, 1) in log.events


def test_traces_out_of_order() -> None:
    """A whole trace that comes after its time is replayed by itself, in its own order."""
    first = [span(i, 1_000 + i, 1_000 + i + 1) for i in range(1, 9)]
    second = [span(10 + i, 10 + i, 30 - i, trace=2) for i in range(1, 5)]
    log = fed(*first, *second, max_spans=4)
    assert log.events[:16] == [(what, i) for i in range(1, 9) for what in ("open", "close")]
    assert log.events[16:] == [("open", 10 + i) for i in range(1, 5)] + [
        ("close", 10 + i) for i in range(4, 0, -1)
    ]


def test_each_batch_of_a_server_has_an_order_of_its_own() -> None:
    """A trace that began before the batch before had ended is not put behind all others."""
    log = Log()
    replay = SpanReplay(log, lambda _span: None)
    for batch in ([span(1, 10, 30)], [span(3, 40, 50, trace=3), span(2, 20, 35, trace=2)]):
        for known in batch:
            replay.add(known)
        replay.finish()
    assert [number for what, number in log.events if what == CLOSE] == [1, 2, 3]


SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 50) | st.none(), st.integers(1, 4)), max_size=30
)


@given(SPANS, st.integers(1, 40))
def test_nothing_is_lost(times: list[tuple[int, int | None, int]], room: int) -> None:
    """Every span is opened once and, if it ended, closed once after that, whatever the buffer."""
    spans = [span(i, start, end, trace=trace) for i, (start, end, trace) in enumerate(times, 1)]
    log = fed(*spans, max_spans=room)
    for known in spans:
        mine = [what for what, span_id in log.events if span_id == known.span_id]
        assert mine == (["open"] if known.end is None else ["open", "close"])


def test_any_order_of_a_file_gives_one_replay(shared: Path) -> None:
    """A recorded trace is replayed alike, however the spans of its line are shuffled."""
    path = shared / "spans/langgraph__openinference.otlp.jsonl"
    spans = [known for known in Recording(str(path), print) if not isinstance(known, Run)]
    expected = fed(*spans).events
    for seed in range(5):
        random.Random(seed).shuffle(spans)
        assert fed(*spans).events == expected


def test_of_a_span_that_comes_again_the_first_with_an_end_counts() -> None:
    spans = [
        *(span(1, 10, None), span(1, 10, None), span(1, 10, 10), span(1, 10, 20), span(1, 10, 20)),
        *(span(1, 10, 30), span(1, 10, None), span(1, 10, 20, trace=2), span(2, 10, 20)),
    ]
    told = Counter[str]()
    checks = SpanChecks(told)
    assert [place for place, each in enumerate(spans) if checks.takes(each)] == [0, 3, 7, 8]
    assert told[REPEATED] == 5


def test_a_labelled_run() -> None:
    """A run's steps are observed in order in a session of its id; the clock moves, never back."""
    steps = [Step(Kind.TOOL, str(i), start=start, end=0) for i, start in enumerate([10, 0, 5, 20])]
    log = Log()
    replay_run(log, Run("run-1", steps=steps))
    assert [(session, step.name) for session, step in log.steps] == [
        ("run-1", name) for name in "0123"
    ]
    assert log.ticks == [10, 20]


ITEMS = 40


def double(number: int) -> int:
    time.sleep(0.05 if number % 7 == 0 else 0)
    return 2 * number


def fail(number: int) -> int:
    if number == 1:
        raise KeyError(f"no item {number}")
    return number


def end(number: int) -> int:
    os._exit(number)


def test_results_come_in_order() -> None:
    """Although items that were sent later are done earlier."""
    assert list(spread(double, range(ITEMS), 3)) == [*range(0, 2 * ITEMS, 2)]


def test_no_items() -> None:
    """There are no results, and no process is left."""
    assert list(spread(double, [], 3)) == []
    assert not multiprocessing.active_children()


def test_little_work_needs_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is done at once, in order, where the steps of items say that it is little."""
    monkeypatch.setattr(workers, "get_context", None)
    assert list(spread(str, range(300), 8, steps=lambda _: 5)) == [*map(str, range(300))]


def test_batches_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is much to do, items go to workers several at once."""
    monkeypatch.setattr(workers, "_STEPS_WORTH_WORKERS", 100)
    assert list(spread(double, range(ITEMS), 2, steps=lambda _: 90)) == [*range(0, 2 * ITEMS, 2)]


def test_few_items_are_taken_ahead() -> None:
    """Where the order counts, results of later items do not pile up behind a slow one."""
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = spread(double, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 10
    cast("Generator[int]", results).close()
    assert not multiprocessing.active_children()


def test_a_failure_is_raised_here() -> None:
    """With its type and text, and no process is left."""
    with pytest.raises(LoopGuardError, match="KeyError: 'no item 1'"):
        list(spread(fail, range(3), 2))
    assert not multiprocessing.active_children()


def test_a_process_that_ends_is_an_error() -> None:
    """It was killed, perhaps for want of memory."""
    with pytest.raises(LoopGuardError, match="ended before its time"):
        list(spread(end, [7], 2))
