"""Work that is handed over again, in other words."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Decision, Kind, Step
from tests.calls import Run, call
from tests.detectors.exchanges import NOTHING, hand, news, ran, spoke

ASK = "Please {} through the flavor graveyard page and identify the oldest flavor listed there"
WORDS = ["scroll", "continue looking", "keep scrolling", "go on searching", "scroll further down"]
SUMMARY = "Summarise chapter {} of the handbook for the board, in five sentences, with its sources"


def surfer(text: object) -> Step:
    return hand(text, "WebSurfer", "Orchestrator")


def repeats(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "handoff_repeat"]


def test_a_reworded_instruction_is_noticed_when_nothing_new_comes_of_it() -> None:
    """The third time the same is asked gives a hint, the fourth time the run is held."""
    run = Run(Settings(control_socket="auto"))
    for number, words in enumerate(WORDS):
        run.calls(surfer(ASK.format(words)), call("scrolled", {"by": number}, NOTHING))
    found = repeats(run)
    assert [decision.action.value for decision in found] == ["hint", "pause"]
    assert [decision.step for decision in found] == [4, 6]
    assert found[0].message == (
        "'WebSurfer' was given nearly the same instruction 3 times, and 25 % of what came back "
        "was new"
    )


def test_the_same_at_once_again_is_noticed() -> None:
    """Two equal instructions with nothing between them are one repeat, and give a hint only."""
    run = Run()
    run.calls(surfer(ASK.format("scroll")), surfer(ASK.format("scroll down")))
    assert [(one.action.value, one.count) for one in repeats(run)] == [("hint", 1.0)]


def test_a_settings_line_moves_the_notice() -> None:
    """A higher line waits for more repeats."""
    run = Run(Settings(tuning={"exchange": {"repeat_notice": 2.5}}))
    for words in WORDS[:3]:
        run.calls(surfer(ASK.format(words)))
    assert repeats(run) == []
    run.calls(surfer(ASK.format(WORDS[3])))
    assert len(repeats(run)) == 1


HEALTHY: dict[str, list[Step]] = {
    "work that brings news": [
        step
        for number, words in enumerate(WORDS * 3)
        for step in (
            surfer(ASK.format(words)), call("scrolled", {"by": number}, news(number)),
        )
    ],
    "one instruction for a whole list, each answer new": [
        step
        for number in range(40)
        for step in (
            surfer("Continue with the next item of the list and report what you find"),
            call("look", {"item": number}, news(number)),
        )
    ],
    "different tasks": [
        step
        for task in ("open the report of March", "send a mail to Ann", "book a table at eight")
        for step in (surfer(task), call("done", {"task": task}, "done, as always, and no trouble"))
    ],
    "a list by number, and agents without tools": [
        surfer(SUMMARY.format(number)) for number in range(1, 20)
    ],
    "a list by name, and agents without tools": [
        surfer(SUMMARY.format(name)) for name in ("Alpha", "Beta", "Gamma", "Delta", "Epsilon")
    ],
    "a list that grows shorter": [
        step
        for number in range(5)
        for step in (
            surfer("; ".join(f"check {name} in the ledger" for name in WORDS[number:])),
            call("ok", {"n": number}, f"what was asked for is fine, as the ledger says, {number}"),
        )
    ],
    "answers that were not captured": [
        step
        for number, words in enumerate(WORDS)
        for step in (surfer(ASK.format(words)), call("scrolled", {"by": number}, None))
    ],
    "an agent that speaks, and is not heard": [
        step
        for words in WORDS
        for step in (surfer(ASK.format(words)), spoke(None, "WebSurfer"))
    ],
    "an agent that answers with news and calls no tool": [
        step
        for number, words in enumerate(WORDS)
        for step in (surfer(ASK.format(words)), spoke(news(number), "WebSurfer"))
    ],
    "instructions that were not captured": [
        step
        for number in range(9)
        for step in (surfer(None), call("scrolled", {"by": number}, f"page {number} of many"))
    ],
    "a coder and a terminal": [
        step
        for number in range(8)
        for step in (
            hand("Fix what failed in the script and explain the change", "Coder", "Orchestrator"),
            spoke(news(number), "Coder"),
            hand("Run the script in the terminal and report it", "Terminal", "Orchestrator"),
            call("run", {"version": number}, f"Traceback: part{number} failed: {news(number, 3)}"),
        )
    ],
    "workers side by side": [
        ran("worker", ASK.format("scroll"), begin=1, end=10 + number) for number in range(6)
    ],
    "a user who asks again": [
        step
        for words in WORDS
        for step in (surfer(ASK.format(words)), Step(Kind.OTHER, "user", text="again, please"))
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_teams_are_left_alone(steps: list[Step]) -> None:
    """A supervisor may hand out work and get results as often as it likes."""
    run = Run()
    run.calls(*steps)
    family = ("handoff_repeat", "exchange_pair", "exchange_ring", "exchange_topic")
    assert [one.message for one in run.decisions if one.detector in family] == []


def test_what_the_giver_says_to_itself_is_no_news() -> None:
    """An orchestrator that reworks its plan before each hand-off has not moved on."""
    run = Run()
    for number, words in enumerate(WORDS):
        run.calls(spoke(f"Updated plan: {news(number)}", "Orchestrator"), surfer(ASK.format(words)))
    assert repeats(run)


def test_a_sub_agent_that_nothing_announced_counts_by_its_runs() -> None:
    """Runs that end are exchanges where no hand-off was ever seen."""
    run = Run()
    for number, words in enumerate(WORDS):
        run.calls(
            call("scrolled", {"by": number}, NOTHING),
            ran("WebSurfer", ASK.format(words), begin=number * 10, end=number * 10 + 9),
        )
    assert repeats(run)


def test_runs_that_a_hand_off_announced_are_counted_once() -> None:
    """The run's end is no second exchange."""
    run = Run(Settings(tuning={"exchange": {"repeat_notice": 1.5}}))
    for number, words in enumerate(WORDS[:2]):
        text = ASK.format(words)
        run.calls(surfer(text), ran("WebSurfer", text, begin=number * 10, end=number * 10 + 9))
    assert repeats(run) == []


