"""Answers that only say again what the call said."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

TEXTS = (
    "I will look at the file with care and tell what stands in it",
    "then I shall compare both of the tables by their dates",
    "the answer has to be the sum of the last three columns",
    "to be sure I check the result once more from the start",
    "now the final answer can be written down in one line",
)
USER = Step(Kind.OTHER, "user", text="go on")


def printed(text: str, said: str | None = None) -> Step:
    """A program that prints a text."""
    return call("python", {"code": f"print('{text}')"}, text if said is None else said)


def test_three_programs_that_print_their_own_text_give_a_hint() -> None:
    """It looks busy and learns nothing; it is told so once, and never stopped."""
    decisions = alone("echo", *[printed(text) for text in TEXTS])
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 2
    assert decisions[0].message == "'python' gave back what it was given 3 times, and nothing else"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([printed(text[:30]) for text in TEXTS], id="short texts"),
        pytest.param(
            [printed(text, f"{n} rows\n{n * 31} columns\n{text}") for n, text in enumerate(TEXTS)],
            id="with news beside it",
        ),
        pytest.param(
            [call("write_note", {"text": text}, text) for text in TEXTS],
            id="what changes something",
        ),
        pytest.param(
            [
                call("python", {"code": f"raise Odd('{text}')"}, error=f"Odd: {text}")
                for text in TEXTS
            ],
            id="failures",
        ),
        pytest.param([call("python", None, text) for text in TEXTS], id="arguments not captured"),
        pytest.param(
            [
                call("python", {"code": f"print('{text}')"}, text, at=0.01 * n, took=1)
                for n, text in enumerate(TEXTS)
            ],
            id="one parallel round",
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """Short answers, news, changes, failures and fan-outs are no echo."""
    assert alone("echo", *steps) == []


def test_calls_that_are_no_echo_take_a_fifth() -> None:
    """With two real answers between them echoes do not add up."""
    steps = [
        step
        for n, text in enumerate(TEXTS * 4)
        for step in (
            printed(text),
            call("read", {"page": n}, f"page {n} is about subject {n * 7919:x}"),
            call("read", {"part": n}, f"part {n} is about matter {n * 104729:x}"),
        )
    ]
    assert alone("echo", *steps) == []


def test_a_user_turn_halves_it() -> None:
    """What was printed before a user spoke counts half."""
    steps = [printed(text) for text in TEXTS]
    assert alone("echo", *steps[:2], USER, steps[2]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"echo_threshold": 2}}}, 1),
        ({"tuning": {"calls": {"echo_threshold": 5}}}, 4),
        ({"sensitivity": 0.75}, 3),
    ],
    ids=["fewer", "more", "less sensitive"],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.echo_threshold` echoes, divided by `sensitivity`."""
    assert alone("echo", *[printed(text) for text in TEXTS], **settings)[0].step == first
