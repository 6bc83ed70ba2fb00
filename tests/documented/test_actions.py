"""What users say about the action itself: none of these complaints holds here."""

from __future__ import annotations

import pytest

from otel_loopguard import LoopGuardAbort, control, session
from otel_loopguard.core import Action, Kind, Step
from tests.calls import call
from tests.documented.acting import Run
from tests.documented.traced import Traced
from tests.hostile.rig import Rig

NOTHING = "No results found."


def same(number: int = 0) -> Step:
    """One repeat of the loop with this number."""
    return call("search", {"q": f"x{number}"}, f"No results for x{number}.")


# Users say: A hard stop destroys the context


def test_a_session_that_was_stopped_can_go_on() -> None:
    """Who resumes it keeps the session; only what was counted begins anew."""
    agent = Traced()
    with session("chat"), agent.running():
        for _ in range(8):
            agent.call("search", '{"q": "x"}', NOTHING)
        assert control.current().action is Action.ABORT
        assert control.resume("chat")
        control.check()
        agent.call("search", '{"q": "y"}', "something new")
        assert control.current().action is Action.ALLOW


def test_a_guard_that_only_hints() -> None:
    """`max_action` keeps everything harder away."""
    rig = Rig({"max_action": "hint"})
    for _ in range(20):
        rig.guard.observe(same(), "run")
    assert {one.action.value for one in rig.decisions} == {"hint"}


# Users say: Hints alone are ignored


# Users say: A block without a stop is a loop of its own


# Users say: The second strike ignores what happened in between


def test_refusals_that_leave_no_span_end_in_an_abort() -> None:
    """The framework refuses the call without a span, and asks the model on and on."""
    run = Run()
    while "deny" not in run.actions:
        run.calls(same())
    run.calls(*(Step(Kind.MODEL, "m", trace_id=1, text=f"again {n}") for n in range(20)))
    assert run.actions[-1] == "abort"


def test_another_loop_gets_its_own_hint() -> None:
    """Who obeys the hint about loop A and falls into loop B is not punished for A."""
    run = Run()
    run.calls(*(same(1) for _ in range(3)))
    run.calls(call("read", {"path": "a"}, "something else"))
    run.calls(*(same(2) for _ in range(3)))
    assert run.actions == ["hint", "hint"]
    assert run.decisions[0].loop != run.decisions[1].loop


def test_a_hint_that_was_obeyed_is_taken_back() -> None:
    """The flag goes down with the first call outside of the loop."""
    agent = Traced()
    with session("obeyed"), agent.running():
        for _ in range(3):
            agent.call("search", '{"q": "x"}', NOTHING)
        assert control.current().action is Action.HINT
        agent.call("read", '{"path": "a"}', "text")
        assert control.current().action is Action.ALLOW


# Users say: Injected messages break the contract of the API


def test_nothing_is_put_into_the_conversation() -> None:
    """Arguments, results and messages on the spans are what the agent wrote."""
    rig = Rig(wrapped=True)
    with rig.tracer.start_as_current_span(
        "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
    ):
        for _ in range(5):
            own = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"q": "x"}'}
            with rig.tracer.start_as_current_span("execute_tool search", attributes=own) as span:
                span.set_attribute("gen_ai.tool.call.result", NOTHING)
    for span in rig.exported:
        foreign = {
            k: v for k, v in (span.attributes or {}).items() if not k.startswith("loopguard.")
        }
        assert {k for k in foreign if k != "error.type"} <= {
            "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result", "gen_ai.agent.name",
        }  # fmt: skip
        assert foreign.get("gen_ai.tool.call.result", NOTHING) == NOTHING


def test_a_run_does_not_end_silently() -> None:
    """An abort says why, and only the runtime's own `check` raises it."""
    agent = Traced()
    with session("loud"), agent.running():
        for _ in range(8):
            agent.call("search", '{"q": "x"}', NOTHING)
        with pytest.raises(LoopGuardAbort) as stop:
            control.check()
    assert "'search' was called" in str(stop.value)
    assert "with equal arguments" in str(stop.value)


def test_a_hint_quotes_what_was_seen() -> None:
    """The runtime gets a sentence that it can hand to the model."""
    agent = Traced()
    with session("quoted"), agent.running():
        for _ in range(3):
            agent.call("search", '{"q": "x"}', NOTHING)
        said = control.current().hint
    assert said is not None
    assert "search" in said
    assert "3 times" in said


# Users say: The message claims what was not seen


def test_a_message_says_only_what_was_measured() -> None:
    """Where answers are not captured the message does not say that they were equal."""
    run = Run()
    run.calls(*(call("search", {"q": "x"}, None) for _ in range(14)))
    assert run.actions == ["hint"]
    assert "not captured" in run.decisions[0].message
    assert "answer" not in run.decisions[0].message
    seen = Run()
    seen.calls(*(call("search", {"q": "x"}, "nothing") for _ in range(3)))
    assert "equal 7-character answer" in seen.decisions[0].message


# Users say: A loop hides behind the bounds of messages, traces and runs


def test_one_call_per_trace_is_one_loop() -> None:
    """Each repeat in a trace of its own, within one session."""
    agent = Traced()
    with session("n8"):
        for _ in range(8):
            agent.call("search", '{"q": "x"}', NOTHING)
    assert agent.actions[:2] == ["hint", "deny"]


def test_traces_of_one_conversation_that_no_user_asked_for_are_one_session() -> None:
    """Calls that only carry the conversation's id, a trace each."""
    run = Run()
    for number in range(8):
        step = call("search", {"q": "x"}, NOTHING, at=number)
        step.trace_id, step.session = 1000 + number, "chat"
        run.calls(step)
    assert run.actions[:2] == ["hint", "deny"]
