"""Equal answers to different questions."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

LONG = "No results were found. Please try again with other words."


def test_three_different_questions_with_one_long_answer_give_a_hint() -> None:
    """The tool has nothing more to say, and the agent is told so."""
    run = Run()
    run.calls(*[call("grep", {"pattern": f"p{n}"}, LONG) for n in range(3)])
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "stagnation"
    assert "3 different calls" in run.decisions[0].message


def test_it_never_stops_anything() -> None:
    """Questions without an answer may be honest research."""
    steps = [call("grep", {"pattern": f"p{n}"}, LONG) for n in range(40)]
    assert actions(alone("stagnation", *steps)) == ["hint"]
    run = Run()
    run.calls(*steps)
    assert set(run.actions) == {"hint"}


@pytest.mark.parametrize("answer", ["rainy", "[]", "False", "ok"])
def test_short_answers_coincide(answer: str) -> None:
    """Four cities may well have the same weather."""
    run = Run()
    assert run.calls(*[call("weather", {"city": n}, answer) for n in range(4)]) == []


def test_equal_answers_to_changes_are_normal() -> None:
    """Many edits are answered alike."""
    run = Run()
    done = "The file was written, and no problem was found in it at all."
    assert run.calls(*[call("write_file", {"path": n}, done) for n in range(30)]) == []


def test_a_tool_of_unknown_effect_is_left_alone() -> None:
    """When in doubt a call may have changed something."""
    run = Run()
    done = "It went well, and there is nothing else to be said about it."
    steps = [call("frobnicate", {"what": n}, done) for n in range(30)]
    assert alone("stagnation", *steps) == []
    run.calls(*steps)
    assert not any(found.action.stops for found in run.decisions)


def test_other_answers_in_between_do_not_hide_it() -> None:
    """Counted in a window, not in a row."""
    run = Run()
    for number in range(3):
        run.calls(
            call("grep", {"pattern": number}, LONG),
            call("read", {"path": number}, f"text {number}"),
        )
    assert run.actions == ["hint"]


def test_a_short_answer_to_other_items_is_a_list_that_is_checked() -> None:
    """To ask the same of many things, and to hear "no" each time, is work."""
    steps = [call("check_stock", {"item": f"article-{n}"}, "not in stock now") for n in range(20)]
    assert alone("stagnation", *steps) == []


def test_a_short_answer_to_other_questions_counts_less() -> None:
    """From 16 characters on an answer weighs 0.7, below that 0.45."""
    words = ("the first part", "of what, and why", "who said so?", "in which year; where", "really")
    steps = [call("lookup", {"q": f"{word} {word[::-1]}"}, "it is not known") for word in words]
    assert alone("stagnation", *steps) == []
    steps = [
        call("lookup", {"q": f"{word} {word[::-1]}"}, "it is not known here") for word in words
    ]
    assert [(one.step, one.count) for one in alone("stagnation", *steps)] == [(4, 3.5)]


def test_another_answer_takes_three_tenths() -> None:
    """A tool that answers some of the questions is not stuck."""
    steps = [
        call(
            "grep",
            {"pattern": f"p{n}"},
            f"a.py:{n}: match number {n} in this file" if n % 3 else LONG,
        )
        for n in range(60)
    ]
    assert alone("stagnation", *steps) == []


def test_a_change_in_between_takes_two_thirds() -> None:
    """After a change the same answer may mean something else."""
    steps = [
        step
        for n in range(10)
        for step in (
            call("grep", {"pattern": f"p{n}"}, LONG),
            call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
        )
    ]
    assert alone("stagnation", *steps) == []


def test_a_user_turn_halves_it() -> None:
    """What a user asked for before counts half."""
    steps = [call("grep", {"pattern": f"p{n}"}, LONG) for n in range(3)]
    user = Step(Kind.OTHER, "user", text="look for the others too")
    assert actions(alone("stagnation", *steps)) == ["hint"]
    assert alone("stagnation", *steps[:2], user, steps[2]) == []


def test_the_threshold_is_a_setting() -> None:
    """`repeat_threshold` equal answers."""
    steps = [call("grep", {"pattern": f"p{n}"}, LONG) for n in range(8)]
    decisions = alone("stagnation", *steps, repeat_threshold=6)
    assert [decision.step for decision in decisions] == [5]


def test_without_arguments_nothing_counts() -> None:
    """Whether the question moved is not known."""
    assert alone("stagnation", *[call("grep", None, LONG) for _ in range(20)]) == []
