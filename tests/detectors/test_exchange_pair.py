"""Two agents that hand the same work back and forth."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Decision, Detection, Kind, Step
from otel_loopguard.detectors.handoffs import RingCycle, TopicCycle
from tests.calls import Run, call
from tests.detectors.exchanges import NOTHING, hand, news, spoke

THERE = "The summary of the quarterly report misses its sources, please add them"
BACK = "The sources are not in the report, please write the summary again without them"


def rally(times: int, *, at: float | None = None, gap: float = 1) -> list[Step]:
    """Exchanges to and fro between planner and critic."""
    steps: list[Step] = []
    for number in range(times):
        when = None if at is None else at + number * gap
        back = number % 2
        agent, source = ("planner", "critic") if back else ("critic", "planner")
        steps.append(hand(BACK if back else THERE, agent, source, at=when))
    return steps


def pairs(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "exchange_pair"]


ONLY = {"switched_off": "exchange_ring,exchange_topic"}


def test_more_than_three_exchanges_on_one_topic_are_a_cycle() -> None:
    """The fourth is noticed, and the hint names the agent to skip."""
    run = Run(Settings(**ONLY))
    run.calls(*rally(3))
    assert pairs(run) == []
    run.calls(*rally(4)[3:])
    (found,) = pairs(run)
    assert (found.step, found.action.value, found.reason) == (3, "hint", "pair_cycle")
    assert found.message == (
        "'critic' and 'planner' handed the same work back and forth 4 times, and nothing new came "
        "back"
    )
    assert found.intervention == "break_cycle"
    assert "Skip 'planner'" in found.advice


def test_where_nobody_can_be_asked_it_climbs_to_an_end() -> None:
    """A critical cycle is denied, and aborted when it goes on: no pause waits for nobody."""
    run = Run(Settings(**ONLY))
    run.calls(*rally(14))
    found = [(one.step + 1, one.action.value, one.intervention) for one in pairs(run)]
    assert found[-2:] == [(12, "deny", "escalate_human"), (13, "abort", "escalate_human")]


def test_what_brings_news_in_part_is_denied_and_not_aborted() -> None:
    """Where up to two thirds of what comes back are new, the cycle is no certain one."""
    run = Run(Settings(**ONLY))
    for number, step in enumerate(rally(60)):
        run.calls(step, call("read", {"n": number}, NOTHING if number % 2 else news(number)))
    assert {one.action.value for one in pairs(run)} <= {"hint", "steer", "ask", "deny"}


def test_it_climbs_with_its_severity() -> None:
    """Low and medium ask for another way, high for context, critical for a human."""
    run = Run(Settings(control_socket="auto", **ONLY))
    run.calls(*rally(14))
    found = [(one.step + 1, one.action.value, one.intervention) for one in pairs(run)]
    assert found == [
        (4, "hint", "break_cycle"),
        (6, "steer", "break_cycle"),
        (8, "ask", "inject_context"),
        (12, "pause", "escalate_human"),
    ]


def test_it_escalates_at_the_chosen_severity() -> None:
    """From medium on, if that is what is set."""
    run = Run(Settings(exchange_escalate_at="medium", control_socket="auto", **ONLY))
    run.calls(*rally(5))
    assert [(one.action.value, one.intervention) for one in pairs(run)] == [
        ("hint", "break_cycle"),
        ("pause", "escalate_human"),
    ]


def test_it_escalates_when_a_cycle_goes_on_after_an_intervention() -> None:
    """Patience is counted in exchanges since the same intervention."""
    run = Run(Settings(tuning={"exchange": {"patience": 1}}, **ONLY))
    run.calls(*rally(5))
    assert [one.intervention for one in pairs(run)] == ["break_cycle", "escalate_human"]


def test_the_window_is_of_ten_minutes() -> None:
    """By the times of the steps, and of the whole cycle: thirteen in 6,490 s are none."""
    run = Run(Settings(**ONLY))
    run.calls(*rally(8, at=0, gap=601))
    run.calls(*rally(13, at=10_000, gap=500))
    assert pairs(run) == []
    run.calls(*rally(4, at=20_000, gap=200))
    assert pairs(run)


def test_without_times_the_window_is_in_steps() -> None:
    """A hundred steps by default."""
    run = Run(Settings(tuning={"exchange": {"window_steps": 10}}, **ONLY))
    for step in rally(8):
        run.calls(step, *[Step(Kind.NODE, f"node{number}") for number in range(11)])
    assert pairs(run) == []


def test_without_a_word_and_without_a_call_the_topic_goes_on() -> None:
    """Agents that pass the work on and add nothing are in a cycle, though nothing says of what."""
    run = Run(Settings(**ONLY))
    for number in range(4):
        agent, source = ("planner", "critic") if number % 2 else ("critic", "planner")
        run.calls(spoke("", source), hand({"agent_name": agent}, agent, source))
    (found,) = pairs(run)
    assert "3 of them without a word and without a call" in found.message


def test_the_giver_is_who_had_it_where_no_span_says_so() -> None:
    """A hand-off without a source comes from the agent that the one before went to."""
    run = Run(Settings(**ONLY))
    for step in rally(6):
        step.agent = None
        run.calls(step)
    assert pairs(run)


def test_what_the_giver_wrote_stands_for_an_instruction_that_is_missing() -> None:
    """The context of a hand-off says what it is about."""
    run = Run(Settings(**ONLY))
    for number in range(8):
        agent, source = ("planner", "critic") if number % 2 else ("critic", "planner")
        run.calls(spoke(BACK if number % 2 else THERE, source), hand(None, agent, source))
    assert pairs(run)


HEALTHY: dict[str, list[Step]] = {
    "a chat that brings news": [
        step
        for number in range(20)
        for step in (
            spoke(f"{THERE}: {news(number)}", "planner" if number % 2 else "critic"),
            hand(
                f"{THERE}: {news(number)}",
                *(("critic", "planner") if number % 2 else ("planner", "critic")),
            ),
        )
    ],
    "tools that bring news": [
        step
        for number, handed in enumerate(rally(12))
        for step in (call("read", {"page": number}, news(number)), handed)
    ],
    "topics that differ": [
        hand(text, *(("planner", "critic") if number % 2 else ("critic", "planner")))
        for number, text in enumerate(
            "open the report of March|the report of March is open|"
            "compare sales with last year|sales went up by a third|"
            "draw a chart for the board|chart drawn and stored|"
            "send everything to Ann|mail to Ann was sent".split("|")
        )
    ],
    "nothing captured": [
        step
        for number in range(12)
        for step in (
            spoke(None, None),
            hand(None, *(("planner", "critic") if number % 2 else ("critic", "planner"))),
        )
    ],
    "the user speaks": [
        step
        for handed in rally(10)
        for step in (handed, Step(Kind.OTHER, "user", text="go on, please"))
    ],
    "a receiver that is not known": [Step(Kind.HANDOFF, None, agent="a", args=THERE)] * 9,
}  # fmt: skip


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_pairs_are_left_alone(steps: list[Step]) -> None:
    """Two agents may talk for as long as it brings news, or as it cannot be told."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


