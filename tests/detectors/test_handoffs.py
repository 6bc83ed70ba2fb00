"""Work that agents hand back and forth."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Decision, Detection, Kind, Step
from otel_loopguard.detectors.handoffs import RingCycle, TopicCycle
from tests.calls import Run, call
from tests.detectors.exchanges import NOTHING, hand, news, ran, spoke
from tests.hostile.rig import sizes

ASK = "Please {} through the flavor graveyard page and identify the oldest flavor listed there"
WORDS = ["scroll", "continue looking", "keep scrolling", "go on searching", "scroll further down"]
SUMMARY = "Summarise chapter {} of the handbook for the board, in five sentences, with its sources"


def surfer(text: object) -> Step:
    return hand(text, "WebSurfer", "Orchestrator")


def repeats(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "handoff_repeat"]


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
    run = Run(Settings(sensitivity=0.6))
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
    run.calls(*rally(18))
    found = [(one.step + 1, one.action.value, one.intervention) for one in pairs(run)]
    assert found[-2:] == [(12, "deny", "escalate_human"), (15, "abort", "escalate_human")]


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
    run = Run(
        Settings(control_socket="auto", tuning={"exchange": {"escalate_at": "medium"}}, **ONLY)
    )
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
    run = Run(Settings(**ONLY))
    for step in rally(8):
        run.calls(step, *[Step(Kind.NODE, f"node{number}") for number in range(101)])
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


HEALTHY_PAIR: dict[str, list[Step]] = {
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


@pytest.mark.parametrize("steps", HEALTHY_PAIR.values(), ids=HEALTHY_PAIR.keys())
def test_healthy_pairs_are_left_alone(steps: list[Step]) -> None:
    """Two agents may talk for as long as it brings news, or as it cannot be told."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


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


AGENTS = ("planner", "writer", "critic", "editor", "lawyer", "printer", "courier")
TASK = "Please bring the summary of the quarterly report into the form that the board wants"
SAID = (
    "write the summary of the quarterly report for the board",
    "review whether all sources stand behind their numbers",
    "decide what is still missing from this text and who adds it",
    "bring the layout of every page into the form of the house",
    "check whether the wording holds in front of a court",
    "put it on paper with colours that last for years",
)
ONLY_RING = {"switched_off": "exchange_pair,exchange_topic"}


def ring(size: int, times: int) -> list[Step]:
    """Exchanges that go round among the first agents; each says the same every turn."""
    return [
        hand(SAID[number % size], AGENTS[(number + 1) % size], AGENTS[number % size])
        for number in range(times)
    ]


def rings(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "exchange_ring"]


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_a_ring_is_noticed_when_three_exchanges_came_round(size: int) -> None:
    """Whatever its size, between 3 and 6 agents."""
    run = Run(Settings(**ONLY_RING))
    run.calls(*ring(size, 2 * size))
    found = rings(run)[0]
    assert (found.step, found.period, found.reason) == (size + 2, size, "agent_cycle")
    assert "'writer' -> 'critic' and came back 3 times" in found.message
    assert found.intervention == "break_cycle"


@pytest.mark.parametrize("size", [2, 7])
def test_other_sizes_are_no_ring(size: int) -> None:
    """Two agents are a pair; seven are not looked for."""
    run = Run(Settings(**ONLY_RING))
    said = [f"{SAID[number % 6]} {'abcdefg'[number % size] * 9}" for number in range(size)]
    run.calls(
        *[
            hand(said[number % size], AGENTS[(number + 1) % size], AGENTS[number % size])
            for number in range(5 * size)
        ]
    )
    assert rings(run) == []


def test_ring_it_climbs_with_its_severity() -> None:
    """From low to critical, by the exchanges that came round."""
    run = Run(Settings(control_socket="auto", **ONLY_RING))
    run.calls(*ring(3, 16))
    assert [(one.action.value, one.intervention) for one in rings(run)] == [
        ("hint", "break_cycle"),
        ("steer", "break_cycle"),
        ("ask", "inject_context"),
        ("pause", "escalate_human"),
    ]


HEALTHY_RING: dict[str, list[Step]] = {
    "each turn brings news": [
        step
        for number, handed in enumerate(ring(3, 30))
        for step in (call("read", {"page": number}, news(number)), handed)
    ],
    "each turn is about the next item": [
        hand(f"{SAID[number % 3]} {number // 3}", AGENTS[(number + 1) % 3], AGENTS[number % 3])
        for number in range(30)
    ],
    "a line of agents": [
        hand(TASK, AGENTS[number + 1], AGENTS[number]) for number in range(len(AGENTS) - 1)
    ],
    "nothing captured": [
        hand(None, AGENTS[(number + 1) % 3], AGENTS[number % 3]) for number in range(30)
    ],
}


