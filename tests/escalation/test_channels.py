"""Callbacks and the store: each on its own, and none in the way."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from typing import Any

from otel_loopguard import Action, control
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.stores import open_store
from tests.escalation.agents import asked, stuck, until, watched
from tests.stores.servers import Server


def test_one_throws_one_hangs_one_hears() -> None:
    """The fault is counted, nobody waits, and the third is told of everything."""
    raise_faults(False)
    hanging, heard = threading.Event(), []
    given_up: list[object] = []
    callbacks = (
        lambda found: {}[found.id],
        lambda found: hanging.wait(120) or given_up.append(found),
        lambda found: heard.append(found.session),
    )
    with ExitStack() as registered:
        for callback in callbacks:
            registered.callback(control.on_escalation(callback))
        guard = watched()
        for name in "abc":
            stuck(guard, name)
        assert not given_up
        until(lambda: heard == ["a", "b", "c"])
        until(lambda: guard.faults.counts["on_escalation:KeyError"] == 3)
        assert guard.flag_of("a").control.action is Action.PAUSE
        hanging.set()


def test_one_that_is_forgotten_hears_nothing() -> None:
    """The function that `on_escalation` gives ends it."""
    heard: list[object] = []
    control.on_escalation(heard.append)()
    stuck(watched(), "a")
    assert heard == []


def test_the_store_has_it_and_how_it_ended(tmp_path: Any) -> None:
    """As JSON, for other processes; and it goes by itself after a day."""
    server = Server(tmp_path / "redis").start()
    try:
        guard = watched(store_url=server.url, tuning={"stores": {"delay_s": 0}})
        store = open_store(guard.settings)
        stuck(guard, "a")
        found = asked(guard)[0].id

        def kept() -> dict[str, Any]:
            value = store.get("escalation", found)
            return {} if value is None else json.loads(value)

        until(lambda: kept().get("id") == found)
        assert kept()["ended"] is None
        control.answer(found, "skip_task", "not needed", by="anna")
        until(lambda: kept()["ended"])
        ended = kept()["ended"]
        assert (ended["answer"], ended["by"], ended["via"]) == ("skip_task", "anna", "api")
        (key,) = server.client.keys("loopguard:escalation:*")
        assert 80_000 < server.client.ttl(key) <= 86_400
        assert b"secret" not in server.client.get(key)
        guard.shutdown()
    finally:
        server.kill()


def test_a_store_that_is_down_holds_nobody() -> None:
    """The escalation is there and can be answered."""
    guard = watched(store_url="redis://127.0.0.1:1/0", tuning={"stores": {"flush_s": 0.1}})
    stuck(guard, "a")
    control.answer(asked(guard)[0].id, "continue")
    assert guard.flag_of("a").control.action is Action.ALLOW
    guard.shutdown()
