"""A plan is followed while it runs: by `session(tasks=...)`, and off spans."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.trace import StatusCode, Tracer

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control
from otel_loopguard._control.context import named_session, session_at
from otel_loopguard.core import Decision, Kind
from otel_loopguard.core.progress import Milestones, Reached
from otel_loopguard.core.task import Task
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import follow
from tests.agents import provider_with, settle
from tests.calls import call
from tests.tables import rows

QUIET = Settings(switched_off="budget,graph")
PLAN = [{"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}]
PLANS = {"plan": PLAN, "two": [{"id": "a"}, {"id": "b"}]}
PLANS["optional"] = [{"id": "a", "optional": True}, {"id": "b"}]


@pytest.fixture
def said() -> list[Decision]:
    """Decisions, as they are made."""
    return []


@pytest.fixture
def guard(said: list[Decision]) -> LoopGuard:
    """A live guard that only judges plans here."""
    return LoopGuard(QUIET, on_decision=lambda _, decision: said.append(decision))


def does(guard: LoopGuard, key: str, words: str) -> None:
    """Steps: `a` is a node, `a()` a tool, `a!` fails, `@a` names its task, `/` ends a run."""
    for word in words.split():
        name = word.strip("@/()!")
        step = call(name or "crew", {}, error="no such host" if word.endswith("!") else None)
        if word[0] in "@/":
            step.kind, step.task, step.span_id = Kind.AGENT, name or None, int(not name)
        elif not word.endswith(")"):
            step.kind = Kind.NODE
        guard.observe(step, key)


def board(key: str) -> Milestones:
    """The board of a session that is known."""
    found = session_at(key)
    assert found is not None
    return found.flag.milestones


@pytest.mark.parametrize(("tasks", "steps", "expected"), rows(__file__, "counted"))
def test_tasks_are_counted_by_the_steps_that_name_them(
    guard: LoopGuard, said: list[Decision], tasks: str, steps: str, expected: str
) -> None:
    """By the name of a node or a tool, or by the task it names; three failures fail a task."""
    with otel_loopguard.session(f"counted {steps}", tasks=PLANS[tasks]) as key:
        does(guard, key, steps)
        percent = round(board(key).percent() or 0, 1)
    assert " ".join([f"{percent:g}", *(found.detector for found in said)]) == expected


def test_what_waits_for_a_failed_task_cannot_succeed(
    guard: LoopGuard, said: list[Decision]
) -> None:
    """The rest is tried first; then the session is paused, with the task named."""
    with otel_loopguard.session("hopeless", tasks=PLAN) as key:
        does(guard, key, "a! a! a!")
        assert said == []
        does(guard, key, "c")
        found = control.current()
    assert (found.action, [one.detector for one in said]) == ("pause", ["cannot_succeed"])
    assert "the task 'a' failed, 1 that wait for it cannot start" in (found.reason or "")
    assert "1 are done (33.3 %)" in (found.reason or "")


def test_one_of_several_optional_sources_is_enough(guard: LoopGuard, said: list[Decision]) -> None:
    """What needs them ends early only where all of them failed."""
    sources = [{"id": "web", "optional": True}, {"id": "papers", "optional": True}]
    plan = [*sources, {"id": "analyse", "depends_on": ["web", "papers"]}]
    for steps in ("web! web! web! papers", "web papers! papers! papers!"):
        with otel_loopguard.session(steps, tasks=plan) as key:
            does(guard, key, steps)
            assert board(key).standing(0, 0, 0, 0).blocked == 0
    assert said == []
    with otel_loopguard.session("all failed", tasks=plan) as key:
        does(guard, key, "web! web! web! papers! papers! papers!")
    (found,) = said
    assert found.detector == "cannot_succeed"
    assert found.message == (
        "the task 'analyse' cannot start because everything it needs failed, and no other is open; "
        "0 are done (0 %)"
    )


def test_a_long_task_is_no_stall(guard: LoopGuard, said: list[Decision]) -> None:
    """Tasks take their time; milestones are what somebody expects every few steps."""
    with otel_loopguard.session("long", tasks=PLAN) as key:
        for number in range(40):
            guard.observe(call("read", {"p": number}, f"{number:x}"), key)
    assert said == []


def test_a_plan_of_a_known_session_is_replaced(guard: LoopGuard) -> None:
    """What was done under the same id stays done; milestones take its place."""
    with otel_loopguard.session("again", tasks=PLAN) as key:
        does(guard, key, "a")
        with otel_loopguard.session("again", tasks=[{"id": "a"}, {"id": "z"}]):
            assert board(key).percent() == 50.0
        control.milestones(["y"])
        assert (board(key).percent(), dict(board(key).follows)) == (0.0, {})


@pytest.mark.parametrize(("tasks", "message"), rows(__file__, "refused"))
def test_a_plan_that_cannot_be_followed_is_refused_there(tasks: str, message: str) -> None:
    """In the user's own call, before anything of the session runs."""
    with pytest.raises(PlanError, match=message), otel_loopguard.session("no", tasks=eval(tasks)):
        pytest.fail("it began")
    assert named_session() is None


