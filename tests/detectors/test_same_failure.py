"""The same failure again, whatever succeeds in between."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

FAILED = "Collecting frob\n  Building wheel: started\nERROR: Failed to build frob"
USER = Step(Kind.OTHER, "user", text="try something else")


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


def test_six_failures_with_one_line_give_a_hint_and_eight_another_way() -> None:
    """Though every success in between changed the world."""
    decisions = alone("same_failure", *built(14))
    assert [(decision.step, decision.action) for decision in decisions] == [
        (10, "hint"), (14, "steer"),
    ]  # fmt: skip
    assert decisions[0].message == (
        "'bash' failed 6 times with the same line, whatever was changed in between"
    )


def test_an_exit_code_in_the_answer_is_a_failure() -> None:
    """Not every tool raises."""
    steps = [
        call("bash", {"command": f"make -j{n}"}, "Exit code 2\ncc: a.c\nerror: no rule for frob.o")
        for n in range(8)
    ]
    assert actions(alone("same_failure", *steps)) == ["hint", "steer"]


def test_the_same_call_of_another_tool_counts() -> None:
    """A build tool without arguments, between edits."""
    steps = [
        step
        for n in range(9)
        for step in (
            call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
            call("build", {"target": "all"}, error="error: linking with cc failed at frob"),
        )
    ]
    assert actions(alone("same_failure", *steps)) == ["hint", "steer"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(built(5), id="five times"),
        pytest.param(
            [step for n in range(12) for step in (
                call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
                call("bash", {"command": "ruff check"}, error=f"error: Found {20 - n} errors."),
            )],
            id="fewer each time",
        ),
        pytest.param(
            [call("lookup", {"id": n}, error="Error: the item was not found in the list")
             for n in range(50)],
            id="many items that are not there",
        ),
        pytest.param(built(12, "503 Service Unavailable: try again later"), id="transient"),
        pytest.param(built(12, "error: failed"), id="says too little"),
        pytest.param(built(12, "a long answer " * 60), id="no line names the error"),
    ],
)  # fmt: skip
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """What moves, or is asked for something else, is work."""
    assert alone("same_failure", *steps) == []


def test_a_user_turn_begins_anew() -> None:
    """What failed before was tried for something else."""
    steps = built(10)
    assert alone("same_failure", *steps[:10], USER, *steps[10:]) == []


def test_the_settings_say_when() -> None:
    """`tuning.calls.failure_threshold` and `tuning.calls.failure_steer` rounds."""
    decisions = alone(
        "same_failure", *built(12), tuning={"calls": {"failure_threshold": 3, "failure_steer": 5}}
    )
    assert [(decision.step, decision.action) for decision in decisions] == [
        (4, "hint"), (8, "steer"),
    ]  # fmt: skip
