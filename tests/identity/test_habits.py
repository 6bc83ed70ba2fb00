"""What is normal for a tool."""

from __future__ import annotations

from otel_loopguard.evidence.polling import RepeatBaseline
from tests.calls import Run, call

ANSWER = "nothing to be seen in this part of the log"


def eased(*repeats: bool) -> list[float]:
    """What a tool's thresholds are multiplied by, after repeats that brought news or not."""
    habits = RepeatBaseline()
    return [habits.ease("tail", again=True, changed=changed) for changed in repeats]


def test_a_tool_whose_repeats_pay_gets_half_as_much_again() -> None:
    """From four repeats on, if half of them brought another answer."""
    assert eased(True, True, True, True, True) == [1.0, 1.0, 1.0, 1.5, 1.5]
    assert eased(True, False, True, False, True, True)[3:] == [1.0, 1.5, 1.5]
    assert set(eased(*[False] * 20)) == {1.0}


def test_it_is_lost_again() -> None:
    """A tool that stopped to change is like any other."""
    assert eased(*[True] * 8, *[False] * 12)[-1] == 1.0


def test_a_first_call_says_nothing() -> None:
    """Only repeats are a habit."""
    habits = RepeatBaseline()
    assert {habits.ease("tail", again=False, changed=False) for _ in range(20)} == {1.0}


def test_tools_do_not_share_a_habit() -> None:
    """What pays for one does not for another."""
    habits = RepeatBaseline()
    for _ in range(8):
        habits.ease("tail", again=True, changed=True)
    assert habits.ease("search", again=True, changed=False) == 1.0


def test_memory_is_bounded() -> None:
    """Of a thousand tools 64 are remembered."""
    habits = RepeatBaseline()
    for number in range(1000):
        habits.ease(f"tool {number}", again=True, changed=True)
    assert len(habits._tools) == 64


def test_it_takes_more_repeats_of_such_a_tool() -> None:
    """What is watched through it moves: its unchanged answers count later as a loop."""
    moving = [call("tail", {"file": "a.log"}, f"line {n} of the log") for n in range(8)]
    still = [call("tail", {"file": "b.log"}, ANSWER) for _ in range(8)]
    run = Run()
    run.calls(*moving, *still)
    eased_step = next(one.step for one in run.decisions if one.detector == "exact_repeat")
    plain = Run()
    plain.calls(*still)
    assert plain.decisions[0].step == 2
    assert eased_step - len(moving) > 2
