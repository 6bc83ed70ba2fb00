"""What is tried is turned down with the same words."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

VERDICT = "2 tests did not pass: test_a, test_b"
USER = Step(Kind.OTHER, "user", text="try something else")


def tried(times: int, said: str = VERDICT, **given: Any) -> list[Step]:
    """A change and a check, over and over."""
    return [
        step
        for n in range(times)
        for step in (
            call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
            call("run_tests", {"at": n}, said, **given),
        )
    ]


def test_six_equal_verdicts_give_a_hint() -> None:
    """It is told once, and left at that for long."""
    steps = [call("run_tests", {"at": n}, VERDICT) for n in range(19)]
    decisions = alone("same_verdict", *steps)
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 5
    assert decisions[0].message == (
        "'run_tests' turned down what was tried 6 times with an equal answer"
    )


def test_changes_in_between_do_not_matter() -> None:
    """But for what fades: with an edit before each it is the seventh."""
    decisions = alone("same_verdict", *tried(20))
    assert [(decision.step, decision.action) for decision in decisions] == [(13, "hint")]


def test_the_same_check_without_a_change_is_half_a_try() -> None:
    """Nothing was tried in between."""
    steps = [call("look_at_tests", {}, VERDICT) for _ in range(20)]
    decisions = alone("same_verdict", *steps)
    assert [(decision.step, decision.action) for decision in decisions] == [(10, "hint")]


def test_a_clock_in_the_verdict_does_not_hide_it() -> None:
    """Volatile values are masked, a number of failures is not."""
    steps = [call("run_tests", {"at": n}, f"3 failed, 2 passed in {n + 1}.{n}1s") for n in range(8)]
    assert actions(alone("same_verdict", *steps)) == ["hint"]
    steps = [call("run_tests", {"at": n}, f"{20 - n} failed, 2 passed") for n in range(12)]
    assert alone("same_verdict", *steps) == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(tried(5), id="five times"),
        pytest.param(tried(12, "wrong"), id="short verdicts"),
        pytest.param(tried(12, "all of the tests have passed"), id="nothing is turned down"),
        pytest.param(
            [call("run_tests", {"at": n}, error=VERDICT) for n in range(12)],
            id="failures of the call",
        ),
        pytest.param(
            [call(f"check_{n}", {"at": n}, VERDICT) for n in range(12)], id="one tool each"
        ),
        pytest.param(
            [call("run_tests", {"at": n}, VERDICT, at=0.01 * n, took=1) for n in range(12)],
            id="one parallel round",
        ),
        pytest.param([call("run_tests", {"at": n}) for n in range(12)], id="not captured"),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """A test that fails for a while is work."""
    assert alone("same_verdict", *steps) == []


def test_a_user_turn_halves_it() -> None:
    """What was tried before a user spoke counts half."""
    steps = tried(7)
    assert alone("same_verdict", *steps[:10], USER, *steps[10:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"verdict_threshold": 3}}}, 5),
        ({"tuning": {"calls": {"verdict_threshold": 8}}}, 17),
        ({"sensitivity": 2}, 5),
    ],
    ids=["fewer", "more", "more sensitive"],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.verdict_threshold` verdicts, divided by `sensitivity`."""
    assert alone("same_verdict", *tried(12), **settings)[0].step == first


def test_guesses_typed_by_hand_climb_from_twenty_on() -> None:
    """Who types in one password after another does not stop by being told so."""
    steps = [call("unlock", {"password": f"secret{n}"}, "Wrong password?") for n in range(30)]
    decisions = alone("same_verdict", *steps)
    assert [(decision.step, decision.action) for decision in decisions] == [
        (5, "hint"), (19, "steer"), (21, "ask"), (23, "deny"), (24, "abort"),
    ]  # fmt: skip


def test_guesses_that_fail_as_calls_climb_as_well() -> None:
    """A shell that exits with 1 says the same; below twenty it is left to `error_repeat`."""
    steps = [
        call("bash", {"command": f"unzip -P s{n} a.zip"}, error="Exit code 82\nincorrect password")
        for n in range(30)
    ]
    decisions = alone("same_verdict", *steps)
    assert decisions[0].step == 19
    assert actions(decisions) == ["hint", "steer", "deny", "abort"]


def test_tries_after_changes_do_not_climb() -> None:
    """Forty edits that did not mend the test are told once."""
    assert actions(alone("same_verdict", *tried(40))) == ["hint"]


def test_nineteen_hints_of_a_riddle_are_no_guessing_without_end() -> None:
    """A hint in between changes nothing, and below twenty nothing climbs."""
    steps = [call("unlock", {"password": f"secret{n}"}, "Wrong password?") for n in range(19)]
    assert actions(alone("same_verdict", *steps)) == ["hint"]


def test_guesses_without_arguments_are_not_stopped() -> None:
    """Nobody knows whether they are guesses."""
    steps = [call("unlock", None, "Wrong password?") for _ in range(40)]
    assert actions(alone("same_verdict", *steps)) in ([], ["hint"])


def test_the_setting_says_from_when_it_climbs() -> None:
    """`tuning.calls.verdict_climb` tries."""
    steps = [call("unlock", {"password": f"secret{n}"}, "Wrong password?") for n in range(12)]
    decisions = alone("same_verdict", *steps, tuning={"calls": {"verdict_climb": 8}})
    assert [(decision.step, decision.action) for decision in decisions][:2] == [
        (5, "hint"), (7, "steer"),
    ]  # fmt: skip
