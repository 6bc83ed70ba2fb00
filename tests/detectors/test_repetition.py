"""Equal, cyclic and similar calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.detectors.repetition import Cycle
from tests.calls import Run, call
from tests.detectors.alone import actions, alone, evidence

if TYPE_CHECKING:
    from otel_loopguard.core import Step

ANSWER = "no results for weather in Paris"


MISSING = "cat: {}.py: No such file or directory"


def test_three_equal_calls_with_an_equal_answer_give_a_hint() -> None:
    """The third repeat is noticed, at its own step, and says what was measured."""
    run = Run()
    assert run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)]) == ["hint"]
    (decision,) = run.decisions
    assert decision.step == 2
    assert decision.detector == "exact_repeat"
    assert decision.count == 3
    assert "3 times" in decision.message
    assert ANSWER not in decision.message


def test_a_stubborn_agent_is_denied_and_aborted() -> None:
    """hint at the third, deny with the next confirmation, abort after three more."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert [decision.step for decision in run.decisions] == [2, 3, 6]
    assert len({decision.loop for decision in run.decisions}) == 1


def test_a_poll_without_a_pause_is_told_to_wait() -> None:
    """The same poll with no time between: the hint says how long to wait, nothing is stopped."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=0.6 * n) for n in range(60)])
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "polled_too_soon"
    assert "Ask again after 10 seconds" in run.decisions[0].advice


def test_a_hint_says_how_often_and_how_long_it_was_asked() -> None:
    """Since the first such call, and not since the budget ended; and what helps who waits."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=60 * n) for n in range(40)])
    found = run.decisions[0]
    assert found.message == (
        f"'job' was asked {found.step + 1} times in {found.step} minutes, and its 11-character "
        "answer is still the same"
    )
    assert found.advice.startswith(f"You have waited {found.step} minutes: ")


