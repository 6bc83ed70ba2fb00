"""Arguments, records and estimates of the calls of one tool."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.execution.latency import (
    DEFAULTS_MS,
    Arguments,
    Calibration,
    CallRecord,
    Knowledge,
    Profile,
    measure,
    percentile,
)
from otel_loopguard.execution.profiler import Profiler
from otel_loopguard.stores.store import time_of
from tests.execution.past import SECOND, START, call, record

PLAIN = Settings(tuning={"latency": {"prior_records": 0, "adapts": 0, "complexity": 0}})
"""The rule as it is written: no blending, no calibration, no complexity."""


def sized(size: int | None, complexity: float = 0.0) -> Arguments:
    return Arguments(size, complexity)


def profile(
    *durations: float, settings: Settings = PLAIN, tool: str = "t", size: int = 10
) -> Profile:
    made = Profile(tool, settings)
    for number, ms in enumerate(durations):
        made.add(record(number, ms, size=size))
    return made


@pytest.mark.parametrize(("tool", "ms"), DEFAULTS_MS.items(), ids=DEFAULTS_MS)
def test_the_table_of_defaults(tool: str, ms: float) -> None:
    """A tool of the table is estimated by it while there is no record."""
    found = Profiler(Settings()).estimate(tool)
    assert (found.duration_ms, found.source, found.known) == (ms, Knowledge.DEFAULT, True)


def test_defaults_of_the_user() -> None:
    """The user's own default goes before the table, and a tool of neither is unknown."""
    profiler = Profiler(
        Settings(tools={"web_search": {"duration_ms": 700}, "mine": {"duration_ms": 90}})
    )
    assert profiler.estimate("web_search").duration_ms == 700
    assert profiler.estimate("mine").source is Knowledge.DEFAULT
    other = profiler.estimate("other")
    assert (other.duration_ms, other.source, other.known) == (5000, Knowledge.UNKNOWN, False)


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 6), (0.9, 10), (0.05, 1)], ids=["median", "90th", "least"]
)
def test_percentile_of_the_next_one(share: float, value: float) -> None:
    """The percentile is that of which the next value is within, not that of the values."""
    assert percentile([float(n) for n in range(1, 11)], share) == value


def test_few_records_give_the_default() -> None:
    """Without blending, two records change nothing and three replace the default."""
    assert profile(1, 2, tool="web_search").estimate(sized(10)).duration_ms == 3000
    found = profile(1, 2, 3, tool="web_search").estimate(sized(10))
    assert (found.duration_ms, found.source, found.records) == (3, Knowledge.PROFILE, 3)


def test_newest_50_records() -> None:
    """Records before the newest 50 do not count any more."""
    assert profile(*[1000] * 50, *[10] * 50).estimate(sized(10)).duration_ms == 10
    assert profile(*[1000] * 50, *[10] * 40).estimate(sized(10)).duration_ms == 1000


def test_like_size() -> None:
    """Calls whose arguments are within half and double the size weigh most."""
    both = profile(*[10.0] * 20)
    for number in range(20):
        both.add(record(50 + number, 900, size=1000))
    small, middle, large = (both.estimate(sized(size)) for size in (20, 500, 2000))
    assert [each.similar for each in (small, middle, large)] == [20, 20, 20]
    assert small.duration_ms < 30
    assert middle.duration_ms == large.duration_ms > 800
    assert both.estimate(sized(100)).similar == 0
    assert both.estimate(sized(None)).similar == 40


def test_the_window_is_that_of_the_newest() -> None:
    """What is kept sorted as calls come and go is what sorting the newest 50 would give."""
    chance = random.Random(4)
    known = Profile("t", PLAIN)
    taken: list[CallRecord] = []
    for number in range(400):
        size = chance.choice([None, 5, 10, 10, 40, 900])
        days = 5 * (number // 90)
        made = record(number + days * 86_400, chance.randint(1, 50), size=size)
        known.add(made._replace(success=chance.random() < 0.8))
        taken += [each for each in [known.records[-1]] if each.timed]
        newest = [each for each in taken if each.time > made.time - 7 * 86_400 * SECOND][-100:]
        ordered = sorted(each.ms for each in newest[-50:])
        found = known.estimate(sized(None))
        assert found.records == len(ordered)
        assert known.longest_ms == max((each.ms for each in newest), default=0)
        if found.records >= 3:
            assert found.duration_ms == percentile(ordered, 0.9)


def test_no_cliff_at_three() -> None:
    """From the default to the records an estimate moves step by step, and ends at the records."""
    steps = [
        profile(*[30.0] * count, settings=Settings(tuning={"latency": {"adapts": 0}})).estimate(
            sized(10)
        )
        for count in range(12)
    ]
    durations = [step.duration_ms for step in steps]
    assert (durations[0], round(durations[10], 6)) == (5000, 30)
    ratios = [one / other for one, other in pairwise(durations[:11])]
    assert max(ratios) == pytest.approx(min(ratios))
    assert max(ratios) < 1.7
    assert [step.source.value for step in steps[::5]] == ["unknown", "blend", "profile"]


def test_complexity_of_the_call() -> None:
    """A call that is more complex than those it is estimated by takes longer."""
    known = profile(*[100.0] * 20, settings=Settings(tuning={"latency": {"adapts": 0}}))
    assert known.estimate(sized(10, 0.0)).duration_ms == pytest.approx(100)
    assert known.estimate(sized(10, 1.0)).duration_ms == pytest.approx(150)


def test_failures_and_cache_hits_make_no_estimate() -> None:
    """A fast failure and a cached answer say nothing about how long the work takes."""
    known = profile(*[100.0] * 5)
    known.add(record(50, 0.1, success=False))
    known.add(record(51, 0.1, cached=True))
    found = known.estimate(sized(10))
    assert (found.duration_ms, found.records) == (100, 5)
    summary = known.summary()
    assert (summary.calls, summary.failures, summary.cached) == (7, 1, 1)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "drift",
    [lambda n: 0.0, lambda n: n / 150, lambda n: 2.0 * (n > 200), lambda n: math.sin(n / 40)],
    ids=["steady", "slower and slower", "a jump", "waves"],
)
def test_estimates_stay_calibrated(drift: object, seed: int) -> None:
    """85 to 95 % of the calls stay within their estimate, also where durations drift."""
    assert callable(drift)
    chance = random.Random(seed)
    profiler = Profiler(Settings())
    hits: list[bool] = []
    for number in range(500):
        ms = math.exp(4 + drift(number) + chance.gauss(0, 0.8))
        estimate = profiler.estimate("t", {"q": "x"})
        if estimate.records >= 10:
            hits.append(ms <= estimate.duration_ms)
        profiler.finished(call(number, ms, {"q": "x"}))
    assert 0.85 <= sum(hits) / len(hits) <= 0.95


