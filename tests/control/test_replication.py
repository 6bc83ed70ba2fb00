"""What is said of a session in one process counts in the others."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control
from otel_loopguard._control.replication import KIND, ControlMessage, send, wire_name
from otel_loopguard.core import Action
from otel_loopguard.stores import open_store
from tests.control.messages import action_of, begin, call, control_of, flag, new_name, notice
from tests.stores.servers import Server, listen, listening, wait_for

if TYPE_CHECKING:
    from tests.control.conftest import Guards

SOON_S = 30
"""Room for a loaded machine; what the limit of a second needs is measured in a test of its own."""


def paused(guard: LoopGuard, session: str) -> bool:
    return action_of(guard, session) is Action.PAUSE


@pytest.mark.parametrize("key", ["run", "x" * 5000 + "Größe"], ids=["short", "long"])
def test_a_pause_and_its_end_travel_with_who_and_why(guards: Guards, key: str) -> None:
    """A person in one process pauses, one in another resumes; a long key travels as a digest."""
    here, there, run = guards(), guards(), new_name(key)
    begin(run, here, there)
    flag(here, run).set(Action.PAUSE, reason="it costs too much", by="ada")
    wait_for(lambda: paused(there, run), SOON_S)
    seen = control_of(there, run)
    assert (seen.by, seen.reason, seen.decision) == ("ada", "it costs too much", None)
    flag(there, run).clear(by="bob", hint="use the cache")
    wait_for(lambda: not paused(here, run), SOON_S)
    seen = control_of(here, run)
    assert (seen.action, seen.by, seen.hint) == (Action.HINT, "bob", "use the cache")


def test_a_stop_of_the_policy_travels(guards: Guards) -> None:
    """Deny and abort of one guard's policy count in the other, which saw none of the calls."""
    here, there, run = guards(), guards(tuning={"journal": {"read_s": 60}}), new_name()
    begin(run, here, there)
    for _ in range(4):
        here.observe(call(), run)
    assert action_of(here, run) is Action.DENY
    wait_for(lambda: action_of(there, run) is Action.DENY, SOON_S)
    assert control_of(there, run).by == "policy"
    for _ in range(3):
        here.observe(call(), run)
    wait_for(lambda: action_of(there, run) is Action.ABORT, SOON_S)


def test_a_deny_that_is_lowered_is_lowered_elsewhere(guards: Guards) -> None:
    """The other guard goes on as soon as the one that denied does."""
    here, there, run = guards(), guards(tuning={"journal": {"read_s": 60}}), new_name()
    begin(run, here, there)
    for _ in range(4):
        here.observe(call(), run)
    wait_for(lambda: action_of(there, run) is Action.DENY, SOON_S)
    begin(run, here)
    assert action_of(here, run) is Action.ALLOW
    wait_for(lambda: action_of(there, run) is Action.ALLOW, SOON_S)


def test_a_deny_out_of_the_journal_is_not_told_anew(guards: Guards) -> None:
    """Sent twice, the second would count as another guard's, which the first cannot lift."""
    guard, run, other = guards(), new_name(), new_name()
    store = open_store(guard.settings)
    heard, subscription = listen(store, KIND)
    begin(run, guard)
    begin(other, guard)
    alone = LoopGuard()
    for _ in range(4):
        alone.observe(call(), run)
    decision = control_of(alone, run).decision
    assert flag(guard, run).set(Action.DENY, decision=decision, source="journal")
    flag(guard, other).set(Action.PAUSE, by="ada")
    # They come in the order in which they are told.
    wait_for(lambda: _about(heard, other))
    assert not _about(heard, run)
    assert action_of(guard, run) is Action.DENY
    subscription.close()
    store.close()


def _about(heard: list[bytes], session: str) -> list[ControlMessage]:
    """The messages about a session."""
    read = filter(None, map(ControlMessage.decode, heard))
    return [found for found in read if found.session == session]


def test_a_deny_out_of_the_journal_is_lifted_by_the_guard_that_made_it(guards: Guards) -> None:
    """Also where the journal was read before the message came that denied."""
    guard, alone, run = guards(), LoopGuard(), new_name()
    begin(run, guard)
    for _ in range(4):
        alone.observe(call(), run)
    decision = control_of(alone, run).decision
    assert flag(guard, run).set(Action.DENY, decision=decision, source="journal")
    assert guard._replication.hear(notice(session=run, action=Action.ALLOW, who="policy"))
    assert action_of(guard, run) is Action.ALLOW
    assert not guard._replication.hear(
        notice(session=new_name(), action=Action.ALLOW, who="policy")
    )


