"""Equal answers to different questions."""

from __future__ import annotations

import pytest

from tests.calls import Run, call

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
    run = Run()
    run.calls(*[call("grep", {"pattern": f"p{n}"}, LONG) for n in range(40)])
    assert run.actions == ["hint"]


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
    assert run.calls(*[call("frobnicate", {"what": n}, done) for n in range(30)]) == []


def test_other_answers_in_between_do_not_hide_it() -> None:
    """Counted in a window, not in a row."""
    run = Run()
    for number in range(3):
        run.calls(
            call("grep", {"pattern": number}, LONG),
            call("read", {"path": number}, f"text {number}"),
        )
    assert run.actions == ["hint"]
