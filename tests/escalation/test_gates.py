"""Gates that wait for people."""

from __future__ import annotations

import asyncio
import gc
import threading

from otel_loopguard import Action, control, session
from tests.escalation.agents import asked, stuck, until, watched

SESSIONS = 1000


def test_a_thousand_sessions_wait_without_a_thread_each() -> None:
    """And each goes on with its own answer."""
    guard = watched(pause_limit_s=120)
    keys = [f"run-{number}" for number in range(SESSIONS)]
    for key in keys:
        stuck(guard, key)

    async def wait(key: str) -> control.Control:
        with session(key):
            return await control.gate()

    async def run() -> list[control.Control]:
        waiting = [asyncio.create_task(wait(key)) for key in keys]
        await asyncio.sleep(0.1)
        threads.append(threading.active_count())
        for found in asked(guard):
            control.answer(found.id, "continue", found.session, by="anna")
        return await asyncio.gather(*waiting)

    before, threads = threading.active_count(), []
    ended = asyncio.run(run())
    assert threads[0] - before < SESSIONS / 10  # other tests may have left some that begin
    assert {one.action for one in ended} == {Action.HINT}
    assert [(one.hint or "").rpartition(" ")[2] for one in ended] == keys
    assert asked(guard) == []


def test_a_thousand_time_limits_on_one_thread() -> None:
    """All sessions go on when nobody answers."""
    gc.collect()  # each guard of an earlier test that is still there is asked for every session
    guard = watched(pause_limit_s=2)
    for number in range(SESSIONS):
        stuck(guard, f"run-{number}")
    until(lambda: not control.escalations(), limit_s=900)
    actions = {guard.flag_of(f"run-{number}").control.action for number in range(SESSIONS)}
    assert actions == {Action.HINT}
