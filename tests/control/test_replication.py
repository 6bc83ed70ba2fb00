"""What is said of a session in one process counts in the others."""

import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from otel_loopguard import Action, LoopGuard, LoopGuardSpanProcessor, Settings, control, session
from otel_loopguard._control.flag import Control
from otel_loopguard._control.replication import (
    KIND,
    ControlMessage,
    send,
    takes_precedence,
    wire_name,
)
from otel_loopguard.stores.redis import RedisStore
from tests.agents import Ended, agent, provider_with
from tests.control.conftest import Guards
from tests.control.messages import action_of, begin, call, control_of, flag, new_name, notice
from tests.stores.servers import Server, listen, listening, wait_for

ALLOW, DENY, PAUSE, ABORT = Action.ALLOW, Action.DENY, Action.PAUSE, Action.ABORT
ALONE = {"tuning": {"journal": {"read_s": 60}}}
"""Settings of a guard that hears of decisions by messages, long before it reads the journal."""


def say(guard: LoopGuard, run: str, action: Action = PAUSE, by: str = "ada", **more: Any) -> None:
    """A person stops a session."""
    flag(guard, run).set(action, reason="why", by=by, **more)


def heard(guard: LoopGuard, run: str, action: Action, by: str | None = None) -> Control:
    """Waits until a guard has an action for a session, and by whom; gives its control."""
    wait_for(lambda: action_of(guard, run) is action)
    now = control_of(guard, run)
    assert by is None or now.by == by
    return now


def loop(guard: LoopGuard, run: str, times: int) -> None:
    for _ in range(times):
        guard.observe(call(), run)


@pytest.fixture
def two(guards: Guards) -> tuple[LoopGuard, LoopGuard, str]:
    """Two guards, as of two processes, and a session that both know."""
    here, there, run = guards(), guards(**ALONE), new_name()
    begin(run, here, there)
    # Read later, the journal would bring back a deny that was lowered meanwhile.
    assert there._writer is not None
    assert there._writer.flush(60)
    return here, there, run


Two = tuple[LoopGuard, LoopGuard, str]


@pytest.fixture
def one(guards: Guards) -> tuple[LoopGuard, str]:
    """A guard, and a session that it knows."""
    guard, run = guards(), new_name()
    begin(run, guard)
    return guard, run


One = tuple[LoopGuard, str]


@pytest.mark.parametrize("key", ["run", "x" * 5000 + "Größe"], ids=["short", "long"])
def test_a_pause_and_its_end_travel_with_who_and_why(guards: Guards, key: str) -> None:
    """A person in one process pauses, one in another resumes; a long key travels as a digest."""
    here, there, run = guards(), guards(), new_name(key)
    begin(run, here, there)
    say(here, run)
    seen = heard(there, run, PAUSE, "ada")
    assert (seen.reason, seen.decision) == ("why", None)
    passed = threading.Event()

    def agent() -> None:
        # Both guards live in this process, so the gate looks at the flag of one.
        assert flag(here, run).wait(60)
        passed.set()

    threading.Thread(target=agent, daemon=True).start()
    flag(there, run).clear(by="bob", hint="use the cache")
    assert heard(here, run, Action.HINT, "bob").hint == "use the cache"
    assert passed.wait(60), "who waits at a gate is woken from elsewhere"


def test_a_stop_of_the_policy_travels(two: Two) -> None:
    """Deny, its end, and abort of one guard count in the other, which saw none of the calls."""
    here, there, run = two
    loop(here, run, 4)
    assert action_of(here, run) is DENY
    heard(there, run, DENY, "policy")
    begin(run, here)
    assert action_of(here, run) is ALLOW
    heard(there, run, ALLOW)
    loop(here, run, 6)
    assert action_of(here, run) is ABORT
    heard(there, run, ABORT, "policy")