def test_obeying_a_hint_clears_the_flag() -> None:
    """Another call takes the hint down; the ladder still remembers the loop."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)])
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "hint"
    run.calls(call(args={"q": "y"}, outcome="something else"))
    assert flag.control.action == "allow"
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(2)])
    assert run.actions == ["hint", "deny"]


def test_shadow_decides_and_never_raises_the_flag() -> None:
    """In shadow mode everything is noted and nothing is stopped."""
    run = Run(Settings(mode="shadow"))
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert all(decision.shadow for decision in run.decisions)
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "allow"


def test_critical_from_two_above_the_threshold() -> None:
    """The third is a warning; what is denied is critical, what is aborted fatal."""
    decisions = alone("exact_repeat", *[call(args={"q": "x"}, outcome=ANSWER) for _ in range(7)])
    assert [decision.severity.value for decision in decisions] == ["warning", "critical", "fatal"]


def periods(symbols: list[int], **given: Any) -> list[int]:
    cycle = Cycle(Settings())
    found = [
        cycle.observe(evidence(index, call=symbol, **given)) for index, symbol in enumerate(symbols)
    ]
    return [detection.period for detection in found if detection]


def turns(number: int, pages: int = 3) -> list[Step]:
    """Pages that are read again and again in one order."""
    return [
        call("read", {"page": n % pages}, f"the text of page {n % pages} is this")
        for n in range(number)
    ]


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """A cycle is found within three turns, with its own period."""
    found = periods(list(range(period)) * 3)
    assert found[:1] == [period]


@pytest.mark.parametrize("period", range(2, 17))
def test_one_turn_is_no_cycle(period: int) -> None:
    """Doing a thing once more in the same order is not enough for short cycles."""
    turns = 2 if period < 9 else 1
    assert periods(list(range(period)) * turns) == []


def test_one_call_over_and_over_is_no_cycle() -> None:
    """A repeat has another detector."""
    assert periods([1] * 60) == []


def test_a_cycle_starts_anywhere() -> None:
    """What went before does not hide it."""
    assert periods([90, 91, 92, 1, 2, 3, 1, 2, 3, 1, 2, 3])[:1] == [3]


def test_a_cycle_is_broken_by_what_differs() -> None:
    """A different call, an unknown outcome or a new epoch is no part of the cycle."""
    assert periods([1, 2, 1, 2, 3, 1, 2, 1, 2, 4]) == []
    assert periods([1, 2] * 10, outcome=None) == []
    cycle = Cycle(Settings())
    steps = [evidence(index, call=1 + index % 2, epoch=index // 2) for index in range(40)]
    assert [cycle.observe(step) for step in steps] == [None] * 40


def test_a_stubborn_cycle_is_denied_and_aborted() -> None:
    """The hint comes after the third turn; each round that still shows the cycle climbs."""
    steps = [call("bash", {"command": f"cat {n % 3}.py"}, MISSING.format(n % 3)) for n in range(18)]
    decisions = alone("cycle", *steps)
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert 8 <= decisions[0].step <= 9
    assert {decision.period for decision in decisions} == {3}
    assert len({decision.loop for decision in decisions}) == 1


def test_a_cycle_of_guessed_calls_weighs_less() -> None:
    """What rests on a value that only looks volatile is found later, and stops later."""
    found = {}
    for guessed in (True, False):
        cycle = Cycle(Settings())
        calls = [evidence(n, call=n % 3, guessed=guessed) for n in range(18)]
        found[guessed] = [one for one in map(cycle.observe, calls) if one]
    assert 0 < len(found[True]) < len(found[False])
    assert found[True][-1].weight < found[False][-1].weight == 1.0


def test_waits_are_passed_over() -> None:
    """A wait between the calls of a cycle neither hides it nor is part of it."""
    cycle = Cycle(Settings())
    steps = [
        step
        for number, symbol in enumerate([1, 2, 3] * 3)
        for step in (
            evidence(2 * number, call=symbol),
            evidence(2 * number + 1, call=9, waits=True),
        )
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


def test_parallel_duplicates_are_one_call() -> None:
    """A call that is made twice in one round does not break the cycle."""
    cycle = Cycle(Settings())
    steps = [
        evidence(2 * number + twin, call=symbol, round=number)
        for number, symbol in enumerate([1, 2, 3] * 3)
        for twin in (0, 1)
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


ASKED = "what is the population of the {} city of Lisbon in Portugal today"
MORE = "population Lisbon Portugal today exact official census latest total number people".split()
OTHERS = [
    "population of Lisbon by year", "rivers that flow through Portugal",
    "who founded the oldest university", "when was the great earthquake",
    "best known writers of that time", "how large is the harbour now",
    "which bridges cross the Tagus",
]  # fmt: skip
WORDS = "quick slow simple long deep broad early late".split()
SOME = [f"Lisbon Portugal census {word} {word}ness" for word in WORDS]
SAID = "Lisbon is the capital of Portugal, and its largest city; it lies on the Tagus."


def found(*steps: Step, **settings: Any) -> list[tuple[int, str]]:
    """Step and action of each decision of this detector."""
    decisions = alone("similar_repeat", *steps, **settings)
    return [(decision.step, decision.action.value) for decision in decisions]


@pytest.mark.parametrize(
    ("texts", "said", "settings", "first"),
    [
        pytest.param([ASKED.format(word) for word in WORDS], SAID, {}, 3, id="one word differs"),
        pytest.param([" ".join(MORE[:n]) for n in range(5, 12)], SAID, {}, 3, id="more words"),
        pytest.param([" ".join(MORE[:n]) for n in range(5, 12)], None, {}, 3, id="all is new"),
        pytest.param(
            [" ".join(MORE[n:] + MORE[:n]) for n in range(8)], None, {}, 3, id="in another order"
        ),
        pytest.param(SOME, SAID, {}, 3, id="half of the words, and nothing new"),
        pytest.param(SOME, None, {}, None, id="half of the words, and news"),
        pytest.param(OTHERS, SAID, {}, None, id="other questions"),
        pytest.param(
            [ASKED.format(word) for word in WORDS], SAID, {"similar_threshold": 5}, 4, id="more"
        ),
        pytest.param(
            [ASKED.format(word) for word in WORDS],
            SAID, {"tools": {"search": {"similar_threshold": 5}}}, 4, id="more for this tool",
        ),
        pytest.param(
            [ASKED.format(word) for word in WORDS], SAID, {"sensitivity": 2}, 1, id="sensitive"
        ),
    ],
)  # fmt: skip
def test_four_questions_in_the_same_words(
    texts: list[str], said: str | None, settings: dict[str, Any], first: int | None
) -> None:
    """Among six; the fewer words need be common the less is new; then another way is asked for."""
    steps = [
        call("search", {"query": text}, said or f"Page {n} is of {n * 7919:x}, see {n * 104729:x}")
        for n, text in enumerate(texts)
    ]
    decisions = alone("similar_repeat", *steps, **settings)
    assert actions(decisions)[:2] in ([], ["hint"], ["hint", "steer"])
    assert next((one.step for one in decisions), None) == first
    for one in decisions:
        assert one.message == f"'search' was asked {one.count:g} times in nearly the same words"