@pytest.mark.parametrize("steps", HEALTHY_RING.values(), ids=HEALTHY_RING.keys())
def test_healthy_rings_are_left_alone(steps: list[Step]) -> None:
    """Agents may take turns for as long as it brings news, or as it cannot be told."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


ISSUE = "{}: the refund for the broken lamp was refused, and nobody knows who has to approve it"
HOW = ("look at this", "have a look", "take this over", "see whether you can help", "your turn")
WAY = ("sales", "support", "billing", "sales", "billing", "support", "sales", "support", "billing")


ONLY_TOPIC = {"switched_off": "exchange_pair,exchange_ring"}


def passed(way: tuple[str, ...], source: str = "desk") -> list[Step]:
    """One issue in other words, from each agent to the next."""
    givers = (source, *way)
    return [
        hand(ISSUE.format(HOW[number % len(HOW)]), agent, givers[number])
        for number, agent in enumerate(way)
    ]


def topics(run: Run) -> list[Decision]:
    return [decision for decision in run.decisions if decision.detector == "exchange_topic"]


def test_an_issue_that_comes_back_is_noticed() -> None:
    """When it came back three times to an agent that had it before, in whatever order."""
    run = Run(Settings(**ONLY_TOPIC))
    run.calls(*passed(WAY))
    found = topics(run)[0]
    assert (found.step, found.action.value, found.reason) == (5, "hint", "topic_cycle")
    assert found.message == (
        "the same topic was passed around 3 agents and came back 3 times to one that had it "
        "before, and nothing new came back"
    )
    assert "Skip 'support'" in found.advice


def test_other_work_in_between_does_not_hide_it() -> None:
    """The issue is followed, not the order of the hand-offs."""
    run = Run(Settings(switched_off="handoff_repeat"))
    for number, step in enumerate(passed(WAY)):
        other = f"Draw chart number {number} about growth in region {number} with colours"
        run.calls(step, hand(other, f"artist{number}", "desk"))
    assert topics(run)


HEALTHY_TOPIC: dict[str, list[Step]] = {
    "a task that goes down a line": passed(("a", "b", "c", "d", "e", "f", "g")),
    "one question to many experts": [
        hand(ISSUE.format(HOW[0]), f"expert{number}", "desk") for number in range(12)
    ],
    "news at every hand": [
        step
        for number, handed in enumerate(passed(WAY * 3))
        for step in (call("read", {"page": number}, news(number)), handed)
    ],
    "many issues": [
        hand(f"{ISSUE.format(HOW[0])} in case {number}", WAY[number % 9], "desk")
        for number in range(27)
    ],
    "the user speaks": [
        step for handed in passed(WAY) for step in (handed, Step(Kind.OTHER, "user", text="go on"))
    ],
}


@pytest.mark.parametrize("steps", HEALTHY_TOPIC.values(), ids=HEALTHY_TOPIC.keys())
def test_topic_healthy_teams_are_left_alone(steps: list[Step]) -> None:
    """Work may pass through many hands."""
    run = Run()
    run.calls(*steps)
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


def test_tables_do_not_grow_with_the_session() -> None:
    """Every exchange has another giver, receiver and text, hundreds of words of it."""
    run = Run()

    def feed(first: int, last: int) -> int:
        for number in range(first, last):
            text = " ".join(f"word{number}x{place}" for place in range(100))
            run.calls(hand(text, f"agent{number}", f"giver{number}"))
        return sizes(run.guard, depth=9)

    early, late = feed(0, 100), feed(100, 300)
    assert late < early * 1.05
    assert [one.message for one in run.decisions if one.detector.startswith("exchange")] == []


REWORDED = (
    "Please repair the failing login test in the billing service",
    "The login test of billing still fails, look into it",
    "Could somebody get the billing service through its login test?",
    "Login in billing: test is red, find out why",
    "We need that billing test for login green again",
    "Have another look: login, billing, its test",
)


@pytest.mark.parametrize(
    ("texts", "answer", "hinted"),
    [
        pytest.param(REWORDED, NOTHING, True, id="in other words"),
        pytest.param(REWORDED[:3], NOTHING, False, id="three times"),
        pytest.param(REWORDED, None, False, id="answers that are not captured"),
        pytest.param(
            [f"{text}, ticket {number}" for number, text in enumerate(REWORDED)],
            NOTHING,
            False,
            id="the next number",
        ),
        pytest.param(
            [
                "Write the chapter about glaciers",
                "Check spelling of everything so far",
                "Draw a map for page nine",
                "Ask the printer what paper costs",
                "Send invoices to both authors",
                "Book a room near the station",
            ],
            NOTHING,
            False,
            id="other work",
        ),
    ],
)
def test_the_same_work_in_other_words(
    texts: Iterable[str], answer: str | None, *, hinted: bool
) -> None:
    """Five that share half of their content words are a hint, unless anything came of them."""
    run = Run()
    for number, text in enumerate(texts):
        run.calls(surfer(text), call("scroll", {"by": number}, answer))
    found = [one for one in repeats(run) if "in other words" in one.message]
    assert [one.action.value for one in found] == ["hint"] * bool(hinted)