def _about(messages: list[bytes], run: str) -> list[tuple[str, str]]:
    """Action and author of the messages about a session."""
    read = filter(None, map(ControlMessage.decode, messages))
    return [(found.action.value, found.who) for found in read if found.session == run]


def test_a_deny_out_of_the_journal_is_not_told_anew(one: One, store: RedisStore) -> None:
    """Sent twice, nobody could lift the second; and who made it lifts it before its message."""
    guard, run = one
    messages, subscription = listen(store, KIND)
    alone, other = LoopGuard(), new_name()
    begin(other, guard)
    loop(alone, run, 4)
    decision = control_of(alone, run).decision
    assert flag(guard, run).set(DENY, decision=decision, source="journal")
    say(guard, other)
    # They come in the order in which they are told.
    wait_for(lambda: _about(messages, other))
    assert not _about(messages, run)
    assert action_of(guard, run) is DENY
    assert guard._replication.hear(notice(session=run, action=ALLOW, who="policy"))
    assert action_of(guard, run) is ALLOW
    unknown = notice(session=new_name(), action=ALLOW, who="policy")
    assert not guard._replication.hear(unknown)
    subscription.close()


def test_a_session_that_was_forgotten_is_looked_up_again(guards: Guards) -> None:
    """An abort outlives its place in the table of sessions, by whomever it was.

    So does one in a process that starts after it, without a message of the first.
    """
    here, there, run = guards(max_sessions=1), guards(max_sessions=1), new_name()
    begin(run, here, there)
    say(here, run, ABORT)
    heard(there, run, ABORT)
    for guard in (here, there):
        begin(new_name(), guard)
        assert guard.flag_of(run) is None
        begin(run, guard)
        heard(guard, run, ABORT)


def test_what_stands_goes_with_its_end(two: Two, store: RedisStore) -> None:
    """A pause for a second is over for those who come later, and ends by itself elsewhere."""
    here, there, run = two
    say(here, run, until=time.time_ns() + 800_000_000)
    heard(there, run, PAUSE)
    heard(there, run, ALLOW)
    wait_for(lambda: store.get(KIND, run) is None)


def test_nobody_hears_an_echo(two: Two, store: RedisStore) -> None:
    """A change is published once: neither sender nor receiver sends it again."""
    here, there, run = two
    messages, subscription = listen(store, KIND)
    say(here, run, ABORT)
    # As a thread does that heard a notice while a person spoke, and finds what the person said.
    here._replication.changed(flag(here, run))
    heard(there, run, ABORT)
    flag(there, run).clear(by="bob")
    heard(here, run, ALLOW)
    time.sleep(0.3)
    assert _about(messages, run) == [("abort", "ada"), ("allow", "bob")]
    subscription.close()


def test_an_older_word_is_not_heard(one: One) -> None:
    """A notice that arrives after a newer one; a stop from the future counts as of its arrival."""
    guard, run = one
    hear, now = guard._replication.hear, time.time_ns()
    assert hear(notice(session=run, action=ALLOW, at=now, who="bob"))
    assert not hear(notice(session=run, action=ABORT, at=now - 1))
    assert action_of(guard, run) is ALLOW
    assert hear(notice(session=run, at=2**62))
    flag(guard, run).clear(by="bob")
    assert not hear(notice(session=run, at=time.time_ns() - 10**9))
    assert action_of(guard, run) is ALLOW


@pytest.mark.parametrize("lifted", ["here", "there"])
def test_a_clock_that_was_set_back_lifts_a_stop_all_the_same(
    two: Two, guards: Guards, lifted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person stops a session while a machine's clock is ahead, and resumes it after."""
    here, there, run = two
    true = time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: true() + 3600 * 10**9)
        say(here, run)
        heard(there, run, PAUSE)
    flag(here if lifted == "here" else there, run).clear(by="bob")
    heard(here, run, ALLOW)
    heard(there, run, ALLOW)
    late = guards()
    begin(run, late)
    assert late._writer is not None
    assert late._writer.flush(60)
    assert action_of(late, run) is ALLOW


