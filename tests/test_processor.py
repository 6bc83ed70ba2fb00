"""The span processor on real SDK spans, those of no interest too."""

import asyncio
import concurrent.futures
import contextvars
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, StatusCode, Tracer, set_span_in_context

import otel_loopguard
from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
)
from otel_loopguard._util import clock as rehearsal
from otel_loopguard._util.clock import TestMode as Moved
from otel_loopguard.core import Action, Decision, Step
from otel_loopguard.sessions import Session
from otel_loopguard.sessions.active import ActiveSpans
from tests.agents import Ended, agent, provider_with, settle, tool_call


def listening(**settings: object) -> tuple[LoopGuard, list[Decision], Tracer, Ended]:
    """A guard, what it decides, a tracer that it sees, and what ended."""
    found: list[Decision] = []
    ended = Ended()
    guard = LoopGuard(Settings(**settings), on_decision=lambda _, decision: found.append(decision))
    tracer = provider_with(LoopGuardSpanProcessor(guard), ended).get_tracer("my.agent")
    return guard, found, tracer, ended


def stuck(tracer: Tracer, calls: int = 8) -> None:
    """A run with equal calls, each judged before the next."""
    with agent(tracer):
        for _ in range(calls):
            tool_call(tracer, args='{"q": "s3cret"}', result="no cl4ssified data found")
            settle()


