"""Rounds of tool calls, by times and by the messages of models; and what single calls are."""

from dataclasses import replace
from itertools import product

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Evidence, Kind, Step
from otel_loopguard.evidence import ToolCallExtractor
from otel_loopguard.evidence.tool_calls import Rounds
from tests.calls import EPOCH, SECOND, Run, call

IN_VAIN = "no results for weather in Paris"


def rounds_of(*cells: str) -> list[int]:
    """Rounds of calls, `10..10.1 of 2`; `asked of 2` is a model call, `x 9` one each 0.1 s."""
    rounds, found = Rounds(), list[int]()
    for what, *more in map(str.split, cells):
        said = dict(zip(more[::2], map(int, more[1::2]), strict=True))
        if what == "asked":
            rounds.asked(said.get("of", 0))
            continue
        for number in range(said.get("x", 1)):
            start, end = (round((float(at) + number / 10) * SECOND) for at in what.split(".."))
            call = said.get("call", len(found))
            found.append(rounds.add(start, end, said.get("of", 0), call))
    return found


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
    assert first.numbers is number.numbers is None
    assert again.numbers is not None
    assert once_more.numbers is not None
    assert again.numbers.around == once_more.numbers.around


def test_a_file_that_is_written_has_a_state() -> None:
    """The same content of the same file is the same state; a failed edit leaves none."""
    edits = (("1", False), ("1", False), ("2", False), ("3", True))
    made = [
        Step(Kind.TOOL, "write_file", args={"path": "a.py", "content": text}, error=error)
        for text, error in edits
    ]
    one, same, other, failed = evidence(*made)
    assert one.state == same.state != other.state
    assert failed.state is None
