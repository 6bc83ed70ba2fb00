"""Calls, and spans of no interest: decided is what would be if each was followed."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, Tracer, set_span_in_context

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard._util import clock as rehearsal
from otel_loopguard._util.clock import TestMode as Moved
from otel_loopguard.core import Decision, Step
from otel_loopguard.sessions import Session
from otel_loopguard.sessions.active import ActiveSpans
from tests.agents import agent, tool_call

TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
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
        if kind in ("tool", "late tool", "known"):
            span.set_attributes(TOOL)
            span.set_attribute("gen_ai.tool.call.arguments", '{"q": "x"}')
            span.set_attribute("gen_ai.tool.call.result", "nothing found")
        elif kind == "bare tool":
            span.set_attributes(TOOL)
        elif kind == "late agent":
            span.set_attributes(AGENT)
        elif kind == "failing":
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
