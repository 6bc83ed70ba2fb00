"""A person gives back a changed plan: it is checked, told, and followed from then on (C18)."""

import json
import logging

import pytest

from otel_loopguard import Action, LoopGuard, control, session, sessions
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.report import Answer, Escalation
from otel_loopguard.errors import EscalationError, PlanError
from otel_loopguard.escalation import message
from otel_loopguard.escalation.cases import reply_in
from tests.escalation.agents import asked, stuck, until, watched

BEFORE = [{"id": "search"}, {"id": "report", "depends_on": ["search"]}]
AFTER = [
    {"id": "look_up", "description": "get_order by its number"},
    {"id": "report", "depends_on": ["look_up"]},
]


def paused() -> tuple[LoopGuard, Escalation]:
    """A session with a plan that is stuck at its first task."""
    guard = watched()
    with session("a", tasks=BEFORE):
        stuck(guard, "a")
    (found,) = asked(guard)
    return guard, found


def did(guard: LoopGuard, name: str, *, failed: bool = False) -> None:
    step = Step(Kind.TOOL, name, args={"n": name}, outcome=None if failed else f"did {name} " * 9)
    step.error = failed
    step.error_text = "Error: no" if failed else None
    guard.observe(step, "a")


def done(guard: LoopGuard) -> float | None:
    """How much of its plan the session has done, in percent."""
    report = guard.report("a")
    return None if report is None else report.milestones


def test_the_plan_takes_the_place_of_the_one_before() -> None:
    """Its tasks are counted from then on; the runtime gets them, and the model is told."""
    guard, found = paused()
    with session("a"):
        assert control.plan() == ()
        control.answer(found.id, "modify_plan", "order 4711", by="anna", plan=AFTER)
        assert [task.id for task in control.plan()] == ["look_up", "report"]
        assert control.gate().control.action is Action.HINT
        assert control.hint() == (
            "A person looked at this run and changed its plan. From now on, do these tasks and no "
            "others: look_up (get_order by its number); report after look_up. order 4711"
        )
    assert done(guard) == 0
    did(guard, "look_up")
    assert done(guard) == 50


def test_a_plan_that_is_not_sound_changes_nothing() -> None:
    """All that is wrong is said, and the escalation can be answered again."""
    guard, found = paused()
    with pytest.raises(PlanError) as refused:
        control.answer(found.id, "modify_plan", plan=[{"id": "a", "depends_on": ["b", "a"]}])
    assert {problem.kind for problem in refused.value.problems} >= {"unknown", "self"}
    for plan in ([], "nothing", [{"id": "x" * 300}, {"id": "x" * 301}]):
        with pytest.raises(PlanError):
            control.answer(found.id, "modify_plan", plan=plan)
    with pytest.raises(EscalationError, match="a plan goes with the answer modify_plan"):
        control.answer(found.id, "continue", plan=AFTER)
    assert guard.flag_of("a").control.action is Action.PAUSE
    assert control.plan("a") == ()
    control.answer(found.id, "modify_plan", plan=AFTER)
    assert guard.flag_of("a").control.action is not Action.PAUSE


def test_a_session_without_a_plan_gets_one() -> None:
    """People may plan what nobody planned."""
    guard = watched()
    stuck(guard, "a")
    control.answer(asked(guard)[0].id, "modify_plan", plan=AFTER)
    did(guard, "look_up")
    assert done(guard) == 50


def test_what_is_done_stays_done() -> None:
    """Under the same id."""
    guard = watched()
    with session("a", tasks=BEFORE):
        did(guard, "search")
        stuck(guard, "a", tool="other")
    control.answer(asked(guard)[0].id, "modify_plan", plan=[{"id": "search"}, {"id": "look_up"}])
    assert done(guard) == 50


@pytest.mark.parametrize("again", ["session", "span"])
def test_the_plan_before_does_not_come_back(again: str) -> None:
    """Where an application or its spans only say it again; a new one of the application does."""
    guard, found = paused()
    control.answer(found.id, "modify_plan", plan=AFTER)
    if again == "session":
        with session("a", tasks=BEFORE):
            did(guard, "look_up")
    else:
        guard.observe(Step(Kind.WORKFLOW, "crew", tasks=tuple(BEFORE)), "a")
        did(guard, "look_up")
    assert done(guard) == 50
    with session("a", tasks=[{"id": "something"}, {"id": "else"}]):
        did(guard, "something")
    assert done(guard) == 50


def test_channels_may_give_one(caplog: pytest.LogCaptureFixture) -> None:
    """A callback's map has it too; one that is not sound is logged, and no answer."""
    said = [{"answer": "modify_plan", "plan": [{"id": "a", "depends_on": ["b"]}]}]
    said.append({"answer": "modify_plan", "plan": AFTER})
    forget = control.on_escalation(lambda found: said[found.session == "b"])
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        guard = watched()
        stuck(guard, "a")
        until(lambda: "its answer was not taken" in caplog.text)
        assert [found.session for found in asked(guard)] == ["a"]
        stuck(guard, "b")
        until(lambda: len(control.plan("b")) == 2)
    forget()


def test_a_long_plan_is_told_in_part() -> None:
    """The runtime has all of it."""
    reply = reply_in({"answer": "modify_plan", "plan": [{"id": f"t{n}"} for n in range(900)]}, "x")
    assert reply is not None
    assert len(reply.plan) == 900
    assert len(reply.hint or "") < 2200


def test_changing_the_plan_may_always_be_answered() -> None:
    """Whatever the cause; where ways are known, they are named."""
    guard = watched()
    stuck(guard, "a")
    (found,) = asked(guard)
    assert Answer.MODIFY_PLAN in {one.answer for one in found.suggestions}
    assert "  modify_plan: go on in another way" in message(found)
    control.answer(found.id, "continue")
    guard.flag_of("a").clear()
    control.escalate("look at this", session="a")
    assert Answer.MODIFY_PLAN in {one.answer for one in asked(guard)[0].suggestions}


@pytest.mark.parametrize("content", [False, True])
def test_the_long_term_context_is_in_the_package(content: bool) -> None:
    """For callbacks of this process; it leaves it where content may (C17)."""
    guard = watched(escalation_content=content)
    stuck(guard, "a", calls=1)
    sessions.remember("insight", "order 4711 was paid twice", session="a")
    sessions.remember("avoided", "searching by name", session="a")
    stuck(guard, "a", calls=3)
    (found,) = asked(guard)
    assert found.context is not None
    assert found.context.insights == ("order 4711 was paid twice",)
    assert found.context.avoided[0] == "searching by name"
    told = (json.dumps(found.row()), message(found))
    assert all(("4711" in text) is content for text in told)
