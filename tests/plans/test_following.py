"""A plan is followed while it runs: by `session(tasks=...)`, and off spans."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control
from otel_loopguard._control.context import named_session, session_at
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.core.milestones import Milestones, Reached
from otel_loopguard.core.task import Task
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import follow
from tests.agents import settle

PLAN = [{"id": "a"}, {"id": "b", "depends_on": ["a"]}, {"id": "c"}]
QUIET = Settings(switched_off="budget,graph")


@pytest.fixture
def said() -> list[Decision]:
    """Decisions, as they are made."""
    return []


@pytest.fixture
def guard(said: list[Decision]) -> LoopGuard:
    """A live guard that only judges plans here."""
    return LoopGuard(QUIET, on_decision=lambda _, decision: said.append(decision))


def done(name: str, *, error: bool = False, kind: Kind = Kind.NODE) -> Step:
    """A step of the name of a task."""
    return Step(kind, name, args={}, error=error, error_text="no such host" if error else None)


def board(key: str) -> Milestones:
    """The board of a session that is known."""
    found = session_at(key)
    assert found is not None
    return found.flag.milestones


def failed(name: str, times: int = 1) -> list[Step]:
    """Steps of the name of a task that fail."""
    return [done(name, error=True)] * times


def tagged(task: str) -> Step:
    """A step that names its task."""
    step = done("researcher", kind=Kind.AGENT)
    step.task = task
    return step


def run_over() -> Step:
    """The end of a root span."""
    root = done("crew", kind=Kind.AGENT)
    root.span_id = 7
    return root


TWO = [{"id": "a"}, {"id": "b"}]


@pytest.mark.parametrize(
    ("tasks", "steps", "percent", "expected"),
    [
        (PLAN, [done("a"), done("something else")], 33.3, []),
        (PLAN, [done("a"), tagged("b"), done("c", kind=Kind.TOOL)], 100, []),
        (TWO, [*failed("a", 2), done("a")] * 3 + [done("b")], 100, []),
        (TWO, [done("a"), *failed("b", 3)], 50, ["cannot_succeed"]),
        (TWO, [done("a"), *failed("b", 3), done("b")], 100, ["cannot_succeed"]),
        ([{"id": "a", "optional": True}, {"id": "b"}], [done("b"), *failed("a", 4)], 50, []),
        (
            TWO,
            [step for one in (done("a"), *failed("b", 2), done("b")) for step in (one, run_over())],
            100,
            [],
        ),
    ],
    ids=["by name", "by tag and tool", "tried again", "failed", "late", "optional", "several runs"],
)
def test_tasks_are_counted_by_the_steps_that_name_them(
    guard: LoopGuard,
    said: list[Decision],
    *,
    tasks: list[dict[str, Any]],
    steps: list[Step],
    percent: float,
    expected: list[str],
) -> None:
    """By the name of a node or a tool, or by the task it names; three failures fail a task."""
    with otel_loopguard.session(f"counted {percent} {len(steps)}", tasks=tasks) as key:
        for step in steps:
            guard.observe(step, key)
        assert board(key).percent() == pytest.approx(percent)
    assert [found.detector for found in said] == expected


def test_what_waits_for_a_failed_task_cannot_succeed(
    guard: LoopGuard, said: list[Decision]
) -> None:
    """The rest is tried first; then the session is paused, with the task named."""
    with otel_loopguard.session("hopeless", tasks=PLAN) as key:
        for _ in range(3):
            guard.observe(done("a", error=True), key)
        assert said == []
        guard.observe(done("c"), key)
        assert [found.detector for found in said] == ["cannot_succeed"]
        assert control.current().action == "pause"
        reason = control.current().reason or ""
        assert "the task 'a' failed, and 1 that wait for it cannot start" in reason
        assert "1 are done (33.3 %)" in reason


def researched(*failing: str) -> Iterator[Step]:
    """Steps of two optional sources, three times where one fails."""
    for name in ("web", "papers"):
        yield from [done(name, error=name in failing)] * (3 if name in failing else 1)


def test_one_of_several_optional_sources_is_enough(guard: LoopGuard, said: list[Decision]) -> None:
    """What needs them ends early only where all of them failed."""
    sources = [{"id": "web", "optional": True}, {"id": "papers", "optional": True}]
    plan = [*sources, {"id": "analyse", "depends_on": ["web", "papers"]}]
    for number, failing in enumerate([("web",), ("papers",)]):
        with otel_loopguard.session(f"enough {number}", tasks=plan) as key:
            for step in researched(*failing):
                guard.observe(step, key)
            assert said == []
            assert board(key).standing(0, 0, 0, 0).blocked == 0
    with otel_loopguard.session("all failed", tasks=plan) as key:
        for step in researched("web", "papers"):
            guard.observe(step, key)
        assert [found.detector for found in said] == ["cannot_succeed"]
        assert said[0].message == (
            "the task 'analyse' cannot start, as everything that it needs failed; no other is "
            "open; 0 are done (0 %)"
        )


def test_a_long_task_is_no_stall(guard: LoopGuard, said: list[Decision]) -> None:
    """Tasks take their time; milestones are what somebody expects every few steps."""
    with otel_loopguard.session("long", tasks=PLAN) as key:
        for number in range(40):
            guard.observe(Step(Kind.TOOL, "read", args={"p": number}, outcome=f"{number:x}"), key)
    assert said == []


def test_a_plan_of_a_known_session_is_replaced(guard: LoopGuard) -> None:
    """What was done under the same id stays done; milestones take its place."""
    with otel_loopguard.session("again", tasks=PLAN) as key:
        guard.observe(done("a"), key)
        with otel_loopguard.session("again", tasks=[{"id": "a"}, {"id": "z"}]):
            assert board(key).percent() == 50.0
        control.milestones(["y"])
        assert board(key).percent() == 0.0
        assert not board(key).follows


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([{"id": "a", "depends_on": ["b", "x"]}, {"id": "b", "depends_on": ["a"]}], "2 problems"),
        ([], "can follow 1 to 1000 tasks, got 0"),
        ([{"id": each} for each in range(1001)], "got 1001"),
        ([{"id": "x" * 200 + end} for end in "ab"], "first 200 characters"),
        ("a, b", "expected a list of tasks"),
    ],
    ids=["unsound", "empty", "too many", "ids too long", "text"],
)
def test_a_plan_that_cannot_be_followed_is_refused_there(tasks: object, message: str) -> None:
    """In the user's own call, before anything of the session runs."""
    with pytest.raises(PlanError, match=message), otel_loopguard.session("no", tasks=tasks):
        pytest.fail("it began")
    assert named_session() is None


