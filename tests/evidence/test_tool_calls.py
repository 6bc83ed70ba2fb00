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
