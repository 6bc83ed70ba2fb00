"""resilience.recovering and the strategies."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, resilience
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.resilience.recovery import Tally


@pytest.fixture
def guard() -> LoopGuard:
    """The guard whose strategies `control` uses."""
    guard = LoopGuard()
    assert resilience.recoveries().tallies == {}
    return guard


def failing(tool: str, error: Exception, times: int = 99) -> int:
    """Tries of a call that fails some times; its error goes through."""
    tries = 0
    for attempt in resilience.recovering(tool):
        with attempt:
            tries += 1
            if tries <= times:
                raise error
    return tries


def test_a_file_is_read_again_before_it_is_edited(guard: LoopGuard, tmp_path: Path) -> None:
    """The next try has what stands in it now."""
    file = tmp_path / "a.py"
    file.write_text("new")
    resilience.recoveries().register(
        "reread", resilience.reread(lambda path: Path(path).read_text()),
        tool="edit_*", error="(text|string) not found",
    )  # fmt: skip
    seen: list[object] = []
    for attempt in resilience.recovering("edit_file", {"path": str(file)}):
        with attempt as call:
            seen.append(call.fresh)
            if call.fresh is None:
                msg = "String not found in the file"
                raise RuntimeError(msg)
    assert seen == [None, "new"]


def test_a_time_out_gets_more_time_up_to_a_limit(guard: LoopGuard) -> None:
    """30, 60, then 100 s; then the error is raised."""
    resilience.recoveries().register(
        "longer", resilience.longer_limit(most_s=100), error=TimeoutError
    )  # fmt: skip
    limits: list[float | None] = []
    with pytest.raises(TimeoutError):
        for attempt in resilience.recovering("build", limit_s=30):
            with attempt as call:
                limits.append(call.limit_s)
                raise TimeoutError
    assert limits == [30, 60, 100]
    assert resilience.recoveries().tallies["longer"] == Tally(tried=2, broke=1)
    tries = 0
    with pytest.raises(TimeoutError):
        for attempt in resilience.recovering("build"):
            with attempt:
                tries += 1
                raise TimeoutError
    assert tries == 1  # without a limit there is no longer one


def test_strategies_follow_each_other_at_most_n_times_each(guard: LoopGuard) -> None:
    """In the order in which they were registered; the last error is raised as it is."""
    used: list[str] = []
    for name in ("first", "second"):
        resilience.recoveries().register(
            name, lambda call, name=name: used.append(name), attempts=2
        )
    error = RuntimeError("for good")
    with pytest.raises(RuntimeError) as raised:
        failing("search", error)
    assert raised.value is error
    assert used == ["first", "first", "second", "second"]


def test_a_loop_of_failing_calls_does_not_recover_for_ever(guard: LoopGuard) -> None:
    """Tries are counted over all calls of a tool in a session, until one goes well."""
    resilience.recoveries().register("again", lambda call: None, attempts=2)

    def tries(times: int) -> int:
        made = 0
        with contextlib.suppress(OSError):
            for attempt in resilience.recovering("search"):
                with attempt:
                    made += 1
                    if made <= times:
                        raise OSError
        return made

    with otel_loopguard.session("one"):
        assert [tries(99), tries(99), tries(99)] == [3, 1, 1]
    with otel_loopguard.session("other"):
        assert tries(99) == 3
    with otel_loopguard.session("one"):
        assert [tries(0), tries(99)] == [1, 3]
    # Where no session is known each call has its own.
    assert [tries(99), tries(99)] == [3, 3]


@pytest.mark.parametrize(
    ("tool", "error"),
    [("browse", OSError()), ("search", KeyError("k")), ("search", LoopGuardAbort("over", "s"))],
    ids=["another tool", "another error", "an abort"],
)
def test_a_strategy_is_for_its_tool_and_error(
    guard: LoopGuard, tool: str, error: Exception
) -> None:
    """Other failures are raised at once."""
    errors = (OSError, LoopGuardAbort)
    resilience.recoveries().register("again", lambda call: None, tool="sea*", error=errors)
    with pytest.raises(type(error)):
        failing(tool, error)
    assert resilience.recoveries().tallies["again"] == Tally()


def test_a_strategy_that_breaks_makes_way_for_the_next(guard: LoopGuard) -> None:
    """It is counted as a fault, and the error that is raised is the tool's."""
    raise_faults(False)
    used: list[str] = []

    def broken(call: resilience.Call) -> None:
        raise ZeroDivisionError

    resilience.recoveries().register("broken", broken)
    resilience.recoveries().register("whole", lambda call: used.append("whole"))
    assert failing("search", OSError(), times=1) == 2
    assert used == ["whole"]
    assert resilience.recoveries().tallies["broken"].broke == 3
    assert guard.faults.counts == {"recovery.broken:ZeroDivisionError": 3}


def test_in_asyncio_strategies_may_be_awaited(guard: LoopGuard) -> None:
    """And in a plain loop they are refused, by name."""

    async def connect() -> None:
        await asyncio.sleep(0)
        connected.append(1)

    async def go() -> int:
        tries = 0
        async for attempt in resilience.recovering("query"):
            with attempt:
                tries += 1
                if not connected:
                    raise ConnectionError
        return tries

    connected: list[int] = []
    resilience.recoveries().register("reconnect", resilience.reconnect(connect))
    assert asyncio.run(go()) == 2
    assert resilience.recoveries().tallies == {"reconnect": Tally(tried=1, recovered=1)}
    with pytest.raises(TypeError, match="'reconnect' is to be awaited"):
        failing("query", ConnectionError())


def test_a_block_left_early_ends_the_tries(guard: LoopGuard) -> None:
    """`return` inside of it, as one writes it."""

    def answer() -> str:
        for attempt in resilience.recovering("search"):
            with attempt:
                return "answer"
        raise AssertionError

    assert answer() == "answer"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: resilience.recoveries().register("", print), "not empty"),
        (lambda: resilience.recoveries().register("a", print, error="("), "no regular expression"),
        (lambda: resilience.longer_limit(1), "above 1"),
    ],
    ids=["no name", "no pattern", "no factor"],
)
def test_what_cannot_be_is_refused(guard: LoopGuard, wrong: object, said: str) -> None:
    """With the value."""
    assert callable(wrong)
    with pytest.raises(ValueError, match=said):
        wrong()
