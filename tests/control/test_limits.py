"""Limits in time that really cancel what is awaited."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardError, LoopGuardLimit, control
from tests.agents import Ended, provider_with

HANGS = 30


def ended() -> tuple[Any, Ended]:
    """A tracer, and the spans of it that ended."""
    seen = Ended()
    return provider_with(seen).get_tracer("my.agent"), seen


def test_a_call_is_cancelled_at_its_limit() -> None:
    """The awaited call is gone, the error says which limit it passed, and it took no longer."""
    cancelled: list[bool] = []

    async def hangs() -> None:
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> None:
        async with control.limit(0.1, tool="fetch"):
            await hangs()

    began = time.monotonic()
    with pytest.raises(LoopGuardLimit, match=r"'fetch' passed its limit of 0\.1 s") as raised:
        asyncio.run(main())
    assert 0.09 < time.monotonic() - began < HANGS
    assert cancelled == [True]
    assert (raised.value.limit_s, raised.value.name) == (0.1, "fetch")
    assert isinstance(raised.value, TimeoutError)
    assert isinstance(raised.value, LoopGuardError)


def test_it_says_so_on_the_current_span() -> None:
    """The span of the call has the limit; one that is in time has not."""
    tracer, seen = ended()

    async def main() -> None:
        with tracer.start_as_current_span("in time"):
            async with control.limit(5):
                await asyncio.sleep(0)
        with pytest.raises(LoopGuardLimit), tracer.start_as_current_span("too late"):
            async with control.limit(0.05):
                await asyncio.sleep(HANGS)

    asyncio.run(main())
    early, late = (span.attributes or {} for span in seen.spans)
    assert "loopguard.limit.exceeded" not in early
    assert late["loopguard.limit.exceeded"] == 0.05


def test_what_is_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns its result, and nothing is cancelled afterwards."""

    @control.limited(60)
    async def quick() -> str:
        await asyncio.sleep(0)
        return "done"

    async def main() -> str:
        result = await quick()
        loop = asyncio.get_running_loop()
        time_of_loop = loop.time
        monkeypatch.setattr(loop, "time", lambda: time_of_loop() + 3600)
        await asyncio.sleep(0.001)  # what is due by then goes first
        return result

    assert asyncio.run(main()) == "done"


def test_a_decorated_function_is_cancelled_by_its_name() -> None:
    """Each call has the limit, and the message names the function."""

    @control.limited(0.05)
    async def crawl(url: str) -> str:
        """Crawls."""
        await asyncio.sleep(HANGS)
        return url

    assert (crawl.__name__, crawl.__doc__) == ("crawl", "Crawls.")
    for _ in range(2):
        with pytest.raises(LoopGuardLimit, match="'crawl'"):
            asyncio.run(crawl("x"))


def test_the_task_goes_on_after_a_limit() -> None:
    """What was cancelled is the call, not the task around it."""

    async def main() -> str:
        with pytest.raises(LoopGuardLimit), control.limit(0.05):
            await asyncio.sleep(HANGS)
        await asyncio.sleep(0.01)
        return "went on"

    assert asyncio.run(main()) == "went on"


def test_a_cancellation_from_outside_stays_one() -> None:
    """A task that is cancelled by its owner before the limit ends as cancelled."""

    async def main() -> None:
        async def work() -> None:
            async with control.limit(5):
                await asyncio.sleep(HANGS)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not count cancellations")
def test_a_cancellation_at_the_moment_of_the_limit_stays_one() -> None:
    """The owner's cancellation goes before the limit's, so that a shutdown is not swallowed."""

    async def main() -> None:
        async def work() -> None:
            async with control.limit(0.05):
                await asyncio.sleep(HANGS)

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251  # both fall due in one turn of the loop
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


@pytest.mark.parametrize(
    ("inner", "outer", "speaks"), [(0.05, 5, "inner"), (5, 0.05, "outer")], ids=["inner", "outer"]
)
def test_of_nested_limits_the_first_one_over_speaks(
    inner: float, outer: float, speaks: str
) -> None:
    """The error carries the limit that was passed."""

    async def main() -> None:
        async with control.limit(outer, tool="outer"), control.limit(inner, tool="inner"):
            await asyncio.sleep(HANGS)

    with pytest.raises(LoopGuardLimit) as raised:
        asyncio.run(main())
    assert raised.value.name == speaks


def test_another_error_is_not_replaced() -> None:
    """What the call itself raises comes through."""

    async def main() -> None:
        async with control.limit(5):
            raise KeyError(HANGS)

    with pytest.raises(KeyError):
        asyncio.run(main())


def test_without_seconds_the_profile_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is asked for the tool and its arguments; without a tool it is 600 s."""
    guard = LoopGuard()
    asked: list[tuple[str, object]] = []

    def limit_s(tool: str, args: object) -> float:
        asked.append((tool, args))
        return 1000.0

    monkeypatch.setattr(guard, "limit_s", limit_s)
    assert control.limit(tool="fetch", args={"url": "x"}).seconds == 1000
    assert asked == [("fetch", {"url": "x"})]
    assert control.limit().seconds == 600

    @control.limited
    async def search(query: str) -> str:
        return query

    assert asyncio.run(search(query="q")) == "q"
    assert asked[-1] == ("search", {"query": "q"})


def test_a_tool_that_nothing_is_known_of_may_take_ten_minutes() -> None:
    """The ceiling of E3 is the default."""
    guard = LoopGuard()
    assert guard.limit_s("never seen before", None) == 600


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "5", True])
def test_what_is_no_limit_is_refused(seconds: Any) -> None:
    """The message has the value; a decorator is refused where it stands."""
    with pytest.raises(ValueError, match=r"above 0, got"):
        control.limit(seconds)
    with pytest.raises(ValueError, match=r"above 0, got"):
        control.limited(seconds)


def test_it_needs_a_task_and_is_used_once() -> None:
    """Outside of a coroutine there is nothing to cancel."""
    with pytest.raises(RuntimeError, match="inside of a coroutine"):
        control.limit(1).__enter__()

    async def main() -> None:
        limit = control.limit(1)
        async with limit:
            pass
        with pytest.raises(RuntimeError, match="used once"):
            limit.__enter__()

    asyncio.run(main())


def test_a_plain_function_cannot_be_limited() -> None:
    """It would block the loop until it is done, whatever is said."""
    plain: Any = time.sleep
    with pytest.raises(TypeError, match="async functions"):
        control.limited(1)(plain)