def test_one_line_stops_a_stuck_agent() -> None:
    """hint, deny, then `control.check()` raises inside the agent's own loop."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor())
    tracer = provider.get_tracer("my.agent")
    seen = []
    with agent(tracer), pytest.raises(LoopGuardAbort) as stop:
        for _ in range(20):
            control.check()
            seen.append(control.current().action.value)
            tool_call(tracer)
    assert seen == [*["allow"] * 3, "hint", *["deny"] * 3]
    assert "'search' was called 7 times" in str(stop.value)
    assert stop.value.decision is not None
    assert stop.value.decision.action == "abort"


@pytest.mark.parametrize("span_events", [True, False])
def test_the_open_agent_span_says_what_was_decided(span_events: bool) -> None:
    """In place, red if aborted; events are off, for OpenTelemetry gives them up for log events."""
    _, _, tracer, ended = listening(span_events=span_events)
    stuck(tracer)
    (root,) = ended.named("invoke_agent")
    attributes = dict(root.attributes or {})
    assert attributes["loopguard.decision.action"] == "abort"
    assert attributes["loopguard.detector.name"] == "exact_repeat"
    assert attributes["error.type"] == "loopguard_abort"
    assert isinstance(attributes["loopguard.detection.repeat_count"], float)
    assert isinstance(attributes["loopguard.detection.cycle.length"], int)
    assert attributes["loopguard.session.id"] == f"{root.context.trace_id:032x}"
    assert root.status.status_code is StatusCode.ERROR
    assert [event.name for event in root.events] == ["loopguard.decision"] * 3 * span_events
    assert "s3cret" not in str(attributes) + str(root.events)
    assert "cl4ssified" not in str(attributes) + str(root.events)


@pytest.mark.parametrize(("calls", "action"), [(3, "hint"), (8, "deny")])
def test_a_hint_and_a_deny_leave_the_status_alone(calls: int, action: str) -> None:
    """A red span for a warning would be noise; the next call of a denied loop carries the deny."""
    _, _, tracer, ended = listening(max_action="deny")
    stuck(tracer, calls)
    (root,) = ended.named("invoke_agent")
    assert (root.attributes or {})["loopguard.decision.action"] == action
    assert root.status.status_code is StatusCode.UNSET
    for call in ended.named("execute_tool")[5:6]:
        assert (call.attributes or {})["loopguard.decision.action"] == "deny"
        assert "error.type" not in (call.attributes or {})


def test_the_topmost_span_and_the_agent_are_both_marked() -> None:
    """An agent inside a span of another scope marks that span too."""
    ended = Ended()
    provider = provider_with(LoopGuardSpanProcessor(), ended)
    with provider.get_tracer("my.web").start_as_current_span("POST /chat"):
        stuck(provider.get_tracer("my.agent"))
    for name, status in (("invoke_agent", StatusCode.ERROR), ("POST /chat", StatusCode.UNSET)):
        (span,) = ended.named(name)
        assert (span.attributes or {})["loopguard.decision.action"] == "abort"
        assert span.status.status_code is status


@pytest.mark.parametrize("limit", [{"tokens": 3000}, {"cost": 0.01}])
def test_what_a_model_takes_is_that_of_the_agent_in_whose_run_it_is(
    limit: dict[str, float],
) -> None:
    """Instrumentations name the agent on the span of its run alone."""
    _, found, tracer, _ = listening(agent_limits={"writer": limit})
    call = {
        "gen_ai.operation.name": "chat", "gen_ai.response.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 50,
    }  # fmt: skip
    said: list[str] = []
    for name in ("reader", "writer"):
        with agent(tracer), agent(tracer, gen_ai__agent__name=name):
            for _ in range(4):
                with tracer.start_as_current_span("chat gpt-4o", attributes=call):
                    pass
            settle()
        said.append("".join(f"{one.reason} " for one in found if one.action is Action.ABORT))
    assert said == ["", f"agent_{next(iter(limit))}_limit "]


def test_several_providers_in_one_process() -> None:
    """Each guard sees its own spans; `control` finds the right one."""
    first, second = provider_with(LoopGuardSpanProcessor()), provider_with(LoopGuardSpanProcessor())
    one, other = first.get_tracer("my.agent"), second.get_tracer("my.agent")
    with agent(one):
        for _ in range(8):
            tool_call(one)
        assert control.current().action == "abort"
        with agent(other):
            pass
    with trace.use_span(trace.INVALID_SPAN), agent(other):
        tool_call(other)
        control.check()
        assert control.current().action == "allow"


def test_sessions_by_conversation_id() -> None:
    """Two conversations in one trace are two sessions; one over many traces is one."""
    guard, found, tracer, _ = listening()
    for number in range(6):
        more = {"gen_ai.conversation.id": f"c{number % 2}"}
        tool_call(tracer, args="{}", more=more)
    guard.settle()
    assert {decision.session for decision in found} == {"c0", "c1"}
    assert all(decision.action == "hint" for decision in found)


def test_an_id_learned_late_names_the_session_of_its_trace() -> None:
    """Steps before the id was known belong to the session all the same."""
    _, found, tracer, _ = listening()
    with agent(tracer):
        for _number in range(3):
            tool_call(tracer)
            with tracer.start_as_current_span("chat") as span:
                span.set_attribute("gen_ai.operation.name", "chat")
                span.set_attribute("gen_ai.conversation.id", "late")
        assert control.current().session == "late"
    assert [decision.session for decision in found] == ["late"]


def test_an_explicit_session_goes_before_all_ids() -> None:
    """What the context names wins, across traces and whatever the spans say."""
    _, found, tracer, _ = listening()
    other = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "other"}
    with session("mine"), pytest.raises(LoopGuardAbort) as stop:
        for _ in range(9):
            control.check()
            with tracer.start_as_current_span("chat", attributes=other):
                tool_call(tracer)
    assert stop.value.session == "mine"
    assert {decision.session for decision in found} == {"mine"}


def test_the_flag_is_seen_from_threads_tasks_and_where_no_span_is_current() -> None:
    """Wherever the context reaches, the flag is the same."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")

    async def in_task() -> str:
        await asyncio.sleep(0)
        return control.current().action.value

    async def from_tasks() -> list[str]:
        return list(await asyncio.gather(*(in_task() for _ in range(3))))

    with session("run"):
        for _ in range(8):
            tool_call(tracer)
        assert control.current().action == "abort"
        assert asyncio.run(from_tasks()) == ["abort"] * 3
        context = contextvars.copy_context()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            assert pool.submit(context.run, control.current).result().action == "abort"
            assert pool.submit(control.current).result().action == "allow"
        with agent(tracer), tracer.start_as_current_span("inner"), pytest.raises(LoopGuardAbort):
            control.check()
    control.check()


@pytest.mark.parametrize("why", ["switched off", "shut down"])
def test_switched_off_or_shut_down_it_does_nothing(why: str) -> None:
    """Spans and flags are left alone."""
    guard = LoopGuard(Settings(enabled=why != "switched off"))
    processor, ended = LoopGuardSpanProcessor(guard), Ended()
    tracer = provider_with(processor, ended).get_tracer("my.agent")
    assert processor.force_flush()
    if why == "shut down":
        processor.shutdown()
        assert guard.attached  # so that an exporter that is shut down later feeds nothing twice
    stuck(tracer)
    control.check()
    assert not any("loopguard" in key for span in ended.spans for key in span.attributes or {})