def test_a_thousand_tasks_in_dependency_order() -> None:
    """All behind a failed one are blocked, however far."""
    made = Milestones()
    tasks = [Task(str(each), depends_on=(str(each + 1),)) for each in range(999)] + [Task("999")]
    assert follow(made, tasks)
    made.report("999", Reached.FAILED)
    standing = made.standing(0, 5, 1.0, 2)
    assert (standing.open, standing.blocked, standing.failed) == (0, 999, 1)
    assert (standing.hopeless, standing.steps, standing.key) == ("999", 5, 2)
    made.report("999", Reached.DONE)
    assert made.standing(0, 6, 1.0, 3).open == 999


CREW = [
    {"id": "1", "description": "Read it", "agent_role": "reader", "context": None},
    {"id": "2", "description": "Sum it up", "agent_role": "writer", "context": ["Read it"]},
]


@pytest.fixture
def provider(said: list[Decision]) -> Iterator[TracerProvider]:
    """A provider with the processor."""
    made = TracerProvider()
    guard = LoopGuard(QUIET, on_decision=lambda _, decision: said.append(decision))
    made.add_span_processor(LoopGuardSpanProcessor(guard=guard))
    yield made
    made.shutdown()


@pytest.mark.parametrize(
    ("key", "tasks", "name"),
    [
        ("crew_tasks", json.dumps(CREW), "task_id"),
        ("crewai.crew.tasks", json.dumps([{**each, "context": []} for each in CREW]),
         "crewai.task.id"),
        ("loopguard.plan", json.dumps({"tasks": [{"id": 1}, {"id": 2, "depends_on": [1]}]}),
         "loopguard.task"),
    ],
    ids=["openinference", "openllmetry", "ours"],
)  # fmt: skip
def test_a_plan_on_an_open_span_is_found(
    provider: TracerProvider, key: str, tasks: str, name: str
) -> None:
    """CrewAI writes it on the span of the crew, after it has begun; it ends last."""
    tracer = provider.get_tracer("openinference.instrumentation.crewai")
    crew = {"session.id": "crew", "openinference.span.kind": "CHAIN"}
    agent = {"session.id": "crew", "openinference.span.kind": "AGENT"}
    with tracer.start_as_current_span("crew.kickoff", attributes=crew) as root:
        root.set_attribute(key, tasks)
        with tracer.start_as_current_span("a._execute_core", attributes={**agent, name: "1"}):
            pass
        assert board("crew").percent() == 50.0
        with tracer.start_as_current_span("b._execute_core", attributes={**agent, name: "2"}):
            pass
    assert board("crew").percent() == 100.0


