"""Rounds of tool calls, by times and by the messages of models; and what single calls are."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.evidence.tool_calls import Rounds
from tests.calls import EPOCH, SECOND, Run, call

if TYPE_CHECKING:
    from otel_loopguard.core.evidence import Evidence

IN_VAIN = "no results for weather in Paris"


def numbers(rounds: Rounds, *calls: tuple[float, float], agent: int = 0) -> list[int]:
    """Rounds of different calls that began and ended at these seconds."""
    return [
        rounds.add(round(start * SECOND), round(end * SECOND), agent, number + round(start * 1000))
        for number, (start, end) in enumerate(calls)
    ]


ONE_AFTER_ANOTHER = [(10 + i / 10, 10.05 + i / 10) for i in range(17)]


def test_calls_of_one_message_share_a_round() -> None:
    """Also where they run one after the other."""
    rounds = Rounds()
    rounds.asked()
    assert len(set(numbers(rounds, *ONE_AFTER_ANOTHER))) == 1
    rounds.asked()
    assert numbers(rounds, (20, 21)) == [2]


def test_what_no_message_asked_for_is_a_round_of_its_own() -> None:
    """Without a model, after a pause that may hide one, and where a program loops."""
    assert len(set(numbers(Rounds(), *ONE_AFTER_ANOTHER))) == 17
    rounds, many, again = Rounds(), Rounds(), Rounds()
    for each in (rounds, many, again):
        each.asked()
    # What comes later than a quarter of a second is no call of the same message.
    assert numbers(rounds, (10, 11), (12, 13), (14, 15)) == [1, 2, 3]
    # More than 24 calls, and more than two equal ones, are counted by themselves.
    assert len(set(numbers(many, *((10 + i / 10, 10.05 + i / 10) for i in range(40))))) == 17
    equal = [again.add(10 * SECOND + i, 10 * SECOND + i, 0, 7) for i in range(1, 6)]
    assert len(set(equal)) == 4


def test_agents_have_messages_of_their_own() -> None:
    """A model call of one agent does not divide the calls of another."""
    rounds = Rounds()
    rounds.asked(1)
    rounds.asked(2)
    first = numbers(rounds, (10, 10.1), agent=1)
    rounds.asked(2)
    assert numbers(rounds, (10.2, 10.3), agent=1) == first
    assert numbers(rounds, (10.4, 10.5), agent=2) != first


def test_models_of_another_name_count_for_who_has_none() -> None:
    """Where the calls of tools do not say whose they are, or name it otherwise."""
    rounds = Rounds()
    seen: list[int] = []
    for second in range(10, 13):
        rounds.asked(1)
        seen += numbers(rounds, (second, second + 0.9))
        seen += numbers(rounds, (second + 0.95, second + 0.99), agent=2)
    assert len(set(seen)) == 6


@pytest.mark.parametrize(
    ("named", "models", "healthy"), [*product((True, False), repeat=3)], ids=str
)
def test_two_agents_side_by_side_are_noticed(named: bool, models: bool, healthy: bool) -> None:
    """Each calls one after the other, and always while the other's call runs."""
    steps: list[Step] = []
    for number in range(60):
        agent, at = number % 2, number / 2
        tool, args, said = ("search", "fetch")[agent], {"q": "x"}, IN_VAIN
        if agent and healthy:
            args, said = {"q": f"{number}"}, f"page {number} is about {number * 7919:x}"
        name = "ab"[agent] if named else None
        if models:
            start = EPOCH + round((at - 0.05) * SECOND)
            steps.append(Step(Kind.MODEL, "m", start=start, end=start + 10_000_000, agent=name))
        steps.append(replace(call(tool, args, said, at=at, took=0.9), agent=name))
    run = Run()
    run.calls(*sorted(steps, key=lambda step: step.end or 0))
    assert "exact_repeat" in {one.detector for one in run.decisions}


def evidence(*steps: Step) -> list[Evidence]:
    observer = ToolCallExtractor(Settings())
    return [observer.evidence(step) for step in steps]


def test_one_number_beside_texts_is_the_place() -> None:
    """A call may have two arguments that page."""
    given = {"cursor": "c", "path": "a.txt"}
    pages = ({"offset": 1}, {"offset": 9}, {"offset": 1, "page": 2})
    calls = [call("read", {**given, **more}, f"text {more}") for more in pages]
    first, second, both = (one.place for one in evidence(*calls))
    assert first is not None
    assert second is not None
    assert first[0] == second[0]
    assert (first[1], second[1], both) == (1.0, 9.0, None)


@pytest.mark.parametrize("name", ["round", "iteration", "version", "n"])
def test_a_revision_may_count_itself(name: str) -> None:
    """The counter of a draft is no part of what is revised; another number is."""
    text = "The kettle boils a litre of water in two minutes, and it keeps the water warm. " * 4
    for argument, revises in ((name, True), ("chapter", False)):
        drafts = [
            call("revise", {argument: n, "text": f"{text}{n}"}, f"{text}({n})") for n in range(3)
        ]
        assert [one.revises for one in evidence(*drafts)] == [False, revises, revises]


def test_what_a_call_shows_is_told_apart_from_what_was_shown_before() -> None:
    """An equal answer to another call was seen before; of a repeat its digits do not matter."""
    page = "Welcome back. Sign in to go on. " * 8
    asked = [("a", page + "17"), ("b", page + "17"), ("a", page + "18"), ("a", page + "9")]
    first, other, again, once_more, number = evidence(
        *(call("zorb", {"u": who}, said) for who, said in [*asked, ("a", "19.5")])
    )
    assert [each.seen for each in (first, other, again)] == [False, True, False]
    assert first.state == other.state != again.state
    assert first.digits is number.digits is None
    assert again.digits is not None
    assert once_more.digits is not None
    assert again.digits[0] == once_more.digits[0]


def test_a_file_that_is_written_has_a_state() -> None:
    """The same content of the same file is the same state; a failed edit leaves none."""
    one, same, other, failed = evidence(
        *(
            Step(Kind.TOOL, "write_file", args={"path": "a.py", "content": text}, error=error)
            for text, error in (("1", False), ("1", False), ("2", False), ("3", True))
        )
    )
    assert one.state == same.state != other.state
    assert failed.state is None