def test_who_answers_a_clock_that_is_ahead_is_heard_there(one: One, store: RedisStore) -> None:
    """What a person says to what was heard is newer than that, by whichever clock."""
    here, run = one
    told = notice(session=run, action=PAUSE, who="bob", at=time.time_ns() + 600 * 10**9)
    assert here._replication.hear(told)
    flag(here, run).clear(by="ada")
    wait_for(lambda: store.get(KIND, run))
    sent = ControlMessage.decode(store.get(KIND, run) or b"")
    assert sent is not None
    assert not takes_precedence(told, sent)


def test_the_next_turn_is_not_stopped_by_what_stopped_the_last(
    one: One, guards: Guards, store: RedisStore
) -> None:
    """A conversation that the policy aborted goes on, in a new process, with the user's word."""
    (here, run), there = one, guards()
    loop(here, run, 7)
    assert action_of(here, run) is ABORT
    wait_for(lambda: store.get(KIND, run))
    standing = ControlMessage.decode(store.get(KIND, run) or b"")
    assert standing is not None
    provider = provider_with(LoopGuardSpanProcessor(there))
    with agent(provider.get_tracer("t"), gen_ai__conversation__id=run):
        assert not there._replication.hear(standing, late=True)
        assert action_of(there, run) is ALLOW


def test_a_trace_that_gets_its_name_late_is_shared_by_it(guards: Guards) -> None:
    """A change of a trace is sent again when the trace turns out to be a conversation."""
    here, there, conversation = guards(), guards(), new_name("conversation")
    begin(conversation, there)
    here.bind(77, trace := f"{77:032x}")
    here._sessions.find(trace).named = False  # type: ignore[union-attr]
    say(here, trace)
    here.bind(77, conversation)
    heard(there, conversation, PAUSE)


