"""Callbacks, the store and the answers that channels give: each on its own, and none in the way."""

import json
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import Action, control
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.errors import EscalationError
from otel_loopguard.escalation.cases import Answer, Reply, reply_in
from otel_loopguard.stores import open_store
from tests.escalation.agents import asked, stuck, until, watched
from tests.stores.servers import Server
from tests.tables import rows


def test_one_throws_one_hangs_one_hears() -> None:
    """The fault is counted, nobody waits, the third is told of all; one that was ended, nothing."""
    raise_faults(False)
    hanging, heard = threading.Event(), []
    forgotten: list[object] = []
    control.on_escalation(forgotten.append)()
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
    assert forgotten == []


def test_the_store_has_it_and_how_it_ended(own_redis: Server) -> None:
    """As JSON, for other processes; and it goes by itself after a day."""
    guard = watched(store_url=own_redis.url, tuning={"stores": {"delay_s": 0}})
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
    (key,) = own_redis.client.keys("loopguard:escalation:*")
    assert 80_000 < own_redis.client.ttl(key) <= 86_400
    assert b"secret" not in own_redis.client.get(key)
    guard.shutdown()


def test_a_store_that_is_down_holds_nobody() -> None:
    """The escalation is there and can be answered."""
    guard = watched(store_url="redis://127.0.0.1:1/0", tuning={"stores": {"flush_s": 0.1}})
    stuck(guard, "a")
    control.answer(asked(guard)[0].id, "continue")
    assert guard.flag_of("a").control.action is Action.ALLOW
    guard.shutdown()


LONG = {"answer": "modify-plan", "guidance": "g" * 5000, "by": "n" * 500}


def test_long_texts_of_a_channel_are_cut() -> None:
    assert reply_in(LONG, "x") == Reply(Answer.MODIFY_PLAN, "n" * 100, "g" * 2000, "x")


@pytest.mark.parametrize(("said", "read"), rows(__file__, "answers"))
def test_what_a_channel_gives_back(said: str, read: str) -> None:
    """Nothing, a name, a map; case, dashes and space around do not matter."""
    reply, (answer, *by) = reply_in(json.loads(said), "callback"), read.split(" by ")
    assert reply == (Reply(Answer(answer), *by, via="callback") if by else None)
    # A run that ends is told nothing.
    assert reply is None or reply.answer is not Answer.ABORT or reply.hint is None


@pytest.mark.parametrize(("said", "why"), rows(__file__, "refused"))
def test_what_is_no_answer(said: str, why: str) -> None:
    """The error has what was given, and what there is."""
    with pytest.raises(EscalationError, match=why):
        reply_in(json.loads(said), "callback")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.sampled_from(["answer", "guidance", "by"]), inner),
    )
)  # fmt: skip
def test_whatever_comes_is_an_answer_or_refused(said: object) -> None:
    """Nothing but `EscalationError` is raised."""
    try:
        reply = reply_in(said, "webhook")
    except EscalationError:
        return
    assert reply is None or isinstance(reply.answer, Answer)
