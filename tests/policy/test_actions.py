"""What users say about the action itself: none of these complaints holds here."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

import otel_loopguard
from otel_loopguard import LoopGuardAbort, control
from otel_loopguard.core import Action, Kind, Step
from tests.agents import agent, tool_call
from tests.calls import Run, call
from tests.hostile.rig import Rig

NOTHING = "No results found."
SEARCH = call("search", {"q": "x"}, NOTHING)


@contextmanager
def searched(rig: Rig, times: int) -> Iterator[str]:
    """An agent's run in a session of its own, that made so many equal calls; gives its key."""
    with otel_loopguard.session(uuid.uuid4().hex) as key, agent(rig.tracer):
        for _ in range(times):
            tool_call(rig.tracer, result=NOTHING)
        yield key


def test_a_session_that_was_stopped_can_go_on() -> None:
    """An abort says why, and only the runtime's own `check` raises it; who resumes it keeps it."""
    rig = Rig()
    with searched(rig, 8) as key:
        with pytest.raises(LoopGuardAbort, match=r"'search' was called .* with equal arguments"):
            control.check()
        assert control.resume(key)
        control.check()
        tool_call(rig.tracer, args='{"q": "y"}', result="something new")
        assert control.current().action is Action.ALLOW


def test_a_hint_that_was_obeyed_is_taken_back() -> None:
    """The flag goes down with the first call outside of the loop; the ladder remembers it."""
    rig = Rig()
    with searched(rig, 3):
        assert control.current().action is Action.HINT
        tool_call(rig.tracer, "read", result="text")
        assert control.current().action is Action.ALLOW
        for _ in range(2):
            tool_call(rig.tracer, result=NOTHING)
        assert control.current().action is Action.DENY


def test_nothing_is_put_into_the_conversation() -> None:
    """Arguments, results and messages on the spans are what the agent wrote."""
    rig = Rig(wrapped=True)
    with searched(rig, 5):
        pass
    own = {"operation.name", "tool.name", "tool.call.arguments", "tool.call.result", "agent.name"}
    for span in rig.exported:
        written = dict(span.attributes or {})
        names = {name for name in written if not name.startswith("loopguard.")}
        assert names <= {"error.type", *(f"gen_ai.{name}" for name in own)}
        assert written.get("gen_ai.tool.call.result", NOTHING) == NOTHING


def test_refusals_that_leave_no_span_end_in_an_abort() -> None:
    """The framework refuses the call without a span, and asks the model on and on."""
    run = Run()
    while "deny" not in run.actions:
        run.calls(SEARCH)
    run.calls(*(Step(Kind.MODEL, "m", trace_id=1, text=f"again {n}") for n in range(20)))
    assert run.actions[-1] == "abort"


@pytest.mark.parametrize("named", ["by the session", "by the conversation"])
def test_one_call_per_trace_is_one_loop(named: str) -> None:
    """Each repeat in a trace of its own, that no user asked for."""
    rig = Rig()
    by_id = {"gen_ai.conversation.id": "n8"} if "conversation" in named else {}
    for _ in range(4):
        with nullcontext() if by_id else otel_loopguard.session("n8"):
            tool_call(rig.tracer, result=NOTHING, more=by_id)
    rig.guard.settle()
    assert [one.action for one in rig.decisions if one.action.rank] == ["hint", "deny"]
