"""Commands that do nothing."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

USER = Step(Kind.OTHER, "user", text="try something else")


def ran(command: str, said: object = "") -> Step:
    """A command and what it said."""
    return call("bash", {"command": command}, said)


NOTHING = [
    ran(":"),
    ran(": ls -la /app", "(Bash completed with no output)"),
    ran('echo "test"', "test"),
    ran(">>> {", ""),
    ran("# now the tests", {"exit_code": 0, "stdout": "", "stderr": ""}),
    ran("", "Your command ran successfully and did not produce any output."),
    ran("true"),
]


def test_commands_that_do_nothing_are_equal_to_each_other() -> None:
    """Whatever stands behind the colon."""
    decisions = alone("idle_command", *NOTHING)
    assert [(decision.step, decision.action) for decision in decisions] == [
        (3, "hint"), (4, "deny"), (5, "abort"),
    ]  # fmt: skip
    assert decisions[0].reason == "does_nothing"


def test_notes_beside_real_work_lead_to_a_hint_at_most() -> None:
    """Less than half of the calls in between do nothing."""
    steps = [
        step
        for n in range(12)
        for step in (
            ran(f"echo 'step {n} is done'", f"step {n} is done"),
            ran(f"cat a{n}.py", f"text {n}"),
            ran(f"sed -i 's/{n}/x/' a{n}.py"),
        )
    ]
    assert actions(alone("idle_command", *steps)) == ["hint"]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(ran(": ls && ls", "a.py"), id="more behind it"),
        pytest.param(ran(": > a.txt"), id="empties a file"),
        pytest.param(ran(": ${FROB:=$(date)}"), id="runs something inside"),
        pytest.param(ran("echo $PATH", "/bin"), id="asks for a value"),
        pytest.param(ran("echo hello > a.txt"), id="writes a file"),
        pytest.param(ran("echo x | md5sum", "abc"), id="feeds another"),
        pytest.param(ran("grep -rn frob src"), id="finds nothing"),
        pytest.param(ran("mkdir -p out"), id="says nothing"),
        pytest.param(ran(":", None), id="not captured"),
        pytest.param(call("search", {"query": "..."}, ""), id="no shell"),
    ],
)
def test_honest_commands_are_left_alone(step: Step) -> None:
    """Whatever reads, writes or runs something does something."""
    assert alone("idle_command", *[step] * 8) == []


def test_a_parallel_round_counts_once() -> None:
    """The agent can react between rounds only."""
    steps = [call("bash", {"command": ":"}, "", at=0.01 * n, took=1) for n in range(8)]
    assert alone("idle_command", *steps) == []


def test_a_user_turn_begins_anew() -> None:
    """What was done before was done for something else."""
    assert alone("idle_command", *NOTHING[:3], USER, *NOTHING[:3]) == []


def test_the_settings_say_when() -> None:
    """`tuning.calls.idle_threshold` rounds of the last `tuning.calls.idle_window` calls."""
    steps = [ran(":")] * 8
    assert alone("idle_command", *steps, tuning={"calls": {"idle_threshold": 6}})[0].step == 5
    assert (
        alone("idle_command", *steps, tuning={"calls": {"idle_threshold": 5, "idle_window": 4}})
        == []
    )
