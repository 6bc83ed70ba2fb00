"""Several tools that say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import LoopGuard, Settings, control
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

if TYPE_CHECKING:
    from otel_loopguard.core import Step

DOWN = "Temporary data inconsistency detected, please retry the exact same query"


def said(run: Run) -> list[str]:
    """What this detector led to; others look at failures too."""
    return [found.action.value for found in run.decisions if found.detector == "outage"]


def test_one_error_from_several_tools_is_an_outage() -> None:
    """Three equal errors of three tools are noticed, then people are asked; nothing is aborted."""
    run = Run()
    run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert said(run) == ["hint", "pause"]
    assert run.decisions[0].reason == "same_from_several_tools"
    assert "abort" not in run.actions


def test_one_long_answer_from_several_tools_is_an_outage() -> None:
    """An answer that does not depend on what was asked, nor on whom, is none."""
    run = Run()
    run.calls(*[call(f"lookup_{n % 2}", {"city": n}, DOWN) for n in range(3)])
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "outage"
    assert run.decisions[0].step == 2


def test_short_answers_of_several_tools_coincide() -> None:
    """Two tools may both say "none"."""
    run = Run()
    run.calls(*[call(f"lookup_{n}", {"city": n}, "none") for n in range(9)])
    assert said(run) == []


def test_retries_at_once_are_noticed_and_then_held() -> None:
    """A transient error deserves a pause before the next try; the agent is not aborted for it."""
    run = Run()
    run.calls(*[call("search", {"q": 1}, error="503 Service Unavailable", at=n) for n in range(4)])
    assert run.actions == ["hint", "pause"]
    assert run.decisions[0].reason == "retry_without_pause"


def test_patient_retries_are_left_alone() -> None:
    """With seconds in between a transient error has its budget of time."""
    run = Run()
    steps = [call("s", {"q": 1}, error="429 Too Many Requests", at=12 * n) for n in range(4)]
    assert run.calls(*steps) == []


def test_a_retry_of_the_same_calls_with_patience_does_not_climb() -> None:
    """The first failure of each tool counts, the patient retries after it do not."""
    steps = [call(f"tool_{n % 2}", {"n": n % 2}, error=DOWN, at=20 * n) for n in range(12)]
    assert alone("outage", *steps) == []


def test_without_arguments_it_hints_at_most() -> None:
    """Where it is not known what was asked, nothing is held on an equal answer."""
    steps = [call(f"lookup_{n % 2}", None, DOWN) for n in range(12)]
    assert actions(alone("outage", *steps)) == ["hint"]


def test_a_real_answer_takes_two_fifths() -> None:
    """A tool that answers is not down."""
    steps = [
        step
        for n in range(8)
        for step in (
            call(f"lookup_{n % 2}", {"city": n}, DOWN),
            call(f"lookup_{n % 2}", {"town": n}, f"it is {n} degrees in this town, and windy"),
        )
    ]
    assert alone("outage", *steps) == []


def test_an_error_that_is_not_transient_is_one_tools_own() -> None:
    """One tool that fails in the same way is no outage."""
    steps = [call("ssh", {"n": n}, error="Permission denied (publickey)") for n in range(9)]
    assert alone("outage", *steps) == []


@pytest.mark.parametrize(("threshold", "step"), [(2, 1), (5, 4)])
def test_the_threshold_is_a_setting(threshold: int, step: int) -> None:
    """`error_threshold` equal answers of two tools."""
    steps = [call(f"oracle_{n % 2}", {"city": n}, DOWN) for n in range(8)]
    assert alone("outage", *steps, error_threshold=threshold)[0].step == step


def live(*steps: Step, **settings: Any) -> list[str]:
    """What the detector leads to in a live guard."""
    found: list[str] = []
    guard = LoopGuard(
        Settings(**settings),
        on_decision=lambda _, one: (
            found.append(one.action.value) if one.detector == "outage" else None
        ),
    )
    for step in steps:
        guard.observe(step, "live")
    guard.shutdown()
    return found


def test_nobody_is_waited_for_where_nobody_can_answer() -> None:
    """Without a webhook, store, socket or callback an outage leads to a hint in a live guard."""
    steps = [call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)]
    assert live(*steps) == ["hint"]
    forget = control.on_escalation(lambda escalation: None)
    try:
        assert live(*steps) == ["hint", "pause"]
    finally:
        forget()


def test_a_success_of_the_tool_ends_the_outage() -> None:
    """Two failures and a success for each item, at once after one another, are no outage."""
    run = Run()
    for number in range(20):
        at, args = 3.0 * number, {"item": number}
        for n in range(2):
            run.calls(call("fetch", args, error="503 Service Unavailable", at=at + n))
        run.calls(call("fetch", args, f"all about item {number} and {number * 7919:x}", at=at + 2))
    assert run.actions == []


def test_a_paused_run_says_how_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The warning of a pause names the command and the call that let the session go on."""
    run = Run()
    with caplog.at_level("WARNING", "otel_loopguard"):
        run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert "otel-loopguard resume run" in caplog.text
    assert "control.resume('run')" in caplog.text


def test_short_pauses_before_each_try_are_no_hurry() -> None:
    """Three tries for each item, two seconds apart and more, are not noticed."""
    run = Run()
    now = 0.0
    for item in range(8):
        for pause in (1.0, 2.0, 2.5):
            now += pause + 0.5
            run.calls(call("geocode", {"of": f"city {item}"}, error="429 Too Many", at=now))
        now += 3
        run.calls(call("geocode", {"of": f"city {item}"}, f"lies at {item}.5, 7.1", at=now))
    assert run.actions == []
