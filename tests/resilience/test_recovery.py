"""resilience.recovering and the strategies."""

import asyncio
import contextlib
from pathlib import Path

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, resilience
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.resilience.recovery import Tally
from tests.control.messages import new_name

MISSING = RuntimeError("String not found in the file")


@pytest.fixture(autouse=True)
def _own_guard(guard: LoopGuard) -> None:
    """Strategies are those of a guard of the test's own."""


def failing(tool: str, error: Exception, times: int = 99) -> int:
    """Tries of a call that fails some times; its error goes through."""
    for tries, attempt in enumerate(resilience.recovering(tool), 1):
        with attempt:
            if tries <= times:
                raise error
            return tries
    raise AssertionError


def test_a_file_is_read_again_before_it_is_edited(tmp_path: Path) -> None:
    """The next try has what stands in it now."""
    file = tmp_path / "a.py"
    file.write_text("new")
    again = resilience.reread(lambda path: Path(path).read_text())
    recoveries = resilience.recoveries()
    recoveries.register("reread", again, tool="edit_*", error="(text|string) not found")
    seen: list[object] = []
    for attempt in resilience.recovering("edit_file", {"path": str(file)}):
        with attempt as call:
            seen.append(call.fresh)
            if call.fresh is None:
                raise MISSING
    assert seen == [None, "new"]


@pytest.mark.parametrize(("limit_s", "expected"), [(30, [30, 60, 100]), (None, [None])])
def test_a_time_out_gets_more_time_up_to_a_limit(limit_s: float | None, expected: object) -> None:
    """30, 60, then 100 s; then the error is raised. Without a limit there is no longer one."""
    longer = resilience.longer_limit(most_s=100)
    resilience.recoveries().register("longer", longer, error=TimeoutError)
    limits: list[float | None] = []
    with pytest.raises(TimeoutError):
        for attempt in resilience.recovering("build", limit_s=limit_s):
            with attempt as call:
                limits.append(call.limit_s)
                raise TimeoutError
    assert limits == expected
    assert resilience.recoveries().tallies["longer"].tried == len(limits) - 1
    assert resilience.recoveries().tallies["longer"].broke


def test_strategies_follow_each_other_at_most_n_times_each() -> None:
    """In the order in which they were registered; the last error is raised as it is."""
    used: list[str] = []
    register = resilience.recoveries().register
    register("first", lambda call: used.append("first"), attempts=2)
    register("second", lambda call: used.append("second"), attempts=2)
    error = RuntimeError("for good")
    with pytest.raises(RuntimeError) as raised:
        failing("search", error)
    assert raised.value is error
    assert used == ["first", "first", "second", "second"]


def test_a_loop_of_failing_calls_does_not_recover_for_ever() -> None:
    """Tries are counted over a tool's calls in a session until one goes well, or else per call."""
    tried: list[object] = []
    resilience.recoveries().register("again", tried.append, attempts=2)

    def tries() -> int:
        tried.clear()
        with contextlib.suppress(OSError):
            failing("search", OSError())
        return 1 + len(tried)

    one, other = new_name(), new_name()
    for key, expected in ((one, [3, 1, 1]), (other, [3, 1, 1])):
        with otel_loopguard.session(key):
            assert [tries() for _ in range(3)] == expected
    with otel_loopguard.session(one):
        assert failing("search", OSError(), times=0) == 1
        assert tries() == 3
    assert [tries(), tries()] == [3, 3]


@pytest.mark.parametrize(
    ("tool", "error"),
    [("browse", OSError()), ("search", KeyError("k")), ("search", LoopGuardAbort("over", "s"))],
)
def test_a_strategy_is_for_its_tool_and_error(tool: str, error: Exception) -> None:
    """Other failures are raised at once; an abort is one."""
    errors = (OSError, LoopGuardAbort)
    resilience.recoveries().register("again", lambda call: None, tool="sea*", error=errors)
    with pytest.raises(type(error)):
        failing(tool, error)
    assert resilience.recoveries().tallies["again"] == Tally()


def test_a_strategy_that_breaks_makes_way_for_the_next(guard: LoopGuard) -> None:
    """It is counted as a fault, and the error that is raised is the tool's."""
    raise_faults(False)
    assert failing("search", OSError(), times=0) == 1
    resilience.recoveries().register("broken", lambda call: 1 // 0)
    resilience.recoveries().register("whole", lambda call: None)
    assert failing("search", OSError(), times=1) == 2
    found = resilience.recoveries().tallies
    assert (found["broken"].broke, found["whole"].recovered) == (3, 1)
    assert guard.faults.counts == {"recovery.broken:ZeroDivisionError": 3}


def test_in_asyncio_strategies_may_be_awaited() -> None:
    """And in a plain loop they are refused, by name."""
    connected: list[int] = []

    async def connect() -> None:
        await asyncio.sleep(0)
        connected.append(1)

    async def go() -> None:
        async for attempt in resilience.recovering("query"):
            with attempt:
                if not connected:
                    raise ConnectionError

    resilience.recoveries().register("reconnect", resilience.reconnect(connect))
    asyncio.run(go())
    assert connected == [1]
    assert resilience.recoveries().tallies == {"reconnect": Tally(tried=1, recovered=1)}
    with pytest.raises(TypeError, match="'reconnect' is to be awaited"):
        failing("query", ConnectionError())
