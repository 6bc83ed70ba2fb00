"""control.on_decision: callbacks that hold nobody up."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

import pytest

from otel_loopguard import Decision, LoopGuardSpanProcessor, control
from otel_loopguard import session as named
from otel_loopguard._util.errors import raise_faults
from tests.agents import provider_with, tool_call
from tests.stores.servers import wait_for


def _loop(key: str, calls: int = 8) -> LoopGuardSpanProcessor:
    processor = LoopGuardSpanProcessor()
    tracer = provider_with(processor).get_tracer("my.agent")
    with named(key):
        for _ in range(calls):
            tool_call(tracer)
    return processor


def test_every_decision_is_told_in_order() -> None:
    """On a thread of its own, and only those of the session that was asked for."""
    key, heard, threads = uuid.uuid4().hex, [], set()

    def hear(decision: Decision) -> None:
        heard.append((decision.session, decision.action.value))
        threads.add(threading.current_thread().name)

    stop = control.on_decision(hear, session=key)
    kept = [_loop("another"), _loop(key)]  # a guard that nobody holds judges nothing any more
    wait_for(lambda: len(heard) >= 3)
    stop()
    del kept
    assert heard[:3] == [(key, "hint"), (key, "deny"), (key, "abort")]
    assert threads == {"loopguard-listener"}


@pytest.mark.parametrize("fault", [OSError, SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_a_callback_raises_is_counted(fault: type[BaseException]) -> None:
    """It is told the rest, without a further decision, also where its thread would end."""
    raise_faults(False)
    key, heard = uuid.uuid4().hex, []

    def hear(decision: Decision) -> None:
        heard.append(decision.action.value)
        raise fault

    stop = control.on_decision(hear, session=key)
    processor = _loop(key)
    wait_for(lambda: processor.faults.counts.total() >= 3)
    stop()
    assert heard == ["hint", "deny", "abort"]
    assert processor.faults.counts == {f"on_decision:{fault.__name__}": 3}


def test_a_callback_that_hangs_holds_nobody_up() -> None:
    """Neither the agent nor another callback; what it misses is bounded."""
    key, heard, free = uuid.uuid4().hex, [], threading.Event()
    given_up: list[Decision] = []

    def hang(decision: Decision) -> None:
        if not free.wait(60):
            given_up.append(decision)

    stops = [
        control.on_decision(hang, session=key),
        control.on_decision(lambda decision: heard.append(decision.action.value), session=key),
    ]
    kept = _loop(key)
    wait_for(lambda: len(heard) >= 3)
    assert not given_up
    free.set()
    for stop in stops:
        stop()
    assert heard == ["hint", "deny", "abort"]
    del kept


def test_after_the_end_nothing_is_told() -> None:
    """What `on_decision` gave ends it."""
    heard: list[Decision] = []
    control.on_decision(heard.append)()
    _loop(uuid.uuid4().hex)
    time.sleep(0.05)
    assert heard == []
