"""Calls that fail again and again."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call
from tests.detectors.alone import actions, alone

USER = Step(Kind.OTHER, "user", text="try it again, please")


def test_failures_without_text_are_not_equal() -> None:
    """A failure that says nothing is equal to nothing."""
    steps = [call("s", {"q": n}) for n in range(20)]
    for step in steps:
        step.error = True
    assert alone("error_repeat", *steps) == []


def test_what_an_error_quotes_does_not_tell_it_apart() -> None:
    """Equal but for what it repeats from the arguments: each counts four fifths."""
    steps = [
        call("read", {"path": name}, error=f"FileNotFoundError: no such file: '{name}'")
        for name in ("alpha.py", "beta.py", "gamma.py", "delta.py")
    ]
    decisions = alone("error_repeat", *steps)
    assert [(one.step, one.count) for one in decisions] == [(3, 3.4)]


WORDS = "hinge bolt spring wheel lever crank valve screw panel cable motor plate".split()


def broken(number: int, **given: Any) -> Step:
    """A call that fails in its own way."""
    word = WORDS[number % len(WORDS)]
    return call(f"tool_{number % 3}", {"part": number}, error=f"the {word} is odd", **given)


def fine(number: int) -> Step:
    """A call that works."""
    return call("tool_0", {"good": number}, f"part {number} is fine")


def test_three_failures_of_four_are_too_many() -> None:
    """Eight of the newest ten, although some went well."""
    steps = [fine(n) if n % 4 == 0 else broken(n) for n in range(12)]
    (decision,) = alone("error_rate", *steps)
    assert (decision.step, decision.reason, decision.count) == (10, "error_rate", 8)
    assert decision.threshold == 7.5


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([broken(n) for n in range(5)], id="five in a row"),
        pytest.param(
            [fine(n) if n % 3 == 0 else broken(n) for n in range(40)], id="two of three fail"
        ),
        pytest.param([broken(n, at=0.001 * n, took=1) for n in range(12)], id="one parallel round"),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (
                    broken(2 * n, at=10 * n, took=5),
                    call("read", {"n": n}, f"text {n}", at=10 * n + 1, took=1),
                )
            ],
            id="one of each round goes well",
        ),
        pytest.param(
            [call("s", {"q": 1}, error="429 Too Many Requests", at=12 * n) for n in range(8)],
            id="patient retries",
        ),
        pytest.param([call("job", {"id": 9}, "pending", at=30 * n) for n in range(12)], id="waits"),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """Some failures, fan-outs, retries with patience and waits are normal."""
    decisions = alone("error_rate", *steps)
    # The first of the patient retries are failures like others.
    assert actions(decisions) == []


def test_the_rate_is_a_setting() -> None:
    """`error_rate` of the newest rounds."""
    steps = [fine(n) if n % 2 == 0 else broken(n) for n in range(20)]
    assert alone("error_rate", *steps) == []
    assert actions(alone("error_rate", *steps, tuning={"calls": {"error_rate": 0.5}}))[:1] == [
        "hint"
    ]


DOWN = "Temporary data inconsistency detected, please retry the exact same query"


def said(run: Run) -> list[str]:
    """What this detector led to; others look at failures too."""
    return [found.action.value for found in run.decisions if found.detector == "outage"]


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


def test_a_paused_run_says_how_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The warning of a pause names the command and the call that let the session go on."""
    run = Run()
    with caplog.at_level("WARNING", "otel_loopguard"):
        run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert "otel-loopguard resume run" in caplog.text
    assert "control.resume('run')" in caplog.text


FAILED = "Collecting frob\n  Building wheel: started\nERROR: Failed to build frob"


def built(times: int, said: str = FAILED, tool: str = "bash") -> list[Step]:
    """A build that fails, and beside it other packages are installed."""
    return [
        step
        for n in range(times)
        for step in (
            call(tool, {"command": f"pip install frob==1.{n}"}, error=said),
            call(tool, {"command": f"pip install lib{n}"}, f"Successfully installed lib{n}"),
        )
    ]


def test_same_failure_a_user_turn_halves_it() -> None:
    """What failed before was tried for something else."""
    steps = built(7)
    assert alone("same_verdict", *steps[:8], USER, *steps[8:]) == []


RATE = "Error code: 429 - Rate limit reached for requests. Try again in 2.1s."
LENGTH = "Error code: 400 - This model's maximum context length is 128000 tokens, not 131072."


def unanswered(gaps: list[float], error: str = LENGTH, agent: str = "writer") -> list[Step]:
    """Failing model calls of half a second, `gaps` seconds after each other."""
    steps: list[Step] = []
    at = 0.0
    for gap in gaps:
        start = EPOCH + round((at + gap) * SECOND)
        steps.append(
            Step(
                Kind.MODEL, "m", agent=agent, error=True, error_text=error,
                start=start, end=start + SECOND // 2,
            )
        )  # fmt: skip
        at += gap + 0.5
    return steps


def where(run: Run) -> list[str]:
    """Step and action of its decisions."""
    return [f"{found.step} {found.action}" for found in run.decisions]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(unanswered([0, 1, 2, 4, 8, 16, 32, 60, 60, 60], RATE), id="growing pauses"),
        pytest.param(unanswered([5.0] * 20, RATE), id="pauses"),
        pytest.param(unanswered([-0.5] * 20, RATE), id="side by side"),
        pytest.param(
            [step for error in [LENGTH, RATE] * 10 for step in unanswered([0], error)],
            id="different",
        ),
        pytest.param(
            [step for name in "abcd" for step in unanswered([0.1] * 5, LENGTH, name)], id="agents"
        ),
        pytest.param(
            [Step(Kind.MODEL, "m", error=True, error_type="loopguard_abort")] * 20, id="our own"
        ),
        pytest.param([Step(Kind.MODEL, "m", error=True)] * 20, id="unknown"),
    ],
)
def test_model_calls_that_wait_or_fail_otherwise_are_let_be(steps: list[Step]) -> None:
    """Back-off, parallel calls, and errors that are not equal."""
    run = Run()
    run.calls(*steps)
    assert where(run) == []


def test_a_model_that_works_again_ends_what_its_failures_led_to() -> None:
    """The flag is lowered, and the next failure is the first one."""
    run = Run()
    run.calls(*unanswered([0.1] * 10))
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "deny"
    run.calls(Step(Kind.MODEL, "m", agent="writer", text="Now it fits."))
    assert flag.control.action == "allow"
    run.calls(*unanswered([0.1] * 5))
    assert where(run) == ["5 hint", "9 deny"]