def test_little_new_is_what_the_setting_says() -> None:
    """With a lower share of news half-new answers are work."""
    steps = [
        step
        for number, handed in enumerate(rally(10))
        for step in (
            call("read", {"page": number}, f"{NOTHING}, finding more {number}, fact also {number}"),
            handed,
        )
    ]  # fmt: skip
    strict, usual = Run(Settings(tuning={"exchange": {"news": 0.2}}, **ONLY)), Run(Settings(**ONLY))
    strict.calls(*steps)
    usual.calls(*steps)
    assert pairs(strict) == []
    assert pairs(usual)


@pytest.mark.parametrize("broken", [RingCycle, TopicCycle], ids=lambda one: one.name)
def test_the_pair_count_works_on_where_the_others_fail(
    broken: type[RingCycle | TopicCycle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector that throws is switched off, is named, and the plain count goes on (B9)."""

    def throw(_self: object, _evidence: object) -> Detection | None:
        msg = "broken for this test"
        raise RuntimeError(msg)

    raise_faults(False)
    monkeypatch.setattr(broken, "observe", throw)
    run = Run(Settings())
    run.calls(*rally(5))
    assert pairs(run)
    assert run.guard.faults.counts[f"{broken.name}:RuntimeError"] == 1


def test_long_instructions_are_compared_by_a_sample() -> None:
    """Of a text with hundreds of words 64 are kept, and equal texts stay equal."""
    long = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(400))
    run = Run(Settings(**ONLY))
    for number in range(6):
        agent, source = ("planner", "critic") if number % 2 else ("critic", "planner")
        run.calls(hand(f"{agent} {long}", agent, source))
    assert pairs(run)
