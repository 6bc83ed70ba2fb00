"""One file edited again and again without a green result."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

TEST = {"command": "cd /app && pytest -q tests"}
USER = Step(Kind.OTHER, "user", text="try something else")


def edit(number: int, file: str = "/app/a.py", named: str = "file_path") -> Step:
    return call("edit", {named: file, "old": "x", "new": f"x = {number}"}, "ok")


def failing(number: int) -> Step:
    return call("bash", TEST, error=f"Exit code 1\nAssertionError: got {number}")


def tried(times: int, named: str = "file_path") -> list[Step]:
    """Edits of one file, the test failing after each."""
    return [step for n in range(times) for step in (edit(n, named=named), failing(n))]


@pytest.mark.parametrize("named", ["file_path", "path", "filename"])
def test_twelve_edits_with_failures_between_give_a_hint(named: str) -> None:
    """By whatever name the tool is told the file; more of them lead no further."""
    decisions = alone("repeated_edit", *tried(30, named))
    assert [(one.step, one.action) for one in decisions[:1]] == [(22, "hint")]
    assert set(actions(decisions)) == {"hint"}
    assert decisions[0].message == (
        "one file was edited 12 times, and what was tried after each edit failed"
    )


def test_an_answer_that_turns_down_counts_as_a_failure() -> None:
    """A tool that runs the tests need not raise."""
    said = "The program did not pass"
    steps = [step for n in range(12) for step in (edit(n), call("run_tests", {"n": n}, said))]
    assert actions(alone("repeated_edit", *steps)) == ["hint"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([*tried(11), failing(11)], id="eleven edits"),
        pytest.param([edit(n) for n in range(40)], id="nothing fails"),
        pytest.param([failing(0), *(edit(n) for n in range(40))], id="one failure"),
        pytest.param(
            [s for n in range(40) for s in (edit(n, f"/app/{n}.py"), failing(n))],
            id="many files",
        ),
        pytest.param(
            [*tried(11), call("bash", TEST, "12 passed"), *tried(11)], id="green",
        ),
        pytest.param(
            [*tried(11), call("bash", {"command": "cd /app && pytest -q tests -x"}, "12 passed"),
             *tried(11)],
            id="green in other words",
        ),
        pytest.param(
            [s for n in range(40) for s in (
                edit(n),
                call("bash", {"command": f"frob{n}"}, error=f"bash: frob{n}: command not found"),
            )],
            id="no such command",
        ),
        pytest.param(
            [s for n in range(40) for s in (
                edit(n), call("bash", {"command": f"curl {n}"}, error="503 Service Unavailable"),
            )],
            id="transient",
        ),
        pytest.param(
            [s for n in range(40) for s in (
                call("str_replace_editor", {"command": "view", "path": "a.py"}, f"line {n}"),
                failing(n),
            )],
            id="only viewed",
        ),
        pytest.param(
            [s for n in range(20) for s in (
                edit(n), call("bash", TEST, error=f"Exit code 1\n{40 - n} failed, 8 passed"),
            )],
            id="fewer failures",
        ),
        pytest.param([*tried(8), USER, *tried(8)], id="a user turn"),
    ],
)  # fmt: skip
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """What moves, or is no try, is work."""
    assert alone("repeated_edit", *steps) == []


def test_the_setting_says_when() -> None:
    """`tuning.calls.edit_threshold` edits."""
    decisions = alone("repeated_edit", *tried(6), tuning={"calls": {"edit_threshold": 4}})
    assert decisions[0].step == 6
