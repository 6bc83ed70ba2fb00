"""One open span that cannot be looked at keeps nobody else from being looked at."""

from __future__ import annotations

import time

import pytest

from otel_loopguard.core import Kind, Step
from tests.bad_input.rig import TOOL, Rig
from tests.calls import SECOND

RUN = {"gen_ai.operation.name": "invoke_agent"}


class Unreadable:
    """A name, which the SDK takes for one, that cannot be read."""

    def __str__(self) -> str:
        msg = "no name"
        raise RuntimeError(msg)


def late(rig: Rig) -> None:
    """Ticks the guard as though two hours had passed, and five times more."""
    for more in range(6):
        rig.guard.tick(time.time_ns() + 7200 * SECOND + more * SECOND)


@pytest.mark.usefixtures("no_raise")
def test_an_unreadable_open_span_is_one_fault() -> None:
    """The calls that were opened before and after it are found to hang, in the same tick."""
    rig = Rig()
    spans = [rig.tracer.start_span("execute_tool search", attributes=TOOL) for _ in range(2)]
    bad = rig.tracer.start_span("a run", attributes=RUN)
    rig.guard.settle()  # it can be read when it starts
    bad.update_name(Unreadable())  # type: ignore[arg-type]
    spans += [rig.tracer.start_span("execute_tool search", attributes=TOOL) for _ in range(2)]
    rig.guard.tick(time.time_ns() + 7200 * SECOND)
    ids = {span.get_span_context().span_id for span in spans}
    assert {found.span_id for found in rig.decisions} == ids
    late(rig)
    assert rig.faults == {"stall:RuntimeError": 1}


@pytest.mark.usefixtures("no_raise")
def test_a_run_that_cannot_be_read_any_more_does_not_hide_its_calls() -> None:
    """A call below it is still found to hang."""
    rig = Rig()
    with rig.tracer.start_as_current_span("a run", attributes=RUN) as run:
        rig.guard.settle()
        run.update_name(Unreadable())  # type: ignore[arg-type]
        call = rig.tracer.start_span("execute_tool search", attributes=TOOL)
        late(rig)
        run.update_name("a run")
    assert call.get_span_context().span_id in {found.span_id for found in rig.decisions}
    assert list(rig.faults.values()) == [1]


@pytest.mark.parametrize("start", [float("nan"), float("inf"), float("-inf"), "soon", [], 1.5])
def test_a_start_that_is_no_time_is_unknown(start: object) -> None:
    """Ticks end, and find what else hangs; the span ends as any other."""
    rig = Rig()
    bad = rig.tracer.start_span("execute_tool search", attributes=TOOL, start_time=start)  # type: ignore[arg-type]
    good = rig.tracer.start_span("execute_tool search", attributes=TOOL)
    late(rig)
    found = {decision.span_id for decision in rig.decisions}
    assert found == {one.get_span_context().span_id for one in (bad, good)}
    bad.end()
    good.end()
    assert rig.faults == {}
    assert len(rig.steps) == 2


@pytest.mark.usefixtures("no_raise")
def test_a_held_step_that_cannot_be_counted_keeps_no_other_back() -> None:
    """Of the steps that waited for a twin the others are counted."""
    rig = Rig()
    bad, good = Step(Kind.TOOL, "bad", trace_id=[]), Step(Kind.TOOL, "good", trace_id=7)  # type: ignore[arg-type]
    rig.guard._count((bad, good))
    assert [step.name for step in rig.steps] == ["good"]
    assert rig.faults == {"held:TypeError": 1}
