"""Values that users hold: equal by their fields, shown by them, hashed where they are frozen."""

import copy
import pickle
import re
from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSampler,
    LoopGuardSpanExporter,
    control,
    errors,
    resilience,
    set_testing,
    setup,
    testing,
    turn,
)
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Fix
from otel_loopguard.integrations._adapter import Adapter
from otel_loopguard.plans import Task
from tests.calls import Run, call


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


def _traced(processor: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(processor)
    provider.get_tracer("agent").start_span("step")


def _registered(*given: Any) -> None:
    LoopGuard()
    resilience.checks().register(*given)


def _called(*given: Any) -> None:
    with turn("of a wrong type") as now:
        now.tool(*given)


def _advanced(*, seconds: Any) -> None:
    with set_testing() as clock:
        clock.advance(seconds)


def _asserted(*, min_steps: Any) -> None:
    with testing.watching("own") as watched:
        watched.assert_no_loops(min_steps=min_steps)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: LoopGuard({"mode": "shadow"}), "expected Settings, got dict"),
        (lambda: LoopGuard(clock="real"), "clock must be"),
        (lambda: LoopGuard(on_decision="print"), "expected a function, got str"),
        (lambda: LoopGuard().observe(Step("tool", "search"), "run"), "expected a Step"),
        (lambda: LoopGuard().observe("search", "run"), "expected a Step"),
        (lambda: LoopGuardSampler("always_on"), "expected a Sampler, got str"),
        (lambda: control.on_decision(None), "expected a function, got NoneType"),
        (lambda: control.on_escalation("ask"), "expected a function, got str"),
        (lambda: _traced(LoopGuard()), r"add LoopGuardSpanProcessor\(guard\)"),
        (lambda: setup(TracerProvider()), r"setup\(tracer_provider=\.\.\.\)"),
        (lambda: LoopGuardSpanExporter(LoopGuard()), "expected a SpanExporter"),
        (lambda: LoopGuardSpanExporter({"otlp": 3}), "exporter 'otlp': expected its options"),
        (lambda: control.gate("5"), "limit_s must be a number, got '5'"),
        (lambda: Adapter("any", limit_s="5"), "limit_s must be a number, got '5'"),
        (lambda: Adapter("any", content="yes"), "content: expected True, False or None"),
        (lambda: Adapter("any", on_choice=True), "on_choice: expected a function"),
        (lambda: Adapter("any", limit=5), "no option 'limit': every adapter takes spans"),
        (lambda: Adapter("any", mode="shadow"), r"setup\(mode=\.\.\.\)"),
        (lambda: resilience.syntax("yaml"), "one of python, json, toml, got 'yaml'"),
        (lambda: _registered("empty", 3), "check 'empty': expected a function, got int"),
        (lambda: _called("search", print, {}), "expected a function, got dict"),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_at_once(make: Any, why: str) -> None:
    """Later it would be raised into the agent, or nothing would ever be found."""
    with pytest.raises((TypeError, ValueError), match=why):
        make()


NUMBERS: list[tuple[Any, str, bool]] = [
    (resilience.retrying, "limit", True),
    (resilience.retrying, "delay_s", False),
    (resilience.retrying, "max_delay_s", False),
    (resilience.longer_limit, "factor", False),
    (resilience.longer_limit, "most_s", False),
    (resilience.resources, "memory_mb", False),
    (resilience.resources, "disk_mb", False),
    (partial(resilience.recovering, "edit"), "limit_s", False),
    (partial(Task, "read"), "priority", False),
    (partial(Task, "read"), "estimate_ms", False),
    (
        lambda attempts: resilience.recoveries().register("again", print, attempts=attempts),
        "attempts",
        True,
    ),
    (partial(resilience.Checkpoints, resilience.Callbacks(str, print)), "keep", True),
    (partial(resilience.GitWorkspace, "."), "limit_s", False),
    (partial(control.milestone, "read"), "of", True),
    (lambda share: control.milestones({"a": share}), "share", False),
    (partial(turn, "run"), "limit_s", False),
    (lambda limit_s: LoopGuard().settle(limit_s), "limit_s", False),
    (lambda limit_s: LoopGuard().flush(limit_s), "limit_s", False),
    (set_testing, "gate_limit_s", False),
    (_advanced, "seconds", False),
    (_asserted, "min_steps", True),
]


@pytest.mark.parametrize(("ask", "option", "whole"), NUMBERS)
def test_a_number_that_is_none_is_named_at_once(ask: Any, option: str, whole: bool) -> None:
    """With its value: as a text it failed somewhere inside, or in the middle of a run."""
    for wrong in ("3", True, [3], *([2.5] if whole else [])):
        with pytest.raises(
            TypeError, match=rf"{option}.* a .*number, got {re.escape(repr(wrong))}"
        ):
            ask(**{option: wrong})


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
