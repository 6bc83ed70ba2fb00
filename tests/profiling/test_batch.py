"""Batches: one after the other, at the same time, and whether that may be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from otel_loopguard import Settings
from otel_loopguard.execution.profiler import BatchEstimate, PlannedCall, Profiler

TIMES = {"a": 4000, "b": 3000, "c": 2000, "d": 1000, "w": 500}
SETTINGS = Settings(
    profile_defaults_ms=TIMES, read_tools={"a", "b"}, profile_parallel_tools={"c", "d"}
)


def estimate(*calls: PlannedCall) -> BatchEstimate:
    return Profiler(SETTINGS).batch(calls)


def test_independent_safe_calls() -> None:
    """Three run at a time, the longest first; the sum is what they take one by one."""
    found = estimate(*(PlannedCall(tool, {"q": tool}) for tool in "dcba"))
    assert (found.sequential_ms, found.parallel_ms) == (10_000, 4000)
    assert found.can_run_in_parallel
    assert [each.duration_ms for each in found.estimates] == [1000, 2000, 3000, 4000]


@pytest.mark.parametrize(
    ("calls", "parallel", "reason"),
    [
        ([], 0, "no call"),
        ([PlannedCall("a")], 4000, "one call"),
        ([PlannedCall("a"), PlannedCall("w"), PlannedCall("b")], 4500, "not declared safe: w"),
        ([PlannedCall("a"), PlannedCall("b", after=["0"])], 7000, "need the result"),
        ([PlannedCall("a", id="x"), PlannedCall("b", {"u": "${x}"})], 7000, "need the result"),
        ([PlannedCall("a", id="x"), PlannedCall("b", "see {{ x.url }}")], 7000, "need the result"),
        ([PlannedCall("a", after=["1"]), PlannedCall("b", after=["0"])], 7000, "circle"),
    ],
    ids=["none", "one", "unsafe", "after", "reference", "reference in text", "circle"],
)
def test_what_may_not_run_at_the_same_time(
    calls: Sequence[PlannedCall], parallel: float, reason: str
) -> None:
    """A batch says why its calls wait for each other, and how long it takes then."""
    found = estimate(*calls)
    assert not found.can_run_in_parallel
    assert found.parallel_ms == parallel
    assert reason in found.reason


@pytest.mark.parametrize(
    "call",
    [
        PlannedCall("b", {"price": "$0"}),
        PlannedCall("b", after=["not here"]),
        PlannedCall("b", {"n": 2**70}),
    ],
    ids=["money", "unknown id", "no data"],
)
def test_what_only_looks_like_a_dependency(call: PlannedCall) -> None:
    """Money is no reference, and what is not in the batch is not waited for."""
    assert estimate(PlannedCall("a"), call).can_run_in_parallel
