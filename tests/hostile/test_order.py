"""Spans that end twice, never, before they start, or share their ids; clocks that jump."""

import gc
import time
import weakref
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import RandomIdGenerator, TracerProvider

from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard.core import Kind, Step
from tests.agents import Ended, agent, provider_with, tool_call
from tests.calls import SECOND
from tests.hostile.rig import LOOP, TOOL, Rig, ended

DONE = {**TOOL, "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": "nothing found"}


def test_what_a_processor_that_was_added_twice_saw_counts_once_and_is_not_kept(rig: Rig) -> None:
    """A span may hold megabytes; the open ones and the ended ones go with their end."""
    ended_spans = Ended()
    for processor in (rig.processor, ended_spans):
        rig.provider.add_span_processor(processor)
    with agent(rig.tracer):
        for number in range(9):
            tool_call(rig.tracer, args=f'{{"n": {number}}}')
    assert [step.name for step in rig.steps] == ["search"] * 9 + ["a"]
    assert len(rig.guard.active) == 0
    left = [weakref.ref(span) for span in ended_spans.spans]
    ended_spans.spans.clear()
    rig.memory.clear()
    gc.collect()
    assert [one for one in left if one() is not None] == []


@pytest.mark.parametrize("first", [0, 1])
def test_two_processors_of_one_guard_on_some_providers_count_each_call_once(
    first: int, rig: Rig
) -> None:
    """The second one does not stay out where it is the only one."""
    other = LoopGuardSpanProcessor(rig.guard)
    alone = provider_with(other)
    rig.provider.add_span_processor(other)
    tracers = [rig.tracer, alone.get_tracer("my.agent")]
    for number in range(6):
        tracers[(first + number) % 2].start_span("execute_tool search", attributes=DONE).end()
        assert len(rig.steps) == number + 1


def test_an_end_without_a_start_counts(rig: Rig) -> None:
    """A processor that was added late sees ends only."""
    for number in range(3):
        rig.processor.on_end(ended(DONE, span_id=number, at=number))
    assert rig.actions == ["hint"]


class OneId(RandomIdGenerator):
    def generate_span_id(self) -> int:
        return 7


def test_equal_ids_lose_no_call(rig: Rig) -> None:
    """Spans that share one id are still counted call by call."""
    provider = TracerProvider(id_generator=OneId(), shutdown_on_exit=False)
    provider.add_span_processor(rig.processor)
    tracer = provider.get_tracer("my.agent")
    with agent(tracer):
        for number in range(30):
            tool_call(tracer, args=f'{{"n": {number}}}', result=f"answer {number}")
    assert len([step for step in rig.steps if step.name == "search"]) == 30


NOW = time.time_ns()
TIMES: dict[str, tuple[Any, Any]] = {
    "end before start": (NOW, NOW - 10**12),
    "an end before any start": (None, 1),
    "start 0": (0, NOW),
    "both 0": (0, 0),
    "far future": (NOW + 10**18, NOW + 10**18),
    "a start in the future": (NOW + 10**18, None),
    "before the epoch": (-(10**18), -5),
    "a start before the epoch": (-5, None),
    "past 64 bits": (2**70, 2**71),
    "fractions": (NOW + 0.5, NOW + 0.75),
    **{str(odd): (odd, None) for odd in (float("nan"), float("inf"), float("-inf"), "soon", [])},
}


@pytest.mark.parametrize(("start", "end"), TIMES.values(), ids=TIMES.keys())
def test_times_that_cannot_be_lose_no_call_and_hide_no_loop(start: Any, end: Any, rig: Rig) -> None:
    """They are read past: calls seemed to be years apart, which is how an agent waits."""
    for number in range(LOOP):
        own = {**DONE, "gen_ai.conversation.id": "s"}
        span = rig.tracer.start_span("execute_tool search", attributes=own, start_time=start)
        span.end(end)
        assert end is None or rig.exported[-1].end_time == end
        assert len(rig.steps) == number + 1
    rig.guard.tick(NOW)
    assert rig.actions == ["hint", "deny", "abort"]


def test_a_chain_of_turns_that_start_the_next_one_is_not_kept(rig: Rig) -> None:
    """An agent whose every turn starts the next and then ends does not keep all turns alive."""
    last = rig.tracer.start_span("turn", attributes=TOOL)
    for _ in range(500):
        turn = rig.tracer.start_span("turn", trace.set_span_in_context(last), attributes=TOOL)
        last.end()
        last = turn
    place, length = rig.guard.active.by_id.get(last.get_span_context().span_id), 0
    while place is not None:
        place, length = place.parent, length + 1
    assert length < 10


RUN = {"gen_ai.operation.name": "invoke_agent"}


class Unreadable:
    """A name, which the SDK takes for one, that cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no name")


def opened(rig: Rig, **more: Any) -> trace.Span:
    return rig.tracer.start_span("execute_tool search", attributes=TOOL, **more)


def ids_of(spans: list[trace.Span]) -> set[int]:
    return {span.get_span_context().span_id for span in spans}


def late(rig: Rig) -> None:
    """Ticks the guard as though two hours had passed, and five times more."""
    for more in range(6):
        rig.guard.tick(time.time_ns() + 7200 * SECOND + more * SECOND)


@pytest.mark.usefixtures("no_raise")
def test_an_unreadable_open_span_is_one_fault() -> None:
    """The calls that were opened before and after it are found to hang, in the same tick."""
    rig = Rig()
    spans = [opened(rig) for _ in range(2)]
    bad = rig.tracer.start_span("a run", attributes=RUN)
    rig.guard.settle()  # it can be read when it starts
    bad.update_name(Unreadable())  # type: ignore[arg-type]
    spans += [opened(rig) for _ in range(2)]
    rig.guard.tick(time.time_ns() + 7200 * SECOND)
    assert {found.span_id for found in rig.decisions} == ids_of(spans)
    late(rig)
    assert rig.faults == {"stall:RuntimeError": 1}


@pytest.mark.usefixtures("no_raise")
def test_a_run_that_cannot_be_read_any_more_does_not_hide_its_calls() -> None:
    """A call below it is still found to hang."""
    rig = Rig()
    with rig.tracer.start_as_current_span("a run", attributes=RUN) as run:
        rig.guard.settle()
        run.update_name(Unreadable())  # type: ignore[arg-type]
        call = opened(rig)
        late(rig)
        run.update_name("a run")
    assert ids_of([call]) <= {found.span_id for found in rig.decisions}
    assert list(rig.faults.values()) == [1]


@pytest.mark.parametrize(
    "start",
    [float("nan"), float("inf"), float("-inf"), "soon", [], 1.5, NOW + 10**18],
    ids=["nan", "inf", "-inf", "text", "list", "seconds", "in 30 years"],
)
def test_a_start_that_is_no_time_is_unknown(start: Any, rig: Rig) -> None:
    """Ticks end, and find that it hangs, and what else does."""
    spans = [opened(rig, start_time=one) for one in (start, None)]
    late(rig)
    assert {decision.span_id for decision in rig.decisions} == ids_of(spans)


@pytest.mark.usefixtures("no_raise")
def test_a_held_step_that_cannot_be_counted_keeps_no_other_back() -> None:
    """Of the steps that waited for a twin the others are counted."""
    rig, places = Rig(), {"bad": [], "good": 7}
    rig.guard._count([Step(Kind.TOOL, name, trace_id=at) for name, at in places.items()])  # type: ignore[arg-type]
    assert [step.name for step in rig.steps] == ["good"]
    assert rig.faults == {"held:TypeError": 1}
