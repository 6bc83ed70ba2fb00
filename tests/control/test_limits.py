"""Limits in time, and aborts, that really cancel what is awaited."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardError,
    LoopGuardLimit,
    control,
    resilience,
    session,
)
from tests.agents import Ended, provider_with
from tests.control.messages import Run

HANGS = 30


def test_a_call_is_cancelled_at_its_limit() -> None:
    """The error and the current span say which limit it passed; the task around it goes on."""
    cancelled: list[bool] = []
    tracer = provider_with(seen := Ended()).get_tracer("my.agent")

    async def hangs() -> None:
        try:
            await asyncio.sleep(HANGS)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> LoopGuardLimit:
        with tracer.start_as_current_span("in time"):
            async with control.limit(5):
                await asyncio.sleep(0)
        late, said = tracer.start_as_current_span("late"), r"'fetch' passed its limit of 0\.1 s"
        with pytest.raises(LoopGuardLimit, match=said) as raised, late:
            async with control.limit(0.1, tool="fetch"):
                await hangs()
        await asyncio.sleep(0.01)
        return raised.value

    began = time.monotonic()
    error = asyncio.run(main())
    assert 0.09 < time.monotonic() - began < HANGS
    assert cancelled == [True]
    assert (error.limit_s, error.name) == (0.1, "fetch")
    assert isinstance(error, TimeoutError)
    assert isinstance(error, LoopGuardError)
    limits = [(span.attributes or {}).get("loopguard.limit.exceeded") for span in seen.spans]
    assert limits == [None, 0.1]


def test_what_is_in_time_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns its result, and nothing is cancelled afterwards."""

    async def main() -> str:
        async with control.limit(60):
            await asyncio.sleep(0)
            result = "done"
        loop = asyncio.get_running_loop()
        time_of_loop = loop.time
        monkeypatch.setattr(loop, "time", lambda: time_of_loop() + 3600)
        await asyncio.sleep(0.001)  # what is due by then goes first
        return result

    assert asyncio.run(main()) == "done"


async def cancelled_from_outside(block: Any, owner_s: float, *, blocks_s: float = 0) -> None:
    """Its owner cancels a task in a block after a time, in which the loop may stand still."""

    async def work() -> None:
        async with block:
            await asyncio.sleep(HANGS)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(owner_s, task.cancel)
    time.sleep(blocks_s)  # noqa: ASYNC251  # what is due by then falls due in one turn of the loop
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("block", [lambda: control.limit(5), control.cancelling])
def test_a_cancellation_from_outside_stays_one(run: Run, block: Callable[[], Any]) -> None:
    """A task that is cancelled by its owner ends as cancelled, by no limit and by no abort."""
    run.calls()
    asyncio.run(cancelled_from_outside(block(), 0.02))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not count cancellations")
@pytest.mark.parametrize("owner_s", [0.04, 0.06])
def test_a_cancellation_at_the_moment_of_the_limit_stays_one(owner_s: float) -> None:
    """The owner's cancellation goes before the limit's, so that a shutdown is not swallowed."""
    asyncio.run(cancelled_from_outside(control.limit(0.05), owner_s, blocks_s=0.1))


@pytest.mark.parametrize(("inner", "outer", "speaks"), [(0.05, 5, "inner"), (5, 0.05, "outer")])
def test_of_nested_limits_the_first_one_over_speaks(
    inner: float, outer: float, speaks: str
) -> None:
    async def main() -> None:
        async with control.limit(outer, tool="outer"), control.limit(inner, tool="inner"):
            await asyncio.sleep(HANGS)

    with pytest.raises(LoopGuardLimit, match=f"'{speaks}'"):
        asyncio.run(main())


def test_without_seconds_the_profile_says_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is asked for the tool and its arguments; 600 s where it knows nothing of it."""
    guard = LoopGuard()
    assert control.limit(tool="never seen before").seconds == control.limit().seconds == 600
    asked: list[tuple[str, object]] = []

    def limit_s(tool: str, args: object) -> float:
        asked.append((tool, args))
        return 1000.0

    monkeypatch.setattr(guard, "limit_s", limit_s)
    assert control.limit(tool="fetch", args={"url": "x"}).seconds == 1000

    assert asked == [("fetch", {"url": "x"})]


def test_it_needs_a_task_and_is_used_once() -> None:
    """Outside of a coroutine nothing can be cancelled."""
    for block in (control.limit(1), control.cancelling()):
        with pytest.raises(RuntimeError, match="inside of a coroutine"):
            block.__enter__()

    async def main() -> None:
        limit = control.limit(1)
        with pytest.raises(KeyError):
            async with limit:
                raise KeyError(HANGS)
        with pytest.raises(RuntimeError, match="used once"):
            limit.__enter__()

    asyncio.run(main())


def _abort_soon(run: Run) -> None:
    run.calls()
    threading.Timer(0.1, control.abort, [run.key]).start()


def test_an_aborted_task_is_cancelled_and_the_block_says_why(run: Run) -> None:
    """The abort comes from another thread; the results so far come along."""

    async def agent() -> None:
        resilience.partial("half of it")
        _abort_soon(run)
        async with control.cancelling():
            await asyncio.sleep(HANGS)
            pytest.fail("it was not cancelled")

    with pytest.raises(LoopGuardAbort) as stop:
        asyncio.run(agent())
    assert stop.value.parts == ("half of it",)


def test_a_block_that_did_not_begin_cancels_nothing(run: Run) -> None:
    """Though who asked keeps the exception, and the session is aborted once more."""

    async def agent() -> None:
        control.abort(run.key)
        block = control.cancelling()
        with pytest.raises(LoopGuardAbort):
            block.__enter__()
        control.resume(run.key)
        control.abort(run.key)
        await asyncio.sleep(0.05)

    run.calls()
    asyncio.run(agent())


def test_what_was_cancelled_stays_so_though_the_session_is_resumed(run: Run) -> None:
    """The block says why; a resume before the cancellation is in time."""

    async def agent() -> None:
        async with control.cancelling():
            control.abort(run.key)
            control.resume(run.key)
            await asyncio.sleep(0.05)
            control.abort(run.key, by="ada")
            try:
                await asyncio.sleep(HANGS)
            finally:
                control.resume(run.key)

    run.calls()
    with pytest.raises(LoopGuardAbort) as stop:
        asyncio.run(agent())
    assert stop.value.by == "ada"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scope_is_cancelled(run: Run, backend: str) -> None:
    """A scope of anyio, on either of its backends."""

    async def agent() -> None:
        _abort_soon(run)
        with anyio.CancelScope() as scope, control.cancelling(scope):
            await anyio.sleep(HANGS)
            pytest.fail("it was not cancelled")

    with pytest.raises(LoopGuardAbort):
        anyio.run(agent, backend=backend)


def test_only_blocks_of_the_session_are_cancelled(run: Run) -> None:
    """None of another, none after its end; and one of an aborted session does not begin."""

    async def agent() -> None:
        async with control.cancelling():
            pass
        with session(f"not {run.key}"):
            async with control.cancelling():
                control.abort(run.key)
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        with pytest.raises(LoopGuardAbort):
            async with control.cancelling():
                pytest.fail("it began")

    run.calls()
    asyncio.run(agent())
