"""A text revised by a tool, with hardly anything changed."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

TEXT = "The kettle boils {} of water and keeps it warm. " + "Nobody knows how long it does. " * 8
WORDS = "a litre,one litre,a liter,some water,a pint,two pints,a quart,one quart,a cup".split(",")
USER = Step(Kind.OTHER, "user", text="once more")


def revised(count: int, error: str | None = None) -> list[Step]:
    """A draft goes in and comes out, two words changed."""
    return [
        call("revise", {"draft": TEXT.format(WORDS[n])}, TEXT.format(WORDS[n + 1]), error=error)
        for n in range(count)
    ]


def test_six_revisions_in_a_row_give_a_hint() -> None:
    """That is with the seventh call; what other tools do in between does not matter."""
    steps = [step for one in revised(8) for step in (one, call("look", {"n": id(one)}, "ok"))]
    decisions = alone("revised_in_vain", *steps)
    assert decisions[0].step == 12
    assert set(actions(decisions)) == {"hint"}
    assert decisions[0].message == (
        "'revise' revised a text 6 times in a row, with hardly anything changed in what it got and "
        "what it gave"
    )


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(revised(6), id="six calls"),
        pytest.param([*revised(5), USER, *revised(5)], id="a user turn"),
        pytest.param(revised(8, error="Error: no such draft"), id="failed"),
        pytest.param(
            [call("revise", {"draft": WORDS[n]}, WORDS[n + 1]) for n in range(8)], id="short"
        ),
        pytest.param(
            [call("write", {"text": TEXT.format(WORDS[n])}, "ok") for n in range(8)],
            id="short answers",
        ),
        pytest.param(
            [call("revise", {"draft": TEXT * (n + 1)}, TEXT * (n + 2)) for n in range(3)],
            id="longer each time",
        ),
        pytest.param(
            [
                call("send", {"to": WORDS[n], "text": TEXT.format(WORDS[n])}, TEXT.format(WORDS[n]))
                for n in range(8)
            ],
            id="to somebody else",
        ),
        pytest.param([call("read", {"text": TEXT}, TEXT)] * 8, id="nothing changed at all"),
    ],
)
def test_other_calls_are_left_alone(steps: list[Step]) -> None:
    """What moves, is short, or is for another detector."""
    assert alone("revised_in_vain", *steps) == []


def test_the_setting_says_when() -> None:
    """`tuning.calls.revision_threshold` calls."""
    assert (
        alone("revised_in_vain", *revised(5), tuning={"calls": {"revision_threshold": 3}})[0].step
        == 3
    )