def test_a_thousand_tasks_in_dependency_order() -> None:
    """All behind a failed one are blocked, however far."""
    made = Milestones()
    tasks = [Task(str(each), depends_on=(str(each + 1),)) for each in range(999)] + [Task("999")]
    assert follow(made, tasks)
    made.report("999", Reached.FAILED)
    found = made.standing(0, 5, 1.0, 2)
    assert (found.open, found.blocked, found.failed, found.hopeless) == (0, 999, 1, "999")
    assert (found.steps, found.key) == (5, 2)
    made.report("999", Reached.DONE)
    assert made.standing(0, 6, 1.0, 3).open == 999


@pytest.fixture
def tracer(guard: LoopGuard) -> Iterator[Tracer]:
    """A tracer that the guard listens to."""
    provider = provider_with(LoopGuardSpanProcessor(guard=guard))
    yield provider.get_tracer("openinference.instrumentation.crewai")
    provider.shutdown()


CREW = [
    {"id": "1", "description": "Read it", "agent_role": "reader", "context": None},
    {"id": "2", "description": "Sum it up", "agent_role": "writer", "context": ["Read it"]},
]
SPANS = [
    ("crew_tasks", CREW, "task_id"),
    ("crewai.crew.tasks", [{**each, "context": []} for each in CREW], "crewai.task.id"),
    ("loopguard.plan", {"tasks": [{"id": 1}, {"id": 2, "depends_on": [1]}]}, "loopguard.task"),
]


@pytest.mark.parametrize(("name", "tasks", "task"), SPANS, ids=[name for name, *_ in SPANS])
def test_a_plan_on_an_open_span_is_found(tracer: Tracer, name: str, tasks: Any, task: str) -> None:
    """CrewAI writes it on the span of the crew, after it has begun; it ends last."""
    crew = {"session.id": "crew", "openinference.span.kind": "CHAIN"}
    agent = {"session.id": "crew", "openinference.span.kind": "AGENT"}
    with tracer.start_as_current_span("crew.kickoff", attributes=crew) as root:
        root.set_attribute(name, json.dumps(tasks))
        for number, percent in (("1", 50), ("2", 100)):
            tracer.start_span("a._execute_core", attributes={**agent, task: number}).end()
            settle()
            assert board("crew").percent() == percent


def test_a_plan_span_declares_before_the_work(tracer: Tracer, said: list[Decision]) -> None:
    """Three failed tries of what all the rest waits for: the session is paused."""
    planned = {"gen_ai.operation.name": "plan", "loopguard.plan": json.dumps(PLAN[:2])}
    work = {"gen_ai.operation.name": "invoke_agent", "loopguard.task": "a"}
    own = {"gen_ai.conversation.id": "planned"}
    with tracer.start_as_current_span("root"):
        tracer.start_span("plan", attributes={**planned, **own}).end()
        for _ in range(3):
            assert said == []
            span = tracer.start_span("invoke_agent x", attributes={**work, **own})
            span.set_status(StatusCode.ERROR, "no such host")
            span.end()
            settle()
    assert [found.detector for found in said] == ["cannot_succeed"]


def test_the_applications_plan_goes_before_that_of_a_span(tracer: Tracer) -> None:
    """And so do its milestones."""
    work = {"gen_ai.operation.name": "plan", "loopguard.plan": json.dumps([{"id": "z"}])}
    with otel_loopguard.session("mine", tasks=PLAN):
        tracer.start_span("plan", attributes=work).end()
        settle()
        assert list(board("mine").follows) == ["a", "c", "b"]


UNSOUND = ["[", "[]", "5", '"a"', "null", "{}", "\ud800", '[{"id": 1}, {"id": 1}]']
UNSOUND += ['[{"id": "a", "needs": "a"}]', json.dumps([{"id": each} for each in range(1001)])]
UNSOUND += ["[" * 300_000]


@pytest.mark.parametrize("plan", UNSOUND, ids=range(len(UNSOUND)))
def test_a_plan_on_a_span_that_is_not_sound_is_passed_over(
    guard: LoopGuard, tracer: Tracer, plan: str
) -> None:
    """The agent does not notice."""
    work = {"gen_ai.operation.name": "invoke_agent", "session.id": "bad", "loopguard.plan": plan}
    with tracer.start_as_current_span("root", attributes=work):
        tracer.start_span("x", attributes={**work, "loopguard.task": "a"}).end()
        settle()
        assert not board("bad").follows
    assert not guard.faults.counts