def test_who_comes_late_sees_what_stands(guards: Guards) -> None:
    """A process that starts after the abort learns of it, without a message of the first one."""
    here, run = guards(), new_name()
    begin(run, here)
    flag(here, run).set(Action.ABORT, reason="enough", by="ada")
    here.shutdown()
    late = guards()
    begin(run, late)
    wait_for(lambda: action_of(late, run) is Action.ABORT, SOON_S)
    assert control_of(late, run).by == "ada"


def test_a_session_that_was_forgotten_is_looked_up_again(guards: Guards) -> None:
    """An abort outlives its place in the table of sessions, by whomever it was."""
    here, there, run = guards(max_sessions=1), guards(max_sessions=1), new_name()
    begin(run, here, there)
    flag(here, run).set(Action.ABORT, reason="why", by="ada")
    wait_for(lambda: action_of(there, run) is Action.ABORT, SOON_S)
    for guard in (here, there):
        begin(new_name(), guard)
        assert guard.flag_of(run) is None
        begin(run, guard)
        wait_for(lambda guard=guard: action_of(guard, run) is Action.ABORT, SOON_S)


def test_what_stands_goes_with_its_end(guards: Guards) -> None:
    """A pause for a second is over for those who come later, and ends by itself elsewhere."""
    here, there, run = guards(), guards(), new_name()
    begin(run, here, there)
    until = time.time_ns() + 800_000_000
    flag(here, run).set(Action.PAUSE, reason="a moment", by="ada", until=until)
    wait_for(lambda: paused(there, run), SOON_S)
    wait_for(lambda: not paused(there, run), SOON_S)
    store = open_store(here.settings)
    wait_for(lambda: store.get(KIND, run) is None, SOON_S)
    store.close()


def test_nobody_hears_an_echo(guards: Guards) -> None:
    """A change is published once: neither sender nor receiver sends it again."""
    here, there, run = guards(), guards(), new_name()
    store = open_store(here.settings)
    heard, subscription = listen(store, KIND)
    begin(run, here, there)
    flag(here, run).set(Action.ABORT, reason="why", by="ada")
    wait_for(lambda: action_of(there, run) is Action.ABORT, SOON_S)
    flag(there, run).clear(by="bob")
    wait_for(lambda: action_of(here, run) is Action.ALLOW, SOON_S)
    time.sleep(0.3)
    assert [(found.action, found.who) for found in _about(heard, run)] == [
        ("abort", "ada"),
        ("allow", "bob"),
    ]
    subscription.close()
    store.close()


def test_a_change_that_two_threads_see_is_sent_once(guards: Guards) -> None:
    """A notice is heard while a person speaks: its thread finds what the person said."""
    guard, run = guards(), new_name()
    begin(run, guard)
    flag(guard, run).set(Action.PAUSE, reason="why", by="ada")
    sharing = guard._replication
    said = sharing._last[run]
    sharing.changed(flag(guard, run))
    assert sharing._last[run] is said


def test_an_older_word_is_not_heard(guards: Guards) -> None:
    """A notice that arrives after a newer one changes nothing."""
    guard, run = guards(), new_name()
    begin(run, guard)
    sharing = guard._replication
    now = time.time_ns()
    assert sharing.hear(notice(session=run, action=Action.ALLOW, at=now, who="bob"))
    assert not sharing.hear(notice(session=run, action=Action.ABORT, at=now - 1))
    assert action_of(guard, run) is Action.ALLOW


def test_a_clock_that_is_ahead_does_no_harm(guards: Guards) -> None:
    """A stop from the future counts from its arrival, so that it can be lifted."""
    guard, run = guards(), new_name()
    begin(run, guard)
    assert guard._replication.hear(notice(session=run, at=2**62))
    flag(guard, run).clear(by="bob")
    assert not guard._replication.hear(notice(session=run, at=time.time_ns() - 10**9))
    assert action_of(guard, run) is Action.ALLOW


def test_the_next_turn_is_not_stopped_by_what_stopped_the_last(guards: Guards) -> None:
    """A conversation that the policy aborted goes on, in a new process, with the user's word."""
    here, there = guards(), guards()
    conversation = new_name("conversation")
    begin(conversation, here)
    for _ in range(7):
        here.observe(call(), conversation)
    assert action_of(here, conversation) is Action.ABORT
    store = open_store(here.settings)
    wait_for(lambda: store.get(KIND, conversation), SOON_S)
    store.close()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(there))
    attributes = {
        "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": conversation,
    }  # fmt: skip
    with provider.get_tracer("t").start_as_current_span("invoke_agent a", attributes=attributes):
        assert not there._replication.hear(_standing(here, conversation), late=True)
        assert action_of(there, conversation) is Action.ALLOW


def _standing(guard: LoopGuard, session: str) -> ControlMessage:
    store = open_store(guard.settings)
    raw = store.get(KIND, session)
    store.close()
    found = None if raw is None else ControlMessage.decode(raw)
    assert found is not None
    return found


