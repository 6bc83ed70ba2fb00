"""Calls that fail again and again: what `errors.txt` cannot say."""

from __future__ import annotations

import pytest

from otel_loopguard import LoopGuard, control
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call

DOWN = "Temporary data inconsistency detected, please retry the exact same query"
OUTAGE = [call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)]


def live() -> list[str]:
    """What an outage leads to in a live guard."""
    found: list[str] = []
    guard = LoopGuard(
        on_decision=lambda _, one: found.append(f"{one.detector}: {one.action}"),
    )
    for step in OUTAGE:
        guard.observe(step, "live")
    guard.shutdown()
    return [one for one in found if one.startswith("outage")]


def test_nobody_is_waited_for_where_nobody_can_answer(caplog: pytest.LogCaptureFixture) -> None:
    """Where somebody can, the warning names the command and the call that let it go on."""
    assert live() == ["outage: hint"]
    forget = control.on_escalation(lambda escalation: None)
    try:
        assert live() == ["outage: hint", "outage: pause"]
    finally:
        forget()
    assert "otel-loopguard resume live" in caplog.text
    assert "control.resume('live')" in caplog.text


def unanswered(times: int, gap_s: float, **given: str) -> list[Step]:
    """Failing model calls of half a second, so far from each other."""
    error = {"error_text": "Error code: 400 - the context is too long", **given}
    starts = [EPOCH + round(n * (gap_s + 0.5) * SECOND) for n in range(times)]
    return [
        Step(Kind.MODEL, "m", agent="w", error=True, start=start, end=start + SECOND // 2, **error)
        for start in starts
    ]


@pytest.mark.parametrize(
    "steps",
    [unanswered(20, -0.5), unanswered(20, 0.1, error_type="loopguard_abort")],
    ids=["side by side", "our own"],
)
def test_model_calls_that_failed_at_once_or_by_us_are_let_be(steps: list[Step]) -> None:
    run = Run()
    run.calls(*steps)
    assert run.decisions == []


def test_a_model_that_works_again_ends_what_its_failures_led_to() -> None:
    """The flag is lowered, and the next failure is the first one."""
    run = Run()
    run.calls(*unanswered(10, 0.1))
    flag = run.guard.flag_named("run")
    assert flag.control.action == "deny"
    run.calls(Step(Kind.MODEL, "m", agent="w", text="Now it fits."))
    assert flag.control.action == "allow"
    run.calls(*unanswered(5, 0.1))
    assert [(one.step, one.action) for one in run.decisions] == [(5, "hint"), (9, "deny")]
