"""What was flushed is stored, and what was decided is on its way at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.stores.redis import RedisStore
from tests.agents import provider_with
from tests.control.messages import call, flag, new_name
from tests.escalation.hooks import Hook, served
from tests.merged import merged
from tests.stores.servers import Server, free_port, wait_for

LAZY = {"stores": {"delay_s": 60}, "journal": {"flush_s": 600, "flush_steps": 10_000}}
"""So long that what is stored was not waiting for its time."""
Make = Callable[..., LoopGuard]


@pytest.fixture
def made() -> Iterator[Make]:
    """Makes guards, and ends them."""
    with ExitStack() as ends:

        def make(**settings: Any) -> LoopGuard:
            guard = LoopGuard(Settings(**merged({"tuning": LAZY}, settings)))
            ends.callback(guard.shutdown)
            return guard

        yield make


def test_a_flush_stores_everything(kept: Server, store: RedisStore, made: Make) -> None:
    """A process that is killed after it loses nothing of what was done before."""
    guard, run, tool = made(store_url=kept.url), new_name(), new_name("tool")
    guard.observe(call(tool), run)
    assert provider_with(LoopGuardSpanProcessor(guard)).force_flush()
    assert store.journal(run)
    assert store.records(tool)


def test_a_flush_that_fails_says_so(made: Make) -> None:
    """Within its deadline, which is never longer than that of a shutdown."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    guard = made(store_url=url, tuning={"stores": {"flush_s": 0.1}})
    guard.observe(call(), new_name())
    assert not provider_with(LoopGuardSpanProcessor(guard)).force_flush()


def test_a_flush_waits_for_the_webhook(made: Make) -> None:
    """It has the escalation, or the flush has failed."""
    come, answered = threading.Event(), threading.Event()

    def answer(_number: int) -> tuple[int, bytes]:
        come.set()
        answered.wait(60)
        return 200, b"ok"

    with served(Hook(answer)) as hook:
        guard = made(webhook_url=hook.url, max_action="pause")
        provider, run = provider_with(LoopGuardSpanProcessor(guard)), new_name()
        for _ in range(4):
            guard.observe(call(), run)
        assert come.wait(60)
        assert not provider.force_flush(1)
        answered.set()
        assert provider.force_flush()
    assert len(hook.posts) == 1


def test_a_decision_does_not_wait_for_others(kept: Server, store: RedisStore, made: Make) -> None:
    """Without a flush: nothing but the way to the store is between it and a kill."""
    guard, run = made(store_url=kept.url), new_name()
    for _ in range(4):
        guard.observe(call(), run)
    assert flag(guard, run).raised
    wait_for(lambda: len(store.journal(run)) >= 4)
