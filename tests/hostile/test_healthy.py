"""Runs that get somewhere, and look like loops or hang: none may be denied or aborted."""

import time
from collections.abc import Callable

import pytest
from opentelemetry import trace

from otel_loopguard import control
from otel_loopguard.core import Action, Step
from tests.agents import agent, tool_call
from tests.calls import EPOCH, SECOND, call
from tests.control.messages import flag
from tests.hostile.rig import LOOP, MARK, TOOL, Rig
from tests.stores.servers import wait_for

NOTHING = "No results found."
STOPS = {action.value for action in Action if action.stops}


def test_workers_that_each_read_the_same_file(rig: Rig) -> None:
    """Eight sub-agents in one trace, each with its own task, each starts with the same file."""
    with agent(rig.tracer):
        for number in range(8):
            own = {MARK: "invoke_agent", "gen_ai.agent.name": f"worker{number}"}
            with rig.tracer.start_as_current_span("invoke_agent", attributes=own):
                tool_call(rig.tracer, "read_file", '{"path": "README"}', "what to do here")
                tool_call(rig.tracer, "search", f'{{"q": "{number}"}}', f"fact {number}")
            time.sleep(0.002)
    assert not STOPS.intersection(rig.actions)


def turn(rig: Rig, session: str = "chat", calls: int = 1, result: str = "balance: 100") -> None:
    """One question of a user in a conversation: a trace of its own, its id on every span."""
    own = {"gen_ai.conversation.id": session}
    with agent(rig.tracer, gen_ai__conversation__id=session):
        for _ in range(calls):
            tool_call(rig.tracer, result=result, more=own)


def test_a_pause_by_hand_stays(rigs: Callable[..., Rig]) -> None:
    """A hint or a deny does not open a gate that a person closed."""
    rig = rigs({"max_action": "deny"})
    turn(rig)
    assert control.pause("chat")
    turn(rig, calls=LOOP, result=NOTHING)
    assert flag(rig.guard, "chat").held
    assert rig.actions == ["hint", "deny"]
    assert control.resume("chat")


def test_a_stall_belongs_to_the_session_of_its_call(rigs: Callable[..., Rig]) -> None:
    """Two conversations in one trace: the hint goes to the one whose call hangs."""
    rig = rigs({"step_timeout_s": 0.2})
    with agent(rig.tracer):
        turn(rig, "one")
        own = {**TOOL, "gen_ai.conversation.id": "two"}
        with rig.tracer.start_as_current_span("execute_tool slow", attributes=own):
            wait_for(lambda: bool(rig.decisions))
    assert {decision.session for decision in rig.decisions} == {"two"}


def test_who_was_evicted_does_not_replace_its_successor(rigs: Callable[..., Rig]) -> None:
    """One key is one session: what an old trace still holds is not put in its place."""
    sessions = rigs({"max_sessions": 2}).guard._sessions
    old = sessions.bind(1, "chat", 1)
    for other in "abc":
        sessions.named(other, 2)
    new = sessions.bind(2, "chat", 3)
    assert new is not old
    sessions.of_step(Step(kind=call().kind, trace_id=1), 4)
    assert sessions.find("chat") is new


NOW = time.time_ns
STARTS: dict[str, tuple[Callable[[], int], float, list[str]]] = {
    # Reported years later it counts as open since its report, whatever it says.
    "of a recording": (lambda: EPOCH, 0, []),
    # A span may be made when the call already runs: its start counts.
    "made when the call ran": (lambda: NOW() - 5 * SECOND, 2, ["step_timeout"]),
    # A call that is reported afterwards ends as soon as all is written on its span.
    **{
        f"reported {ago} s afterwards": (lambda ago=ago: NOW() - ago * SECOND, 0, list[str]())
        for ago in (2, 5, 500)
    },
}


@pytest.mark.parametrize(("start", "later_s", "reasons"), STARTS.values(), ids=STARTS.keys())
def test_a_span_that_starts_in_the_past(
    start: Callable[[], int], later_s: float, reasons: list[str], rigs: Callable[..., Rig]
) -> None:
    """It hangs only if it stays open, by the clock of who reports it."""
    rig, began = rigs({"step_timeout_s": 1, "stall_run_s": 60 if later_s else 1}), start()
    run = {MARK: "invoke_agent", "gen_ai.conversation.id": "s"}
    root = rig.tracer.start_span("invoke_agent a", attributes=run, start_time=began)
    below = trace.set_span_in_context(root)
    span = rig.tracer.start_span("execute_tool x", below, attributes=TOOL, start_time=began)
    rig.guard.tick(NOW() + round(later_s * SECOND))
    span.end()
    root.end()
    assert [step.name for step in rig.steps][:1] == ["search"]
    assert [one.reason for one in rig.decisions] == reasons


def test_a_stall_that_ended_raises_nothing(rigs: Callable[..., Rig]) -> None:
    """A call that ended while the timer looked at it leaves no hint behind."""
    rig = rigs({"step_timeout_s": 1})
    with agent(rig.tracer, gen_ai__conversation__id="s"):
        span = rig.tracer.start_span("execute_tool slow", attributes=TOOL)
        rig.guard.settle()
        opened = rig.guard._opened(span.get_span_context().span_id)
        assert opened is not None
        found = rig.guard._watchdog.look(opened, opened.since + 100 * SECOND)
        span.end()
        assert len(found) == 1
        rig.guard._stall(found[0])
        assert control.current().action == "allow"
