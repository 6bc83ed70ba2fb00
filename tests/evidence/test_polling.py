"""Whether a repeated call was waiting, and tools whose repeats pay off."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Effect, Evidence, Kind, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.evidence.polling import RepeatBaseline
from tests.calls import EPOCH, SECOND, Run, call

PENDING = "the build is in progress"
UNCHANGED = "the build has 12 parts"


def model(at: float, took: float) -> Step:
    """A model call."""
    start = EPOCH + round(at * SECOND)
    return Step(Kind.MODEL, "m", start=start, end=start + round(took * SECOND))


def seen(*steps: Step, **settings: Any) -> list[Evidence]:
    """Evidence of the tool calls among steps."""
    observer = ToolCallExtractor(Settings(**settings))
    found = [observer.extract(step) for step in steps]
    return [evidence for evidence in found if evidence is not None]


def twice(gap: float, said: object = PENDING, tool: str = "job", **given: Any) -> list[Step]:
    """A call, and the same call again after a gap in seconds."""
    args = given.pop("args", {"id": 9})
    took = given.get("took", 0.5)
    return [call(tool, args, said, at=at, **given) for at in (0, gap + took)]


@pytest.mark.parametrize(
    ("steps", "settings", "waits"),
    [
        pytest.param(twice(5), {}, True, id="pending after five seconds"),
        pytest.param(twice(2), {}, True, id="pending, after half of the gap"),
        pytest.param(twice(1.5), {}, False, id="pending, sooner"),
        pytest.param(twice(4.9, UNCHANGED, "poll_it"), {}, False, id="not pending, sooner"),
        pytest.param(
            twice(4.9),
            {"tuning": {"calls": {"wait_gap_s": 2}}},
            True,
            id="pending, with a shorter gap",
        ),
        pytest.param(twice(5, UNCHANGED), {}, False, id="an answer that says nothing of it"),
        pytest.param(twice(20, UNCHANGED), {}, True, id="twenty seconds are enough"),
        pytest.param(twice(19, UNCHANGED), {}, False, id="nineteen are not"),
        pytest.param(twice(6, UNCHANGED), {"poll_tools": ["job"]}, True, id="declared to poll"),
        pytest.param(
            twice(6, UNCHANGED), {"tools": {"job": {"polls": True}}}, True, id="declared by tool"
        ),
        pytest.param(twice(6, UNCHANGED, took=6), {}, False, id="the call took long"),
        pytest.param(
            twice(0, UNCHANGED, "poll_status", took=6), {}, True, id="the call itself waited"
        ),
        pytest.param(twice(0, PENDING, took=6), {}, True, id="a long call that is pending"),
        pytest.param(
            twice(0, UNCHANGED, "bash", args={"command": "sleep 30; cat log"}),
            {},
            True,
            id="a command that sleeps",
        ),
        pytest.param(
            twice(0, UNCHANGED, "bash", args={"command": "sleep 2; cat log"}),
            {},
            False,
            id="a command that sleeps too short",
        ),
        pytest.param(
            twice(0, UNCHANGED, "bash", args={"command": "sleep 1m && cat log"}),
            {},
            True,
            id="a command that sleeps minutes",
        ),
    ],
)
def test_waiting(steps: list[Step], settings: dict[str, Any], waits: bool) -> None:
    """An unchanged answer after a pause, if it is pending, polls, or the pause is long."""
    first, second = seen(*steps, **settings)
    assert not first.waiting
    assert second.waiting is waits


def test_thinking_is_not_waiting() -> None:
    """The time that models took does not count as a pause, but for an answer that is pending."""
    first, second = twice(30, UNCHANGED)
    assert not seen(first, model(0.6, 29), second)[1].waiting
    assert seen(first, model(0.6, 10), second)[1].waiting is True
    assert seen(*twice(30)[:1], model(0.6, 29), twice(30)[1])[1].waiting


def test_a_name_that_polls_counts_where_the_time_of_models_is_known() -> None:
    """Without model spans what passed between two calls may have been thinking."""
    first, second = twice(8, UNCHANGED, "check_status")
    assert not seen(first, second)[1].waiting
    assert seen(first, model(0.6, 1), second)[1].waiting


def test_what_runs_beside_it_is_no_pause() -> None:
    """The gap begins where the newest call ended, but for an answer that is pending."""
    other = call("read", {"page": 1}, "page 1", at=1, took=18)
    first, second = twice(20, UNCHANGED)
    assert not seen(first, other, second)[-1].waiting
    first, second = twice(20)
    assert seen(first, other, second)[-1].waiting


def test_a_wait_is_part_of_the_pause() -> None:
    """A call that does nothing but wait is idling too."""
    first, second = twice(8)
    pause = call("wait", {"seconds": 7}, "ok", at=1, took=7)
    evidence = seen(first, pause, second)
    assert [one.waiting for one in evidence] == [False, True, True]
    assert evidence[1].effect is Effect.WAIT


def test_a_changed_answer_is_no_wait() -> None:
    """It is progress, whatever the pause."""
    first = call("job", {"id": 9}, "37 % in progress", at=0)
    second = call("job", {"id": 9}, "41 % in progress", at=30)
    evidence = seen(first, second)
    assert not evidence[1].waiting
    assert evidence[1].changed
    assert not evidence[1].fresh


def test_without_a_clock_a_pending_answer_is_only_pending() -> None:
    """Nobody can tell then whether it waits or spins."""
    steps = [call("job", {"id": 9}, PENDING) for _ in range(2)]
    first, second = seen(*steps)
    assert (first.pending, second.pending) == (False, True)
    assert not second.waiting
    assert second.gap is None
    assert not seen(*twice(1))[1].pending


@pytest.mark.parametrize(
    "said",
    [
        "pending",
        "In progress",
        "queued",
        "still running",
        "not yet ready",
        "not finished",
        "PROCESSING",
    ],
)
def test_pending_is_said_in_many_words(said: str) -> None:
    """Words for what is not done yet."""
    assert seen(*twice(6, said))[1].waiting


def test_what_was_not_captured_is_neither() -> None:
    """Without arguments or without an answer there is nothing to compare."""
    assert not seen(*twice(60, None))[1].waiting
    evidence = seen(*[call("job", None, PENDING, at=at) for at in (0, 60)])
    assert [(one.fresh, one.changed, one.waiting) for one in evidence] == [
        (False, False, False)
    ] * 2


def test_the_gap_is_measured_without_models() -> None:
    """In nanoseconds, of a call that was made before."""
    first, second = twice(10)
    evidence = seen(first, model(1, 4), second)
    assert evidence[0].gap is None
    assert evidence[1].gap == 6 * SECOND


def test_a_clock_that_goes_back_is_no_pause() -> None:
    """A negative gap is none."""
    evidence = seen(call("job", {"id": 9}, PENDING, at=60), call("job", {"id": 9}, PENDING, at=0))
    assert evidence[1].gap == 0
    assert not evidence[1].waiting


def test_memory_is_bounded() -> None:
    """After 128 other calls a call is fresh again."""
    steps = [call("read", {"page": n}, f"page {n}") for n in range(129)]
    evidence = seen(steps[0], steps[1], steps[0], *steps[1:], steps[0])
    assert not evidence[2].fresh
    assert evidence[-1].fresh


def test_a_model_call_whose_start_is_unknown_is_no_thinking_time() -> None:
    """Its end alone would make it longer than every gap, and hide the waiting between two calls."""
    first, again = twice(6)
    end = EPOCH + 3 * SECOND
    assert seen(first, Step(Kind.MODEL, "m", start=0, end=end), again)[1].waiting
    assert seen(first, Step(Kind.MODEL, "m", start=end, end=None), again)[1].waiting


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


def test_habits_memory_is_bounded() -> None:
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
