"""Values that users hold: equal by their fields, shown by them, hashed where they are frozen."""

import copy
import math
import pickle
import re
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

import otel_loopguard
from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardPaused,
    errors,
    execution,
    resilience,
    set_testing,
    testing,
    turn,
)
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Fix
from otel_loopguard.detectors.llm_judge import Opinion
from otel_loopguard.integrations._adapter import Adapter
from otel_loopguard.plans import Task
from tests.calls import Run, call
from tests.tables import rows


def test_values_of_equal_fields_are_equal() -> None:
    """As are their hashes and copies; a value of another class never is. None is changed."""
    one, same, other = Fix("Wait."), Fix("Wait.", "low"), Fix("Wait.", "high")
    assert one == same == copy.copy(one) == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert {one, same, other} == {one, other}
    assert one != other
    assert one != ("Wait.", "low")
    with pytest.raises(AttributeError, match="risk"):
        one.risk = "high"  # pyright: ignore[reportAttributeAccessIssue]


def traced(processor: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    provider.get_tracer("agent").start_span("step")


def called(*given: Any) -> None:
    with turn("of a wrong type") as now:
        now.tool(*given)


def entered(block: Any) -> None:
    with block:
        pass


def advanced(seconds: Any) -> None:
    with set_testing() as clock:
        clock.advance(seconds)


def asserted(min_steps: Any) -> None:
    with testing.watching("own") as watched:
        watched.assert_no_loops(min_steps=min_steps)


ASKED = {
    **{name: getattr(otel_loopguard, name) for name in otel_loopguard.__all__},
    **{one.__name__: one for one in (traced, called, entered, advanced, asserted)},
    **{one.__name__: one for one in (Adapter, ConsoleSpanExporter, Opinion, Step)},
    **{one.__name__: one for one in (Task, TracerProvider)},
    "execution": execution, "resilience": resilience, "nan": math.nan, "inf": math.inf,
}  # fmt: skip
"""What the rows of the table name."""


@pytest.mark.parametrize(("asked", "kind", "why"), rows(__file__, "wrong"))
def test_what_cannot_be_is_an_error_at_once(asked: str, kind: str, why: str) -> None:
    """Later it would be raised into the agent, or nothing would ever be found."""
    guard = otel_loopguard.LoopGuard()  # without one nobody has preferences
    with pytest.raises((TypeError, ValueError)) as error:
        eval(asked, ASKED)
    guard.shutdown()
    assert type(error.value).__name__ == kind
    assert why in str(error.value)


@pytest.mark.parametrize(("asked", "option", "whole"), rows(__file__, "numbers"))
def test_a_number_that_is_none_is_named_at_once(asked: str, option: str, whole: str) -> None:
    """With its value: as a text it failed somewhere inside, or in the middle of a run."""
    for wrong in ("'3'", "True", "[3]", *(["2.5"] if whole else [])):
        with pytest.raises(TypeError, match=rf"{option}.* a .*number, got {re.escape(wrong)}"):
            eval(asked.replace("<number>", wrong), ASKED)


def test_what_was_read_off_a_step_is_no_part_of_it() -> None:
    """Nor can a step be hashed, as it may be changed."""
    step, parsed = Step(Kind.TOOL, "search"), Step(Kind.TOOL, "search", reading=object())
    assert step == parsed
    with pytest.raises(TypeError, match="unhashable"):
        hash(step)


def _stops() -> list[errors.LoopGuardError]:
    run = Run()
    run.calls(*(call("search", {"q": "x"}, "nothing was found", at=n) for n in range(9)))
    decision = run.decisions[-1]
    return [
        LoopGuardAbort("it is over", "chat-1", decision, ["part"], "policy"),
        LoopGuardPaused("it waits", "chat-1", by="anna"),
        errors.LoopGuardLimit("too late", 1.5, "search"),
        errors.StoreError("it is full", "full"),
        errors.PlanError("not sound"),
        errors.LoopGuardSettingsError("wrong"),
    ]


@pytest.mark.parametrize("error", _stops(), ids=lambda error: type(error).__name__)
def test_an_error_is_read_in_another_process(error: errors.LoopGuardError) -> None:
    """An abort in a worker broke the whole pool of processes, or hung it.

    Celery makes an error again from its message alone.
    """
    for same in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(same) is type(error)
        assert (str(same), same.args, vars(same)) == (str(error), error.args, vars(error))
    alone = type(error)(*error.args)
    assert str(alone) == str(error)
    if isinstance(alone, errors.LoopGuardStop):
        assert alone.as_dict()["message"] == str(error)