@pytest.mark.parametrize("who", ["ada", "policy"])
def test_it_is_on_the_trace_and_in_the_log(
    guards: Guards, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    """The open agent span and one line say who stopped it, and why."""
    guard, run, ended = guards(), new_name(), Ended()
    tracer = provider_with(LoopGuardSpanProcessor(guard), ended).get_tracer("t")
    with caplog.at_level(logging.INFO, "otel_loopguard"), session(run), agent(tracer):
        told = notice(session=run, action=ABORT, reason="seen over there", who=who)
        assert guard._replication.hear(told)
        with agent(tracer):
            pass
    assert len(ended.spans) == 2
    for span in ended.spans:
        attributes = dict(span.attributes or {})
        assert attributes["loopguard.decision.action"] == "abort"
        assert attributes["loopguard.control.by"] == who
    assert any(
        who in line and "seen over there" in line and run in line for line in caplog.messages
    )


def test_garbage_is_counted(guards: Guards, store: RedisStore) -> None:
    """In the store it is written over; on the topic those messages that follow still arrive."""
    guard, run, other = guards(), new_name(), new_name()
    store.put(KIND, other, b"{}")
    begin(other, guard)
    wait_for(lambda: guard._replication.unread)
    say(guard, other)
    wait_for(lambda: ControlMessage.decode(store.get(KIND, other) or b""))
    begin(run, guard)
    wait_for(lambda: guard._replication._subscriptions)
    before = guard._replication.unread

    def counted() -> bool:
        store.publish(KIND, b"\xff" * 100_000)
        return guard._replication.unread > before

    wait_for(counted)
    # As the command line says it, which has nothing but the address of the store.
    send(store, notice(session=wire_name(run), who="eve from the shell", origin=""), ttl_s=60)
    heard(guard, run, PAUSE, "eve from the shell")


def test_a_redis_that_was_away_is_told_and_heard_afterwards(
    start: Callable[..., Server], guards: Guards, caplog: pytest.LogCaptureFixture
) -> None:
    """What is said during the outage counts here at once, and there when Redis is back."""
    own = start()
    here, there, run = guards(own), guards(own), new_name()
    begin(run, here, there)
    say(here, run)
    heard(there, run, PAUSE)
    flag(there, run).clear(by="ada")
    heard(here, run, ALLOW)
    own.kill()
    say(here, run, PAUSE, "cy")
    say(here, run, ABORT, "bob")
    assert action_of(here, run) is ABORT
    wait_for(lambda: here._writer.state == "down")  # type: ignore[union-attr]
    time.sleep(0.5)
    assert sum("are not heard" in line for line in caplog.messages) <= 2
    own.start()
    heard(there, run, ABORT, "bob")


def test_two_guards_of_one_process_agree(two: Two) -> None:
    """`control.pause` sets both flags, and neither is set twice."""
    *both, run = two
    assert control.pause(run, by="ada", reason="why")
    seen = [control_of(guard, run) for guard in both]
    assert [one.action for one in seen] == [PAUSE, PAUSE]
    time.sleep(0.3)
    assert all(control_of(guard, run) is one for guard, one in zip(both, seen, strict=True))
    control.resume(run, by="ada")
    time.sleep(0.3)
    assert [action_of(guard, run) for guard in both] == [ALLOW, ALLOW]


def test_nothing_is_shared_where_that_is_switched_off(
    one: One, guards: Guards, store: RedisStore
) -> None:
    """`share_control` off: nothing is sent or received, and no thread listens."""
    (loud, run), quiet = one, guards(share_control=False)
    begin(run, quiet)
    say(quiet, run)
    say(loud, run, ABORT)
    wait_for(lambda: store.get(KIND, run))
    time.sleep(0.2)
    assert action_of(quiet, run) is PAUSE
    assert action_of(loud, run) is ABORT
    assert not quiet._replication._subscriptions


def test_its_thread_ends_with_the_guard(kept: Server) -> None:
    """Nobody holds a guard that was forgotten without a word."""
    before = listening()
    guard = LoopGuard(Settings(store_url=kept.url))
    begin(new_name(), guard)
    wait_for(lambda: set(listening()) - set(before))
    mine, gone = set(listening()) - set(before), weakref.ref(guard)
    del guard
    wait_for(lambda: gc.collect() >= 0 and gone() is None)
    wait_for(lambda: not any(thread.is_alive() for thread in mine))


def test_tables_are_bounded(guards: Guards) -> None:
    """However many sessions others tell of."""
    guard = guards(max_sessions=20)
    sharing = guard._replication
    for _ in range(200):
        begin(run := new_name(), guard)
        sharing.hear(notice(session=run))
    assert max(len(sharing._last), len(sharing._sent), len(sharing._known)) <= 20
    unknown = new_name()
    assert not sharing.hear(notice(session=unknown))
    assert unknown not in sharing._last


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_hears_and_is_heard(one: One) -> None:
    """Whatever its parent's threads held; and the parent hears on."""
    (guard, run), other = one, new_name()
    wait_for(listening)
    with guard._replication._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if _child(guard, run, other) else 1)
    begin(other, guard)
    heard(guard, run, PAUSE)
    say(guard, other, ABORT)
    assert os.waitpid(child, 0)[1] == 0


def _child(guard: LoopGuard, run: str, other: str) -> bool:
    """Pauses what the parent runs, and waits for the abort of what it runs too."""
    begin(run, guard)
    begin(other, guard)
    say(guard, run)
    try:
        heard(guard, other, ABORT)
    except AssertionError:
        return False
    return True


@pytest.mark.rare
def test_a_stop_is_heard_within_a_second(guards: Guards) -> None:
    """The middle one of five, so that one pause of the machine says nothing."""
    here, there = guards(), guards()
    took: list[float] = []
    for _ in range(5):
        begin(run := new_name(), here, there)
        began = time.monotonic()
        say(here, run, ABORT)
        heard(there, run, ABORT)
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 1