def test_a_scope_that_shows_itself_late_belongs_to_the_named_session() -> None:
    """Its first span has no telling attribute at its start; the context still names its session."""
    guard, found, tracer, _ = listening()
    with session("mine"):
        for _ in range(3):
            with tracer.start_as_current_span("work") as span:
                span.set_attributes(TOOL | DONE)
    guard.settle()
    assert [decision.session for decision in found] == ["mine"]
    assert found[0].step == 2


class Wrapper(NonRecordingSpan, ReadableSpan):
    """A span around another, with half of what a span of the SDK has, as Laminar makes them."""

    context = property(NonRecordingSpan.get_span_context)


def test_a_call_below_the_wrapper_of_a_span_is_seen() -> None:
    guard, found, tracer, _ = listening()
    with tracer.start_as_current_span("work") as work:
        above = set_span_in_context(Wrapper(work.get_span_context()))
        for _ in range(3):
            tracer.start_span("call", above, attributes=TOOL | DONE).end()
    guard.settle()
    assert [decision.step for decision in found] == [2]
    assert not guard.faults.counts


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
DONE = {"gen_ai.tool.call.arguments": '{"q": "x"}', "gen_ai.tool.call.result": "nothing found"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
ENDS = {**dict.fromkeys(("tool", "late tool", "known"), TOOL | DONE), "bare tool": TOOL}
ENDS["late agent"] = AGENT
Node = tuple[str, list[Any]]


class Counting(IdGenerator):
    """The same ids in each run."""

    def __init__(self) -> None:
        self._next = count(1)

    def generate_span_id(self) -> int:
        return next(self._next)

    def generate_trace_id(self) -> int:
        return next(self._next)


class Clock:
    """The machine's clock, which moves by a millisecond for each span that starts or ends."""

    def __init__(self) -> None:
        self.now = 1_800_000_000 * 10**9

    def time_ns(self) -> int:
        return self.now

    def step(self) -> int:
        self.now += 1_000_000
        return self.now


class Run:
    """An application whose one tracer writes spans of every kind, with a guard that gets all."""

    def __init__(self, **settings: Any) -> None:
        self.seen: list[object] = []
        self.guard = LoopGuard(Settings(**settings), on_step=self._step, on_decision=self._decided)
        self.processor = LoopGuardSpanProcessor(self.guard)
        provider = TracerProvider(shutdown_on_exit=False, id_generator=Counting())
        provider.add_span_processor(self.processor)
        self.tracer: Tracer = provider.get_tracer("my.app")
        # The scope is known for tools from here on.
        tool_call(self.tracer, "look_up", args='{"q": "first"}')
        self.guard.settle()

    def _step(self, session: Session, index: int, step: Step) -> None:
        self.seen.append((session.key, index, step.kind, step.name, step.agent, step.parent_id))

    def _decided(self, session: Session, decision: Decision) -> None:
        self.seen.append((session.key, decision.action, decision.detector, decision.reason))

    def play(self, nodes: list[Node], machine: Clock, clock: Moved) -> None:
        """Spans as a tree says, each ended after those below it, or after its next sibling."""
        left: Span | None = None
        for kind, below in nodes:
            if kind == "wait":
                clock.advance(20)
                continue
            span = self._start(kind, machine)
            token = otel_context.attach(set_span_in_context(span))
            self.play(below, machine, clock)
            otel_context.detach(token)
            self._end(kind, span)
            if left is not None:
                left.end(machine.step())
                left = None
            if kind == "lingers":
                left = span
            else:
                span.end(machine.step())
        if left is not None:
            left.end(machine.step())

    def _start(self, kind: str, machine: Clock) -> Span:
        attributes = {"tool": TOOL, "agent": AGENT}.get(kind, {"http.method": "GET"})
        name = {"named": "invoke_agent b", "known": "execute_tool search"}.get(kind, f"a {kind}")
        return self.tracer.start_span(name, attributes=attributes, start_time=machine.step())

    def _end(self, kind: str, span: Span) -> None:
        span.set_attributes(ENDS.get(kind, {}))
        if kind == "failing":
            span.record_exception(ValueError("no"))


KINDS = st.sampled_from(
    ("plain", "plain", "lingers", "failing", "tool", "tool", "late tool", "bare tool", "known",
     "agent", "named", "late agent", "wait")
)  # fmt: skip
TREES = st.recursive(
    st.lists(st.tuples(KINDS, st.just([])), max_size=5),
    lambda inner: st.lists(st.tuples(KINDS, inner), max_size=5),
    max_leaves=30,
)


@example([
    ("agent", [("lingers", [("tool", [])]), ("plain", [("tool", []), ("tool", [])])]),
])  # fmt: skip
@example([("named", [
    ("lingers", [("agent", [])]), ("plain", [("tool", [("plain", [])]), ("tool", [])]),
    ("tool", []),
])])  # fmt: skip
@given(TREES)
def test_the_same_is_seen_and_decided_as_if_every_span_was_followed(nodes: list[Node]) -> None:
    """Steps, whose they are, decisions and stalls, whatever is below, beside or above."""
    runs: list[Run] = []
    for defers in (True, False):
        machine = Clock()
        with pytest.MonkeyPatch.context() as patch, otel_loopguard.set_testing(True) as clock:
            patch.setattr(rehearsal, "time", machine)
            patch.setattr(rehearsal, "_ahead", 0)
            rehearsal.moves.clear()
            if not defers:
                patch.setattr(ActiveSpans, "defer", lambda *_: False)
            run = Run(step_timeout_s=45.0)
            run.play(nodes, machine, clock)
            runs.append(run)
            assert not run.guard.active.deferred
            assert not run.guard.health()
            assert not len(run.guard.active)
    assert runs[0].seen == runs[1].seen


def test_a_span_of_no_interest_is_not_followed() -> None:
    """Neither at its start nor at its end; it counts as seen all the same."""
    run = Run()
    with agent(run.tracer), run.tracer.start_as_current_span("GET /") as span:
        span_id = span.get_span_context().span_id
        assert run.guard.follows(span_id)
        assert span_id not in run.guard.active.by_id
        assert len(run.guard.active) == 2
    assert not run.guard.follows(span_id)
    other = run.tracer.start_span("GET /")
    span_id = other.get_span_context().span_id
    run.guard.let_go(span_id)  # it is somebody else's
    assert not run.guard.follows(span_id)
    other.end()


def test_a_call_is_not_followed_until_somebody_asks_for_it() -> None:
    """Its arguments are known then, and so is the agent above it."""
    run = Run()
    kept: list[object] = []
    run.guard.subscribers.steps.append(("test", lambda seen: kept.append(seen.agent)))
    with agent(run.tracer), run.tracer.start_as_current_span("look", attributes=TOOL) as span:
        span_id = span.get_span_context().span_id
        assert run.guard.follows(span_id)
        assert span_id not in run.guard.active.by_id
        run.guard.tell(span_id, {"q": "y"}, "found")
        assert span_id in run.guard.active.by_id
    run.guard.settle()
    assert kept[0] == "a"
    assert not len(run.guard.active)


def test_an_agent_is_not_idle_while_something_of_no_interest_runs() -> None:
    """A request of two minutes is work, and so are many short ones."""
    with otel_loopguard.set_testing(True) as clock:
        run = Run(stall_idle_s=60.0)
        with agent(run.tracer):
            with run.tracer.start_as_current_span("GET /"):
                clock.advance(120)
            for _ in range(20):
                clock.advance(10)
                run.tracer.start_span("GET /").end()
            before = len(run.seen)
            clock.advance(61)
    assert not [seen for seen in run.seen[:before] if "idle" in str(seen)]
    assert [seen for seen in run.seen[before:] if "idle" in str(seen)]


def test_what_never_ends_is_bounded() -> None:
    """Where there is no more room, a span is followed at once, and the oldest goes."""
    with otel_loopguard.set_testing(True):
        run = Run(tuning={"stalls": {"open_steps": 50}})
        for _ in range(200):
            run.tracer.start_span("GET /")
        assert len(run.guard.active.deferred) == 50
        assert len(run.guard.active.by_id) == 50
