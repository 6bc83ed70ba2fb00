"""Everyday work as spans of a real tracer, on a clock that is moved from one to the next."""

from __future__ import annotations

import json
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.trace import Span, Status, StatusCode

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, set_testing
from otel_loopguard.core import Decision, Kind, Step
from tests.scenarios.families import EVERYDAY, HINTED, STUCK, Family
from tests.scenarios.test_families import families, result

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SEEDS = range(2)
"""One without model calls, one with."""


def live(steps: list[Step], **limits: Any) -> list[Decision]:
    """What a guard decides about a run of which it gets the spans."""
    decided: list[Decision] = []
    guard = LoopGuard(on_decision=lambda _, one: decided.append(one))
    provider = TracerProvider(span_limits=SpanLimits(**limits), shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    tracer = provider.get_tracer("agent")
    ends = [(step.start, 1, number) for number, step in enumerate(steps)]
    ends += [(step.end, 0, number) for number, step in enumerate(steps)]
    # A call that takes no time begins before it ends.
    ends.sort(key=lambda one: (one[0], one[2], -one[1]))
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
    with ExitStack() as stack:
        clock = stack.enter_context(set_testing(True))
        stack.enter_context(tracer.start_as_current_span("invoke_agent clerk", attributes=agent))
        now, spans = ends[0][0], dict[int, Span]()
        for at, begins, number in ends:
            clock.advance((at - now) / 1e9)
            now = at
            if begins:
                spans[number] = begun(tracer, steps[number])
            else:
                ended(spans.pop(number), steps[number])
    provider.shutdown()
    return [one for one in decided if one.action.rank]


def begun(tracer: Tracer, step: Step) -> Span:
    """The span of a step, with what is known at its start."""
    if step.kind is Kind.MODEL:
        return tracer.start_span("chat gpt", attributes={"gen_ai.operation.name": "chat"})
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name or ""}
    if step.args is not None:
        attributes["gen_ai.tool.call.arguments"] = json.dumps(step.args)
    return tracer.start_span(f"execute_tool {step.name}", attributes=attributes)


def ended(span: Span, step: Step) -> None:
    """Ends the span of a step with its result."""
    if step.kind is Kind.MODEL:
        said = {"role": "assistant", "parts": [{"type": "text", "content": step.text}]}
        span.set_attribute("gen_ai.output.messages", json.dumps([said]))
    elif step.error:
        span.set_status(Status(StatusCode.ERROR, step.error_text))
    elif step.outcome is not None:
        text = step.outcome if isinstance(step.outcome, str) else json.dumps(step.outcome)
        span.set_attribute("gen_ai.tool.call.result", text)
    span.end()


def plain(family: Family) -> bool:
    """Whether a family has nothing but calls of tools and models, of one agent."""
    steps = [step for seed in SEEDS for step in family.run(seed)[0]]
    return all(step.kind in (Kind.TOOL, Kind.MODEL) and step.agent is None for step in steps)


def beside(steps: list[Step]) -> bool:
    """Whether calls overlap, which end in another order, or a result is no text, as a span has."""
    overlaps = any(later.start < step.end for step, later in pairwise(steps))
    return overlaps or any(isinstance(step.outcome, dict) for step in steps)


@pytest.mark.parametrize("family", families([one for one in EVERYDAY if plain(one)]))
def test_everyday_work_is_not_stopped(family: Family) -> None:
    """Nor noticed, where the family does not say that it may be."""
    for seed in SEEDS:
        decided = live(family.run(seed)[0])
        assert [one for one in decided if one.action.stops] == []
        assert family.name in HINTED or decided == []


@pytest.mark.parametrize("family", families([one for one in [*EVERYDAY, *STUCK] if plain(one)]))
def test_it_is_decided_as_in_a_recording(family: Family) -> None:
    """The same at the same step; only a live pause needs somebody who can answer it."""
    for seed in SEEDS:
        steps = family.run(seed)[0]
        said = tuple(f"{one.step} {one.action.value} {one.reason}" for one in live(steps))
        recorded = result(family, seed).said
        paused = any(" pause " in one for one in recorded)
        assert paused or beside(steps) or said == recorded


@pytest.mark.parametrize("limit", [128, 1000, 4000])
def test_a_result_that_the_tracer_cuts_is_equal_by_a_guess(limit: int) -> None:
    """A log that grows behind the limit of an attribute: a hint at most."""
    lines = (f"{number}: the {number * 7919 % 1000}th is done\n" for number in range(200))
    log = "".join(lines)
    steps = [
        Step(Kind.TOOL, "read_output", args={"process": 7}, outcome=log + "." * number,
             start=number * 10**9, end=number * 10**9 + 1000)
        for number in range(1, 15)
    ]  # fmt: skip
    assert {one.action.value for one in live(steps, max_span_attribute_length=limit)} <= {"hint"}
