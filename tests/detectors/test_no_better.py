"""A number under one name that gets no better."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

FLAT = (0.71, 0.74, 0.72, 0.73, 0.74, 0.72, 0.71, 0.73)
USER = Step(Kind.OTHER, "user", text="try something else")


def trained(*scores: float, said: str = "accuracy: {}") -> list[Step]:
    """One try for each score, each with other arguments."""
    return [
        call("train", {"rate": n / 100, "layers": 2}, said.format(score))
        for n, score in enumerate(scores)
    ]


@pytest.mark.parametrize(
    "said",
    ["accuracy: {}", "epoch 9\nval_loss={} (best)", "score: {}\n", "mean error = {}", "F1: {}"],
)
def test_six_tries_without_a_better_number_are_noted(said: str) -> None:
    """Higher or lower, whichever is better; and nothing else follows."""
    decisions = alone("no_better_score", *trained(*FLAT, said=said))
    assert [(one.step, one.action) for one in decisions] == [(7, "allow")]
    assert decisions[0].message == "a number that 'train' measures was no better in 6 tries"


def test_a_field_of_an_answer_is_a_number_as_well() -> None:
    """A map is looked at like a text."""
    steps = [call("train", {"rate": n}, {"score": x, "took": n}) for n, x in enumerate(FLAT)]
    assert actions(alone("no_better_score", *steps)) == ["allow"]


def test_it_is_noted_again_after_six_more() -> None:
    """Not at every try."""
    assert actions(alone("no_better_score", *trained(*FLAT, *FLAT[1:]))) == ["allow", "allow"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(trained(*FLAT[:7]), id="five times no better"),
        pytest.param(trained(*(n / 20 for n in range(20))), id="up"),
        pytest.param(trained(*(1 - n / 20 for n in range(20))), id="down"),
        pytest.param(trained(*FLAT[:6], 0.9, *FLAT[:5]), id="better once"),
        pytest.param(trained(*FLAT, said="size: {}"), id="no measure"),
        pytest.param(trained(*range(3), *range(9), said="error: {}"), id="codes"),
        pytest.param([*trained(*FLAT[:5]), USER, *trained(*FLAT[:5])], id="a user turn"),
        pytest.param([call("train", {"rate": 1}, "loss: 0.5")] * 20, id="the same try"),
        pytest.param([call("train", {"rate": n}) for n in range(20)], id="no answer"),
    ],
)
def test_what_gets_better_or_measures_nothing_is_left_alone(steps: list[Step]) -> None:
    """And so is a try that is none."""
    assert alone("no_better_score", *steps) == []


def test_the_setting_says_when() -> None:
    """`tuning.calls.score_threshold` tries."""
    decisions = alone("no_better_score", *trained(*FLAT), tuning={"calls": {"score_threshold": 3}})
    assert [one.step for one in decisions] == [4, 7]
