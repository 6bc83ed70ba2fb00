"""Calls that are not understood, made again in other words."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import Run, call
from tests.detectors.alone import actions, alone

USAGE = "Usage: edit <start>:<end> <text>"
SYNTAX = "/bin/bash: eval: line {}: syntax error near unexpected token `<'"
USER = Step(Kind.OTHER, "user", text="try something else")


def edited(number: int, said: str = USAGE) -> Step:
    """An edit, each in other words."""
    return call("edit", f"edit {number} the text of line {number * 7}", said)


def test_four_equal_refusals_in_other_words_climb() -> None:
    """Though every call is another one and none has an error flag."""
    decisions = alone("refused_call", *[edited(n) for n in range(8)])
    assert [(decision.step, decision.action) for decision in decisions] == [
        (3, "hint"), (4, "deny"), (5, "abort"),
    ]  # fmt: skip
    assert decisions[0].reason == "same_refusal"


def test_what_succeeds_in_between_does_not_matter() -> None:
    """A refused call came to nothing, whatever the others did."""
    steps = [
        step
        for n in range(6)
        for step in (
            edited(n),
            call("bash", {"command": f"echo {n} > a{n}.txt && cat b{n}"}, f"new text {n}"),
            call("read", {"path": f"c{n}.py"}, f"other text of file {n}"),
        )
    ]
    assert actions(alone("refused_call", *steps))[:1] == ["hint"]


def test_a_refused_command_opens_no_epoch() -> None:
    """A redirection in a command with a syntax error changed nothing."""
    run = Run()
    for number in range(8):
        command = f'> <parameter name="c{number}"> ls -la /etc/{number} > /tmp/x && cat /tmp/x'
        run.calls(call("bash", {"command": command}, error=SYNTAX.format(number)))
    assert run.actions[-1:] == ["abort"]


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("bash", {"command": "> pip install {}"}, "/bin/bash: line 1: pip{0}: command not found"),
        ("bash", {"command": "frob {}"}, {"exit_code": 2, "stderr": "usage: frob [-x] FILE"}),
        ("Bash", {"command": "tar {}"}, "tar: unrecognized option '--frob'"),
        ("Edit", {"old": "{}"}, "<tool_use_error>File has not been read yet.</tool_use_error>"),
        ("cmd", {"command": "x {}"}, "'x' is not recognized as an internal or external command,"),
    ],
    ids=["command not found", "usage in a map", "option", "tool", "windows"],
)
def test_refusals_are_failures_also_without_an_error_flag(
    tool: str, args: dict[str, str], said: object
) -> None:
    """The tool says so in its own words."""
    outcome = said.replace("{0}", "") if isinstance(said, str) else said
    steps = [
        call(tool, {name: text.format(n) for name, text in args.items()}, outcome) for n in range(5)
    ]
    assert actions(alone("refused_call", *steps)) == ["hint", "deny"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([edited(n) for n in range(3)], id="three times"),
        pytest.param(
            [call("bash", {"command": f"{name} --version"}, error=f"sh: {name}: command not found")
             for name in "vim nano emacs ed pico micro joe vi".split()],
            id="other tools each time",
        ),
        pytest.param(
            [call("bash", {"command": f"frob sub{n} --help"}, "usage: frob [-x] FILE")
             for n in range(8)],
            id="help that was asked for",
        ),
        pytest.param(
            [call("read_file", {"path": f"docs/{n}.md"}, "# Tool\n\nsome words on it\n\nmore\n\n"
                  "If it says\n\nbash: frob: command not found") for n in range(8)],
            id="text that quotes one",
        ),
        pytest.param(
            [call("edit", f"edit {n}", USAGE, at=0.01 * n, took=1) for n in range(8)],
            id="one parallel round",
        ),
        pytest.param(
            [step for n in range(8) for step in (
                edited(n),
                *(call("read", {"path": f"{n}/{m}"}, f"text {n} {m}") for m in range(14)),
            )],
            id="now and then",
        ),
    ],
)  # fmt: skip
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """Who mends a call the next time, or looks for help, is not stuck."""
    assert alone("refused_call", *steps) == []


def test_a_user_turn_begins_anew() -> None:
    """What was refused before was tried for something else."""
    steps = [edited(n) for n in range(6)]
    assert alone("refused_call", *steps[:3], USER, *steps[3:]) == []


def test_the_settings_say_when() -> None:
    """`calls.refused_threshold` of the last `calls.refused_window` calls, over `sensitivity`."""
    steps = [edited(n) for n in range(8)]
    assert alone("refused_call", *steps, tuning={"calls": {"refused_threshold": 6}})[0].step == 5
    assert alone("refused_call", *steps, sensitivity=2)[0].step == 1
    assert (
        alone(
            "refused_call", *steps, tuning={"calls": {"refused_threshold": 5, "refused_window": 4}}
        )
        == []
    )