def test_a_trace_that_gets_its_name_late_is_shared_by_it(guards: Guards) -> None:
    """A change of a trace is sent again when the trace turns out to be a conversation."""
    here, there, conversation = guards(), guards(), new_name("conversation")
    begin(conversation, there)
    step = call()
    step.trace_id = 77
    here.bind(77, f"{77:032x}")
    here._sessions.find(f"{77:032x}").named = False  # type: ignore[union-attr]
    flag(here, f"{77:032x}").set(Action.PAUSE, reason="why", by="ada")
    here.bind(77, conversation)
    wait_for(lambda: paused(there, conversation), SOON_S)


def test_the_command_line_can_say_it(guards: Guards, kept: Server) -> None:
    """Whoever reaches the store can send a notice, with nothing but its address."""
    guard, run = guards(), new_name()
    begin(run, guard)
    store = open_store(Settings(store_url=kept.url))
    joined = threading.Event()
    store.subscribe(KIND, lambda raw: None, joined.set).close()
    sent = notice(session=wire_name(run), who="eve from the shell", origin="")
    send(store, sent, ttl_s=60)
    store.close()
    wait_for(lambda: paused(guard, run), SOON_S)
    assert control_of(guard, run).by == "eve from the shell"


def test_who_waits_at_a_gate_is_woken_from_elsewhere(guards: Guards) -> None:
    """An agent in one process goes on when a person in another resumes it."""
    here, there, run = guards(), guards(), new_name()
    begin(run, here, there)
    flag(there, run).set(Action.PAUSE, reason="why", by="ada")
    wait_for(lambda: paused(here, run), SOON_S)
    passed = threading.Event()

    def agent() -> None:
        # Both guards live in this process, so the gate looks at the flag of one.
        assert flag(here, run).wait(SOON_S)
        passed.set()

    waiting = threading.Thread(target=agent, daemon=True)
    waiting.start()
    flag(there, run).clear(by="bob")
    assert passed.wait(SOON_S)
    waiting.join()


@pytest.mark.parametrize("who", ["ada", "policy"])
def test_it_is_on_the_trace_and_in_the_log(
    guards: Guards, caplog: pytest.LogCaptureFixture, who: str
) -> None:
    """The open agent span and one line say who stopped it, and why."""
    guard, run = guards(), new_name()
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("t")
    agent = {"gen_ai.operation.name": "invoke_agent"}
    with (
        caplog.at_level(logging.INFO, "otel_loopguard"),
        otel_loopguard.session(run),
        tracer.start_as_current_span("invoke_agent a", attributes=agent),
    ):
        told = notice(session=run, action=Action.ABORT, reason="seen over there", who=who)
        assert guard._replication.hear(told)
        with tracer.start_as_current_span("invoke_agent b", attributes=agent):
            pass
    below, above = exporter.get_finished_spans()
    for span in (above, below):
        attributes = dict(span.attributes or {})
        assert attributes["loopguard.decision.action"] == "abort"
        assert attributes["loopguard.control.by"] == who
    assert any(
        who in line and "seen over there" in line and run in line for line in caplog.messages
    )


def test_garbage_on_the_topic_is_counted(guards: Guards) -> None:
    """Large and odd messages only count, and those that follow still arrive."""
    guard, run = guards(), new_name()
    begin(run, guard)
    store = open_store(guard.settings)
    wait_for(lambda: guard._replication._subscriptions, SOON_S)

    def counted() -> bool:
        store.publish(KIND, b"\xff" * 100_000)
        return guard._replication.unread >= 1

    wait_for(counted, SOON_S)
    send(store, notice(session=run), ttl_s=60)
    wait_for(lambda: paused(guard, run), SOON_S)
    store.close()


def test_garbage_in_the_store_is_written_over(guards: Guards) -> None:
    """What is no notice stands in nobody's way."""
    guard, run = guards(), new_name()
    store = open_store(guard.settings)
    store.put(KIND, run, b"{}")
    begin(run, guard)
    wait_for(lambda: guard._replication.unread, SOON_S)
    flag(guard, run).set(Action.PAUSE, reason="why", by="ada")
    wait_for(lambda: ControlMessage.decode(store.get(KIND, run) or b""), SOON_S)
    store.close()


def test_a_redis_that_was_away_is_told_and_heard_afterwards(
    start: Callable[..., Server], guards: Guards, caplog: pytest.LogCaptureFixture
) -> None:
    """A pause during the outage counts here at once, and there when Redis is back."""
    own = start()
    here, there, run = guards(own), guards(own), new_name()
    begin(run, here, there)
    flag(here, run).set(Action.PAUSE, reason="before", by="ada")
    wait_for(lambda: paused(there, run), SOON_S)
    flag(there, run).clear(by="ada")
    wait_for(lambda: not paused(here, run), SOON_S)
    own.kill()
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        flag(here, run).set(Action.ABORT, reason="meanwhile", by="bob")
        assert action_of(here, run) is Action.ABORT
        wait_for(lambda: here._writer.state == "down", SOON_S)  # type: ignore[union-attr]
        time.sleep(0.5)
    assert sum("are not heard" in line for line in caplog.messages) <= 2
    own.start()
    wait_for(lambda: action_of(there, run) is Action.ABORT)
    assert control_of(there, run).by == "bob"


