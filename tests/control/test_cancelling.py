"""control.cancelling: an abort cancels what a session awaits."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor, control, resilience
from tests.agents import provider_with, tool_call

_LONG_S = 30


@pytest.fixture
def run() -> Iterator[str]:
    """A session that a guard knows."""
    processor = LoopGuardSpanProcessor()
    tracer = provider_with(processor).get_tracer("my.agent")
    key = uuid.uuid4().hex
    with otel_loopguard.session(key):
        tool_call(tracer)
        yield key
    processor.shutdown()


def _abort_soon(run: str) -> None:
    threading.Timer(0.1, control.abort, [run]).start()


def test_a_task_is_cancelled_and_the_block_says_why(run: str) -> None:
    """The abort comes from another thread; the results so far come along."""

    async def agent() -> None:
        resilience.partial("half of it")
        _abort_soon(run)
        async with control.cancelling():
            await asyncio.sleep(_LONG_S)
            pytest.fail("it was not cancelled")

    with pytest.raises(LoopGuardAbort) as stop:
        asyncio.run(agent())
    assert stop.value.parts == ("half of it",)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_scope_is_cancelled(run: str, backend: str) -> None:
    """A scope of anyio, on either of its backends."""

    async def agent() -> None:
        _abort_soon(run)
        with anyio.CancelScope() as scope, control.cancelling(scope):
            await anyio.sleep(_LONG_S)
            pytest.fail("it was not cancelled")

    with pytest.raises(LoopGuardAbort):
        anyio.run(agent, backend=backend)


def test_an_aborted_session_does_not_begin(run: str) -> None:
    """The block raises at once where the session is aborted already."""
    control.abort(run)

    async def agent() -> None:
        async with control.cancelling():
            pytest.fail("it began")

    with pytest.raises(LoopGuardAbort):
        asyncio.run(agent())


def test_a_cancellation_from_outside_stays_one(run: str) -> None:
    """Somebody else's cancel is not taken for an abort."""

    async def agent() -> str:
        async def inner() -> None:
            async with control.cancelling():
                await asyncio.sleep(_LONG_S)

        task = asyncio.create_task(inner())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return "cancelled"

    assert asyncio.run(agent()) == "cancelled"


def test_other_sessions_go_on(run: str) -> None:
    """Only blocks of the session that is aborted are cancelled, and none after its end."""

    async def agent() -> list[Any]:
        async with control.cancelling():
            pass
        with otel_loopguard.session(f"not {run}"):
            async with control.cancelling():
                control.abort(run)
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.05)
        return ["done"]

    assert asyncio.run(agent()) == ["done"]


def test_outside_of_a_task_it_says_what_it_needs() -> None:
    """There is nothing to cancel in a plain thread."""
    with pytest.raises(RuntimeError, match="use it inside of a coroutine"), control.cancelling():
        pass