def test_calibration_counts_the_newest_100() -> None:
    """The share within is over the newest 100 calls; the offset stays between bounds."""
    kept = Calibration(0.9, 0.15)
    assert kept.within is None
    for _ in range(200):
        kept.add(within=False)
    assert (kept.within, kept.offset) == (0, 3)
    for _ in range(50):
        kept.add(within=True)
    assert kept.within == 0.5
    for _ in range(1000):
        kept.add(within=True)
    assert (kept.within, kept.offset) == (1, -1)


CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE


def test_size_is_that_of_the_json() -> None:
    """A JSON text and the equal map are of one size, complexity and identity."""
    assert measure({"q": "nile"}) == measure('{"q":"nile"}')
    assert measure({"q": "nile"}).size == 12
    assert measure({"a": 1, "b": 2}).key == measure({"b": 2, "a": 1}).key


def test_complexity_grows_from_0_to_1() -> None:
    """More text, more fields and more depth make arguments more complex, up to 1."""
    plain = measure({"q": "x"})
    long = measure({"q": "x" * 5_000})
    deep = measure({"rows": [{"a": [1, 2], "b": {"c": 3}} for _ in range(30)]})
    most = measure([{"text": "x" * 500, **{f"f{n}": n for n in range(9)}} for _ in range(60)])
    assert 0 < plain.complexity < long.complexity < deep.complexity < most.complexity == 1


@pytest.mark.parametrize(
    "args",
    [{"n": 2**70}, {"s": "\ud800"}, CIRCLE, {"o": {1, 2}}, {(1, 2): 3}, float("nan"), object()],
    ids=["huge number", "lone surrogate", "circle", "set", "odd key", "nan", "object"],
)
def test_strange_arguments_do_not_throw(args: object) -> None:
    """What is no JSON has an unknown size, or that of what stands for it."""
    found = measure(args)
    assert found.size is None or 0 < found.size < 50
    assert 0 <= found.complexity <= 1


def test_unknown_is_not_empty() -> None:
    """Arguments that were not captured have no size and no identity; empty ones have both."""
    assert measure(None).size is None
    assert measure(None).key is None
    assert (measure("").size, measure({}).size) == (0, 2)


def test_long_text_costs_no_more_than_its_head() -> None:
    """Of a text of megabytes the size counts, and the rest is not looked at."""
    assert measure("x" * 3_000_000).size == 3_000_000
    assert measure("\ud800" * 10).size == 30


FULL = CallRecord(START, 12.5, 40, "run", True, True, 0.25, 55.0, 3.0, 120.5)


@pytest.mark.parametrize(
    "record",
    [FULL, CallRecord(START, 0.0, None, "", False)],
    ids=["everything", "nothing but time and duration"],
)
def test_a_record_survives_the_store(record: CallRecord) -> None:
    """What was written is read again, field by field."""
    assert CallRecord.decoded(record.encoded()) == record


def test_a_record_starts_with_its_time() -> None:
    """A store finds the time of a record without knowing its form, and it is small."""
    assert time_of(FULL.encoded()) == START
    assert len(FULL.encoded()) < 100


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\x00",
        b"null",
        b"{}",
        b"[]",
        b"[1,1,2]",
        FULL.encoded().replace(b",1,", b",2,", 1),
        FULL.encoded().replace(b"12.5", b"-1.0"),
        FULL.encoded().replace(b"12.5", b"true"),
        FULL.encoded().replace(b'"run"', b"7"),
        FULL.encoded().replace(str(START).encode(), b'"now"'),
    ],
    ids=[
        "empty", "no text", "null", "map", "no fields", "few fields", "later form",
        "negative duration", "no number", "no session", "no time",
    ],
)  # fmt: skip
def test_what_is_no_record_is_none(raw: bytes) -> None:
    """Bytes that are not understood are told apart from records, and never throw."""
    assert CallRecord.decoded(raw) is None
