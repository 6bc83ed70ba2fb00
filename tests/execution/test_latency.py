"""Arguments, records and estimates of the calls of one tool."""

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.execution.latency import CallRecord, Knowledge, Profile, ResourceSample, measure
from otel_loopguard.execution.profiler import Profiler
from otel_loopguard.stores.redis import time_of
from tests.execution.past import START, record


def profile(*durations: float, tool: str = "t", size: int = 10) -> Profile:
    made = Profile(tool, Settings())
    for number, ms in enumerate(durations):
        made.add(record(number, ms, size=size))
    return made


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([1, 2], (3000, Knowledge.DEFAULT)),
        ([1, 2, 3], (3, Knowledge.PROFILE)),
        ([1000] * 50 + [10] * 50, (10, Knowledge.PROFILE)),
        ([1000] * 50 + [10] * 40, (1000, Knowledge.PROFILE)),
        (range(1, 101), (96, Knowledge.PROFILE)),
    ],
    ids=["two", "three", "the newest 50", "ten of the newest 50", "the 90th percentile"],
)
def test_an_estimate_is_made_of_the_newest_records(
    durations: list[float], expected: object
) -> None:
    """From three records on, of the newest 50; fewer leave the table of defaults."""
    found = profile(*durations, tool="web_search").estimate(10)
    assert (found.duration_ms, found.source) == expected


def test_what_makes_no_estimate() -> None:
    """A failure says nothing of the work; a default of the user's goes before the table."""
    known = profile(*[100.0] * 5)
    known.add(record(50, 0.1, success=False))
    assert known.estimate(10) == (100, 5, Knowledge.PROFILE)
    assert (known.summary().calls, known.summary().failures) == (6, 1)
    profiler = Profiler(Settings(tools={"web_search": {"duration_ms": 700}}))
    assert profiler.estimate("web_search").duration_ms == 700
    assert profiler.estimate("other") == (5000, 0, Knowledge.UNKNOWN)


@pytest.mark.parametrize(
    ("size", "ms"), [(10, 10), (20, 10), (21, 900), (500, 900), (2001, 900), (None, 900)]
)
def test_like_size(size: int | None, ms: float) -> None:
    """Calls with arguments of half to double the size make it; without nine of those, all do."""
    both = profile(*[10.0] * 20)
    for number in range(20):
        both.add(record(50 + number, 900, size=1000))
    assert both.estimate(size).duration_ms == ms


CIRCLE: dict[str, Any] = {}
CIRCLE["again"] = CIRCLE


def test_complexity_grows_from_0_to_1() -> None:
    """With text, fields and depth; a call that is more complex than others takes longer."""
    rows: list[object] = [
        {"q": "x"},
        {"q": "x" * 5_000},
        {"rows": [{"a": [1, 2], "b": {"c": 3}} for _ in range(30)]},
        [{"text": "x" * 500, **{f"f{n}": n for n in range(9)}} for _ in range(60)],
    ]
    first, *found = [measure(args)[1] for args in rows]
    assert 0 < first < found[0] < found[1] < found[2] == 1
    known = profile(*[100.0] * 20)
    found = [known.estimate(10, complexity).duration_ms for complexity in (0.0, 1.0)]
    assert found == pytest.approx([100, 150])


@pytest.mark.parametrize(
    "args",
    [{"n": 2**70}, {"s": "\ud800"}, CIRCLE, {"o": {1, 2}}, {(1, 2): 3}, float("nan"), object()],
    ids=lambda args: type(args).__name__,
)
def test_strange_arguments_do_not_throw(args: object) -> None:
    """What is no JSON has an unknown size, or that of what stands for it."""
    size, complexity = measure(args)
    assert size is None or 0 < size < 50
    assert 0 <= complexity <= 1


FULL = CallRecord(START, 12.5, 40, "run", True, 0.25, ResourceSample(55.0, 3.0, 120.5))
DAMAGED = [b"", b"\xff\x00", b"null", b"{}", b"[]", b"[1,1,2]"]
# A later form, a negative duration, no number, no session, no time.
ALTERED = {b",1,": b",2,", b"12": b"-1", b"12.5": b"true", b'"run"': b"7", b"%d" % START: b'"now"'}
DAMAGED += [FULL.encoded().replace(old, new, 1) for old, new in ALTERED.items()]


def test_a_record_survives_the_store() -> None:
    """It is read field by field; a store finds its time; bytes that are none never throw."""
    for kept in (FULL, CallRecord(START, 0.0, None, "", False)):
        raw = kept.encoded()
        assert (CallRecord.decoded(raw), time_of(raw)) == (kept, START)
        assert len(raw) < 100
    assert [raw for raw in DAMAGED if CallRecord.decoded(raw) is not None] == []