CYCLIC: list[object] = []
CYCLIC.append(CYCLIC)
ODD: dict[str, object] = {
    "nothing": "",
    "a number": 7,
    "bytes": b"\xff\x00",
    "an object": object(),
    "a cycle": CYCLIC,
    "half a pair": "look at \ud800 this and that and those",
    "broken JSON": '{"instruction": "look at',
    "a long word": "a" * 1_000_000,
    "long JSON": '{"instruction": "' + "look at this " * 100_000 + '"}',
    "many names": " ".join(f"the Name{number}" for number in range(10_000)),
}


@pytest.mark.parametrize("args", ODD.values(), ids=ODD.keys())
def test_odd_instructions_never_throw(args: object) -> None:
    """Whatever an instrumentation writes, the hand-off is taken."""
    run = Run()
    for _ in range(6):
        run.calls(surfer(args), surfer({"coworker": "b", "task": args}), spoke("", "WebSurfer"))
    assert not run.guard.faults.counts


def test_what_goes_to_and_fro_is_left_to_the_pair() -> None:
    """An agent that hands on what it got just before is part of a cycle, and no second notice."""
    run = Run()
    for number in range(4):
        agent, source = ("planner", "critic") if number % 2 else ("critic", "planner")
        run.calls(hand(ASK.format("scroll"), agent, source))
    assert "exchange_pair" in [decision.detector for decision in run.decisions]
    assert repeats(run) == []


def test_it_can_be_switched_off() -> None:
    """By its name, or with its family."""
    for name in ("handoff_repeat", "exchange"):
        run = Run(Settings(switched_off=name))
        for words in WORDS:
            run.calls(surfer(ASK.format(words)))
        assert repeats(run) == []
