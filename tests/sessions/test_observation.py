"""What the guard publishes, and to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard import Settings
from otel_loopguard._util import locks
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action
from otel_loopguard.guard import LoopGuard
from tests.calls import call

if TYPE_CHECKING:
    from otel_loopguard.sessions.observation import DecisionRecord, Observation


def test_observations_leave_the_lock() -> None:
    """A subscriber holds no lock, and gets step, evidence, detections and decisions."""
    guard = LoopGuard(Settings(), clock="replay")
    seen: list[Observation] = []
    made: list[DecisionRecord] = []
    held: list[bool] = []
    guard.subscribers.steps.append(("mine", seen.append))
    guard.subscribers.steps.append(("mine", lambda _: held.append(locks.held())))
    guard.subscribers.decisions.append(("mine", made.append))
    for _ in range(4):
        guard.observe(call(args={"q": "x"}, outcome="nothing"), "run")
    assert not any(held)
    assert [one.number for one in seen] == [0, 1, 2, 3]
    assert all(one.evidence is not None and one.evidence.tool == one.step.name for one in seen)
    assert [one.decisions for one in seen[:2]] == [(), ()]
    assert [one for each in seen for one in each.decisions] == made
    assert Action.HINT in {one.decision.action for one in made}
    assert any(one.detections for one in seen)


def test_one_that_raises_keeps_nobody_from_it() -> None:
    """The fault is counted under its name."""
    guard = LoopGuard(Settings(), clock="replay")
    numbers: list[int] = []

    def raises(_: Observation) -> None:
        raise KeyError

    guard.subscribers.steps.append(("mine", raises))
    guard.subscribers.steps.append(("next", lambda one: numbers.append(one.number)))
    raise_faults(False)
    guard.observe(call(), "run")
    assert guard.faults.counts == {"mine:KeyError": 1}
    assert numbers == [0]
