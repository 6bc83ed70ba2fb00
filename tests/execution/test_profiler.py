"""What is learned of calls: arguments, records and estimates, profiles, a store, batches."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.task import Task, read
from otel_loopguard.execution.resources import Resources
from otel_loopguard.sessions.profiler import (
    CallRecord,
    Knowledge,
    Profile,
    Profiler,
    ResourceProfile,
    ResourceSample,
    measure,
)
from otel_loopguard.stores import Writer
from otel_loopguard.stores.redis import time_of
from tests.execution.past import SECOND, START, call, encoded, record
from tests.stores.memory import TroubledStore
from tests.stores.servers import wait_for
from tests.tables import rows


def learned(*durations: float, settings: Settings | None = None) -> Profiler:
    profiler = Profiler(settings or Settings())
    for number, ms in enumerate(durations):
        profiler.finished(call(number, ms))
    return profiler


def count(profiler: Profiler) -> int:
    summary = profiler.summary("t")
    return 0 if summary is None else summary.calls


NOT_CALLS = [(Kind.MODEL, "m", START, START + 1), (Kind.TOOL, None, START, START + 1)]
NOT_CALLS += [(Kind.TOOL, "t", start, end) for start, end in ((0, 0), (0, START), (START, 0))]
NOT_CALLS += [(Kind.TOOL, "backwards", START, START - 1)]


def test_what_is_no_finished_call_is_passed() -> None:
    """Nothing is learned of other steps, nor of calls whose duration is not known."""
    profiler = Profiler(Settings())
    for kind, name, start, end in NOT_CALLS:
        profiler.finished(Step(kind, name, start=start, end=end))
    assert profiler.tools == ()


def test_newest_100_of_7_days() -> None:
    """A profile keeps the newest 100 calls, and none older than 7 days than the newest."""
    profiler = learned(*range(1, 131))
    assert count(profiler) == 100
    for day, calls in ((7, 71), (30, 1)):
        profiler.finished(call(60 + day * 86_400, 1.0))
        assert count(profiler) == calls


def test_tools_are_bounded() -> None:
    """The tool unused for longest goes when there are too many; names are cut."""
    profiler = Profiler(Settings())
    for tool in ("a", "b", *map(str, range(998)), "a", "d" * 500):
        profiler.finished(call(0, 1.0, tool=tool))
    assert len(profiler.tools) == 1000
    assert "b" not in profiler.tools
    assert profiler.tools[-2:] == ("a", "d" * 200)
    assert profiler.estimate("d" * 500).records == 1


def test_stall_limit() -> None:
    """Three times the estimate, once there are 20 records, and never below 30 s."""
    assert learned(*[20_000] * 19).limit_for("t") is None
    assert learned(*[50] * 20).limit_for("t") == 30
    assert 50 < (learned(*[20_000] * 20).limit_for("t") or 0) <= 60
    assert Profiler(Settings()).limit_for("web_search") is None
    assert learned(*[50] * 20, settings=Settings(exempt_tools={"t"})).limit_for("t") is None
    # What a tool came back from is no stall; a call that failed is no measure.
    slow = learned(*[5_000] * 30, 200_000, *[5_000] * 30)
    slow.finished(call(70, 400_000, error=True))
    assert slow.limit_for("t") == 200


@pytest.mark.parametrize(("ms", "seconds"), [(100, 30), (20_000, 100), (300_000, 600)])
def test_time_limits(ms: float, seconds: float) -> None:
    """Five times the estimate, not under 30 s, not over 600 s."""
    assert learned(*[ms] * 20).time_limit("t") == pytest.approx(seconds)


def test_agent_limits() -> None:
    """An agent has a profile of its own runs, apart from a tool of its name."""
    profiler = Profiler(Settings())
    assert profiler.agent_limit("planner") == 600
    for number in range(10):
        profiler.finished(call(number, 10_000, tool="planner", kind=Kind.AGENT))
    assert profiler.agent_limit("planner") == pytest.approx(50)
    assert not profiler.estimate("planner").known
    assert profiler.tools[0] == "agent:planner"


def test_resource_profile() -> None:
    """Means over what was measured say whether a tool needs much CPU, memory or I/O."""
    waiting = ResourceSample(io_wait_percent=20)
    samples = (ResourceSample(90, 700, 10), None, ResourceSample(50, 500), waiting)
    profiler = Profiler(Settings())
    profiler.machine = machine = Resources(Settings(), InternalErrors())
    for number, machine.sample in enumerate(samples):
        profiler.finished(call(number, 1.0))
    assert profiler.resources("t") == ResourceProfile(3, 70, 600, 15, True, True, False)
    assert profiler.resources("other") is None
    nothing = ResourceProfile(0, None, None, None, False, False, False)
    assert learned(1.0).resources("t") == nothing


Rig = tuple[TroubledStore, Writer, Profiler]


@pytest.fixture
def rig() -> Iterator[Rig]:
    store = TroubledStore()
    store.let.clear()
    writer = Writer(store, Settings(), InternalErrors())
    yield store, writer, Profiler(Settings(), writer=writer)
    store.let.set()
    writer.close()


def test_the_store_is_read_once_in_the_background(rig: Rig) -> None:
    """Later questions are answered with what it knew; what was written before counts once."""
    store, writer, profiler = rig
    again = record(100, 60.0, size=None)._replace(time=START + 100 * SECOND + 60_000_000)
    store.add_records("t", [*encoded([40.0] * 20), again.encoded()])
    assert not profiler.estimate("t").known
    profiler.finished(call(100, 60.0), "s")
    assert profiler.estimate("t").records == 1
    store.let.set()
    wait_for(lambda: profiler.estimate("t").records == 21)
    assert 40 <= profiler.estimate("t").duration_ms < 60
    assert store.asked == 1
    assert writer.flush(60)
    assert len(store.records("t")) == 21


def test_calls_are_written_behind(rig: Rig) -> None:
    """Each reaches the store with its session and without its arguments, after a write too."""
    store, writer, profiler = rig
    store.let.set()
    for number in range(3):
        profiler.finished(call(number, 60.0, {"q": "secret"}), "run")
        assert writer.flush(60)
    first, *others = store.records("t")
    found = CallRecord.decoded(first)
    assert found is not None
    assert (found.ms, found.session, found.size, len(others)) == (60, "run", 14, 2)
    assert b"secret" not in first


def test_a_store_that_fails(rig: Rig) -> None:
    """A store that fails is left alone for a while, estimates go on, then it is asked again."""
    store, _, profiler = rig
    store.error = "the store is gone"
    store.let.set()
    profiler.estimate("t")
    wait_for(lambda: profiler._resting_until > 0)
    profiler.finished(call(0, 60.0))
    assert profiler.estimate("t").records == 1
    assert store.asked == 1
    store.error = None
    store.add_records("t", encoded([40.0] * 20))
    profiler._resting_until = 0.0
    wait_for(lambda: profiler.estimate("t").records >= 21)


def test_records_that_are_not_understood(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """They are left out with one warning that names the tool; the others count."""
    store, _, profiler = rig
    store.add_records("t", [*encoded([40.0] * 20), b'[%d,"later"]' % START])
    store.let.set()
    profiler.estimate("t")
    wait_for(lambda: profiler.estimate("t").records == 20)
    (said,) = caplog.messages
    assert "tool profile 't': 1 records" in said


def test_calls_wait_where_they_are_for_the_writer(rig: Rig) -> None:
    """Any number of calls of a tool is one write, and all of them count where it is given up."""
    _, writer, profiler = rig
    for number in range(70):
        profiler.finished(call(number, 60.0), "run")
    assert writer.waiting == 1
    writer.close(0)
    assert writer.dropped == 70
    profiler.finished(call(70, 60.0), "run")
    assert writer.waiting == 1


TIMES = {"a": 4000, "b": 3000, "c": 2000, "d": 1000, "w": 500}
SETTINGS = Settings(
    read_tools="a, b",
    tools={name: {"duration_ms": ms, "parallel": name in "cd"} for name, ms in TIMES.items()},
)


def test_independent_safe_calls() -> None:
    """Three run at a time, the longest first; the sum is what they take one by one."""
    found = Profiler(SETTINGS).batch([Task(tool, tool, args={"q": tool}) for tool in "dcba"])
    assert (found.sequential_ms, found.parallel_ms) == (10_000, 4000)
    assert found.can_run_in_parallel
    assert [each.duration_ms for each in found.estimates] == [1000, 2000, 3000, 4000]
    given = Profiler(SETTINGS).batch([Task("x", "a", estimate_ms=50), Task("y", "b")])
    assert given.sequential_ms == 3050
    assert [each.source.value for each in given.estimates] == ["given", "default"]


@pytest.mark.parametrize(("tasks", "parallel", "reason"), rows(__file__, "batches"))
def test_what_may_run_at_the_same_time(tasks: str, parallel: str, reason: str) -> None:
    """A batch says why its calls wait for each other, or not, and how long it takes then."""
    found = Profiler(SETTINGS).batch(read(json.loads(tasks))[0])
    assert found.can_run_in_parallel is ("every" in reason)
    assert found.parallel_ms == float(parallel)
    assert reason in found.reason


def profile(*durations: float, tool: str = "t", size: int = 10) -> Profile:
    made = Profile(tool, Settings())
    for number, ms in enumerate(durations):
        made.add(record(number, ms, size=size))
    return made


@pytest.mark.parametrize(("_", "durations", "ms", "source"), rows(__file__, "estimates"))
def test_an_estimate_is_made_of_the_newest_records(
    _: str, durations: str, ms: str, source: str
) -> None:
    """From three records on, of the newest 50; fewer leave the table of defaults."""
    found = profile(*eval(durations), tool="web_search").estimate(10)
    assert (found.duration_ms, found.source.value) == (float(ms), source)


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
