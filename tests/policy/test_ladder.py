"""The ladder."""

from __future__ import annotations

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Detection, Severity
from otel_loopguard.policy import Ladder


def found(*keys: int, most: Action = Action.ABORT) -> Detection:
    return Detection(
        "exact_repeat", "identical_call", Severity.WARNING, 0.9, frozenset(keys), 3, 3, "m",
        max_action=most,
    )  # fmt: skip


def climb(ladder: Ladder, detection: Detection, start: int, steps: int) -> list[Action | None]:
    verdicts = [ladder.judge([detection], index) for index in range(start, start + steps)]
    return [verdict and verdict.action for verdict in verdicts]


def test_a_hint_is_spent_and_two_confirmations_deny() -> None:
    """hint once, then silence, then deny, then abort."""
    actions = climb(Ladder(Settings()), found(1), 0, 6)
    assert actions == [Action.HINT, None, Action.DENY, Action.ABORT, None, None]


def test_detections_that_share_a_call_are_one_loop() -> None:
    """A cycle and the repeats inside it climb one ladder."""
    ladder = Ladder(Settings())
    assert climb(ladder, found(1), 0, 1) == [Action.HINT]
    assert climb(ladder, found(1, 2), 1, 1) == [None]
    assert climb(ladder, found(2), 2, 1) == [Action.DENY]


def test_two_detections_of_one_step_confirm_once() -> None:
    """What counts is the step, not how many detectors saw it."""
    ladder = Ladder(Settings())
    ladder.judge([found(1), found(1, 2)], 0)
    assert ladder.judge([found(1), found(1, 2)], 1) is None
    verdict = ladder.judge([found(1), found(1, 2)], 2)
    assert verdict is not None
    assert verdict.action is Action.DENY


def test_another_loop_has_its_own_hint() -> None:
    """A warning is spent only on the loop it was given for."""
    ladder = Ladder(Settings())
    assert climb(ladder, found(1), 0, 1) == [Action.HINT]
    assert climb(ladder, found(9), 1, 1) == [Action.HINT]


def test_a_loop_not_seen_for_long_is_forgotten() -> None:
    """After `forget_after` steps the ladder starts anew."""
    ladder = Ladder(Settings(forget_after=5))
    climb(ladder, found(1), 0, 2)
    assert climb(ladder, found(1), 20, 1) == [Action.HINT]


@pytest.mark.parametrize("most", ["hint", "deny"])
def test_no_further_than_allowed(most: str) -> None:
    """The strongest action is a setting."""
    ladder = Ladder(Settings(max_action=most))  # type: ignore[arg-type]
    actions = [action for action in climb(ladder, found(1), 0, 9) if action]
    assert actions[-1] == Action(most)


def test_weak_evidence_goes_no_further_than_it_may() -> None:
    """A detection that may only hint never denies, however often it comes."""
    actions = climb(Ladder(Settings()), found(1, most=Action.HINT), 0, 20)
    assert [action for action in actions if action] == [Action.HINT]


def test_denied_calls_are_known() -> None:
    """Calls of a denied loop are refused, others are not."""
    ladder = Ladder(Settings())
    climb(ladder, found(1, 2), 0, 3)
    assert ladder.denies(1)
    assert not ladder.denies(3)
    assert ladder.knows(2)


def test_memory_is_bounded() -> None:
    """Ten thousand loops do not make it grow."""
    ladder = Ladder(Settings(forget_after=1000))
    for index in range(10_000):
        ladder.judge([found(index)], index // 100)
    assert len(ladder._loops) <= 32


def test_a_denied_call_that_comes_again_ends_in_an_abort() -> None:
    """A deny is bounded: calling on against it is a confirmation, and no outcome."""
    ladder = Ladder(Settings())
    climb(ladder, found(1), 0, 3)
    verdict = ladder.defied(1, "search", 3)
    assert verdict is not None
    assert verdict.action is Action.ABORT
    assert "after its loop was denied" in verdict.detection.message
