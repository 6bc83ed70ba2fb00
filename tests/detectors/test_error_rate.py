"""Nearly everything fails, each time in its own way."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

WORDS = "hinge bolt spring wheel lever crank valve screw panel cable motor plate".split()
USER = Step(Kind.OTHER, "user", text="try the other machine")


def broken(number: int, **given: Any) -> Step:
    """A call that fails in its own way."""
    word = WORDS[number % len(WORDS)]
    return call(f"tool_{number % 3}", {"part": number}, error=f"the {word} is odd", **given)


def fine(number: int) -> Step:
    """A call that works."""
    return call("tool_0", {"good": number}, f"part {number} is fine")


def test_six_failures_in_a_row_are_too_many() -> None:
    """Whatever fails, and however: a hint, then another way, and no more."""
    decisions = alone("error_rate", *[broken(n) for n in range(12)])
    assert actions(decisions) == ["hint", "steer"]
    assert [decision.step for decision in decisions] == [5, 7]
    assert decisions[0].reason == "error_streak"
    assert decisions[0].message.startswith("the last 6 rounds of calls failed")


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


def test_retries_at_once_count() -> None:
    """Without a pause a transient error is a failure like another."""
    steps = [call("s", {"q": n}, error="429 Too Many Requests", at=n) for n in range(8)]
    assert actions(alone("error_rate", *steps))[:1] == ["hint"]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"exit_code": 1, "output": "odd"}, id="exit code"),
        pytest.param({"status": "failed", "why": "odd"}, id="status"),
        pytest.param({"success": False, "why": "odd"}, id="success"),
        pytest.param("Error: it is odd", id="first word"),
        pytest.param('{"error": "it is odd"}', id="JSON text"),
        pytest.param('Traceback (most recent call last):\n  File "a.py"\nOdd: 1', id="traceback"),
    ],
)
def test_an_answer_that_reports_a_failure_is_one(said: object) -> None:
    """Tools report failures in their answers too."""
    steps = [call("bash", {"command": f"./run {n}"}, said) for n in range(6)]
    assert actions(alone("error_rate", *steps)) == ["hint"]


def test_a_success_ends_a_streak() -> None:
    """Five failures, a success, five failures: half a dozen were not in a row."""
    steps = [*(broken(n) for n in range(5)), fine(0), fine(1), fine(2)]
    assert alone("error_rate", *steps, *(broken(n) for n in range(5))) == []


def test_a_user_begins_anew() -> None:
    """What failed before was asked for something else."""
    steps = [broken(n) for n in range(10)]
    assert alone("error_rate", *steps[:5], USER, *steps[5:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        pytest.param({"tuning": {"calls": {"error_streak": 4}}}, 3, id="shorter streak"),
        pytest.param({"tuning": {"calls": {"error_streak": 100}}}, 9, id="rate only"),
        pytest.param(
            {"tuning": {"calls": {"error_streak": 100, "error_rate_rounds": 14}}},
            13,
            id="more rounds",
        ),
        pytest.param({"sensitivity": 2}, 2, id="twice as sensitive"),
        pytest.param({"sensitivity": 0.5}, 11, id="half as sensitive"),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`error_streak`, `tuning.calls.error_rate_rounds` and `sensitivity`."""
    steps = [broken(n) for n in range(24)]
    assert (
        alone(
            "error_rate",
            *steps,
            **{"tuning": {"calls": {"error_rate": 0.75, "error_rate_rounds": 10}}, **settings},
        )[0].step
        == first
    )


def test_the_rate_is_a_setting() -> None:
    """`error_rate` of the newest rounds."""
    steps = [fine(n) if n % 2 == 0 else broken(n) for n in range(20)]
    assert alone("error_rate", *steps) == []
    assert actions(alone("error_rate", *steps, tuning={"calls": {"error_rate": 0.5}}))[:1] == [
        "hint"
    ]
