"""What the guard publishes, and to whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util import locks
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action
from tests.calls import Run, call

if TYPE_CHECKING:
    from otel_loopguard.sessions.observation import DecisionRecord, Observation


def test_observations_leave_the_lock() -> None:
    """A subscriber holds no lock, and gets step, evidence, detections and decisions.

    One that raises keeps nobody from it; the fault is counted under its name.
    """
    guard = Run().guard
    seen: list[Observation] = []
    made: list[DecisionRecord] = []
    held: list[bool] = []

    def raises(_: Observation) -> None:
        held.append(locks.held())
        raise KeyError

    raise_faults(False)
    guard.subscribers.steps += [("mine", raises), ("next", seen.append)]
    guard.subscribers.decisions.append(("mine", made.append))
    for _ in range(4):
        guard.observe(call(args={"q": "x"}, outcome="nothing"), "run")
    assert guard.faults.counts == {"mine:KeyError": 4}
    assert held == [False] * 4
    assert [one.number for one in seen] == [0, 1, 2, 3]
    assert all(one.evidence is not None and one.evidence.tool == one.step.name for one in seen)
    assert [one.decisions for one in seen[:2]] == [(), ()]
    assert [one for each in seen for one in each.decisions] == made
    assert Action.HINT in {one.decision.action for one in made}
    assert any(one.detections for one in seen)