def test_two_guards_of_one_process_agree(guards: Guards) -> None:
    """`control.pause` sets both flags, and neither is set twice."""
    here, there, run = guards(), guards(), new_name()
    begin(run, here, there)
    assert control.pause(run, by="ada", reason="why")
    seen = control_of(here, run), control_of(there, run)
    time.sleep(0.3)
    assert (control_of(here, run), control_of(there, run)) == seen
    assert control_of(here, run) is seen[0]
    control.resume(run, by="ada")
    time.sleep(0.3)
    assert not paused(here, run)
    assert not paused(there, run)


def test_nothing_is_shared_where_that_is_switched_off(guards: Guards) -> None:
    """`share_control` off: nothing is sent or received, and no thread listens."""
    quiet, loud, run = guards(share_control=False), guards(), new_name()
    begin(run, quiet, loud)
    flag(quiet, run).set(Action.PAUSE, reason="why", by="ada")
    flag(loud, run).set(Action.ABORT, reason="why", by="bob")
    store = open_store(loud.settings)
    wait_for(lambda: store.get(KIND, run), SOON_S)
    store.close()
    time.sleep(0.2)
    assert paused(quiet, run)
    assert action_of(loud, run) is Action.ABORT
    assert not quiet._replication._subscriptions


def test_without_a_store_nothing_is_kept_or_started() -> None:
    """A guard in memory has no thread for this; log events have their own."""
    guard, run = LoopGuard(Settings(telemetry_events=False)), new_name()
    before = set(threading.enumerate())
    begin(run, guard)
    flag(guard, run).set(Action.PAUSE, reason="why", by="ada")
    assert set(threading.enumerate()) <= before  # those of other tests may end


def test_its_thread_ends_with_the_guard(kept: Server) -> None:
    """Nobody holds a guard that was forgotten without a word."""
    before = listening()
    guard, run = LoopGuard(Settings(store_url=kept.url)), new_name()
    begin(run, guard)
    wait_for(lambda: set(listening()) - set(before), SOON_S)
    mine, gone = set(listening()) - set(before), weakref.ref(guard)
    del guard
    wait_for(lambda: gc.collect() >= 0 and gone() is None, SOON_S)
    wait_for(lambda: not any(thread.is_alive() for thread in mine), SOON_S)


def test_tables_are_bounded(guards: Guards) -> None:
    """However many sessions others tell of."""
    guard = guards(max_sessions=20)
    for number in range(200):
        run = f"{new_name()}-{number}"
        begin(run, guard)
        guard._replication.hear(notice(session=run))
    sharing = guard._replication
    assert max(len(sharing._last), len(sharing._sent), len(sharing._known)) <= 20
    unknown = new_name()
    assert not sharing.hear(notice(session=unknown))
    assert unknown not in sharing._last


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_hears_and_is_heard(guards: Guards) -> None:
    """Whatever its parent's threads held; and the parent hears on."""
    guard, run, other = guards(), new_name(), new_name()
    begin(run, guard)
    wait_for(listening, SOON_S)
    with guard._replication._lock:
        child = os.fork()
        if child == 0:
            os._exit(0 if _child(guard, run, other) else 1)
    begin(other, guard)
    wait_for(lambda: paused(guard, run), 2 * SOON_S)
    flag(guard, other).set(Action.ABORT, reason="why", by="bob")
    assert os.waitpid(child, 0)[1] == 0


def _child(guard: LoopGuard, run: str, other: str) -> bool:
    """Pauses what the parent runs, and waits for the abort of what it runs too."""
    begin(run, guard)
    begin(other, guard)
    flag(guard, run).set(Action.PAUSE, reason="why", by="ada")
    return _came_true(lambda: action_of(guard, other) is Action.ABORT)


def _came_true(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 2 * SOON_S
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


@pytest.mark.rare
def test_a_stop_is_heard_within_a_second(guards: Guards) -> None:
    """The middle one of five, so that one pause of the machine says nothing."""
    here, there = guards(), guards()
    took: list[float] = []
    for _ in range(5):
        run = new_name()
        begin(run, here, there)
        began = time.monotonic()
        flag(here, run).set(Action.ABORT, reason="why", by="ada")
        wait_for(lambda run=run: action_of(there, run) is Action.ABORT, SOON_S)
        took.append(time.monotonic() - began)
    assert sorted(took)[2] < 1