def test_a_plan_span_declares_before_the_work(
    provider: TracerProvider, said: list[Decision]
) -> None:
    """Three failed tries of what all the rest waits for: the session is paused."""
    tracer = provider.get_tracer("my.agent")
    planned: dict[str, Any] = {
        "gen_ai.operation.name": "plan",
        "gen_ai.conversation.id": "planned",
        "loopguard.plan": json.dumps(PLAN[:2]),
    }
    work: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": "planned",
        "loopguard.task": "a",
    }
    with tracer.start_as_current_span("root"):
        with tracer.start_as_current_span("plan", attributes=planned):
            pass
        for _ in range(3):
            assert said == []
            with tracer.start_as_current_span("invoke_agent x", attributes=work) as span:
                span.set_status(StatusCode.ERROR, "no such host")
            settle()
    assert [found.detector for found in said] == ["cannot_succeed"]


def test_the_applications_plan_goes_before_that_of_a_span(provider: TracerProvider) -> None:
    """And so do its milestones."""
    tracer = provider.get_tracer("my.agent")
    work = {"gen_ai.operation.name": "plan", "loopguard.plan": json.dumps([{"id": "z"}])}
    with otel_loopguard.session("mine", tasks=PLAN):
        with tracer.start_as_current_span("plan", attributes=work):
            pass
        assert list(board("mine").follows) == ["a", "c", "b"]


@pytest.mark.parametrize(
    "plan",
    ["[", "[]", "5", '"a"', "null", "{}", '[{"id": 1}, {"id": 1}]', '[{"id": "a", "needs": "a"}]',
     json.dumps([{"id": each} for each in range(1001)]), "[" * 300_000, "\ud800"],
    ids=["cut", "empty", "number", "text", "null", "map", "twice", "unsound", "long", "huge",
         "surrogate"],
)  # fmt: skip
def test_a_plan_on_a_span_that_is_not_sound_is_passed_over(plan: str) -> None:
    """The agent does not notice."""
    provider = TracerProvider()
    guard = LoopGuard(QUIET)
    provider.add_span_processor(LoopGuardSpanProcessor(guard=guard))
    tracer = provider.get_tracer("my.agent")
    work = {"gen_ai.operation.name": "invoke_agent", "session.id": "bad", "loopguard.plan": plan}
    with tracer.start_as_current_span("root", attributes=work):
        with tracer.start_as_current_span("x", attributes={**work, "loopguard.task": "a"}):
            pass
        assert not board("bad").follows
    provider.shutdown()
    assert not guard.faults.counts
