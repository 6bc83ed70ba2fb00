"""The ladder: which rung a loop stands on, how it climbs and how it goes down again."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Action, LoopGuardSettingsError, Settings
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import Severity
from otel_loopguard.policy import Policy
from tests.calls import SECOND

HINT, STEER, ASK, DENY, PAUSE, ABORT = list(Action)[1:]
SOON = Settings(abort_after=2)


def found(*keys: int, most: Action = Action.ABORT, weight: float = 1.0) -> Detection:
    return Detection(
        "exact_repeat", "identical_call", Severity.WARNING, 0.9, frozenset(keys), 3, 3, "m",
        max_action=most, weight=weight,
    )  # fmt: skip


def climb(policy: Policy, detection: Detection, start: int, steps: int) -> list[Action | None]:
    """The actions of rounds that show a detection, one call each."""
    return [judged(policy, [detection], index) for index in range(start, start + steps)]


def judged(
    policy: Policy,
    detections: list[Detection],
    number: int,
    moment: int | None = None,
    time: int = 0,
) -> Action | None:
    said = policy.judge(detections, number, number if moment is None else moment, time)
    for verdict in said:
        policy.carry_out(verdict)
    return said[-1].action if said else None


def test_a_hint_is_spent_and_confirmations_deny_and_abort() -> None:
    """Notice and one confirmation deny, three more abort, then there is silence."""
    actions = climb(Policy(Settings()), found(1), 0, 7)
    assert actions == [HINT, DENY, None, None, ABORT, None, None]


@pytest.mark.parametrize("weight", [0.9, 0.3, 0.05])
def test_what_weighs_less_leads_later_to_the_same(weight: float) -> None:
    """Weights are added up, of whatever size, without a least one."""
    said = climb(Policy(Settings()), found(1, weight=weight), 0, 90)
    assert [action for action in said if action] == [HINT, DENY, ABORT]
    assert said.index(DENY) == pytest.approx(1 / weight, abs=1)
    assert said.index(ABORT) == pytest.approx(4 / weight, abs=1)


def test_every_rung_can_be_put_on_the_way() -> None:
    """The whole ladder: hint, another way, ask, deny, abort."""
    whole = Settings(steer_after=1, ask_after=2, deny_after=3, abort_after=4)
    assert climb(Policy(whole), found(1), 0, 5) == [HINT, STEER, ASK, DENY, ABORT]


def test_two_more_rounds_between_hint_and_deny() -> None:
    """A line further off leaves more rounds to react."""
    settings = Settings(deny_after=3, abort_after=5)
    actions = climb(Policy(settings), found(1), 0, 6)
    # What would be asked for on the way is a steer.
    assert actions == [HINT, None, STEER, DENY, None, ABORT]


@pytest.mark.parametrize(
    ("most", "way"),
    [
        (HINT, [HINT]),
        (STEER, [HINT, STEER]),
        (ASK, [HINT, STEER, ASK]),
        (DENY, [HINT, DENY]),
        (PAUSE, [HINT, PAUSE]),
        (ABORT, [HINT, DENY, ABORT]),
    ],
    ids=str,
)
def test_a_detection_says_how_far_it_may_lead(most: Action, way: list[Action]) -> None:
    """The rungs on the way to a pause are others than the ones to an abort."""
    actions = climb(Policy(Settings()), found(1, most=most), 0, 20)
    assert [action for action in actions if action] == way


def test_detections_that_share_a_call_are_one_loop() -> None:
    """A cycle and the repeats inside it climb one policy."""
    policy = Policy(SOON)
    assert climb(policy, found(1), 0, 1) == [HINT]
    assert climb(policy, found(1, 2), 1, 1) == [DENY]
    assert climb(policy, found(2), 2, 1) == [ABORT]


def test_two_detections_of_one_round_confirm_once() -> None:
    """What counts is the round, not how many detectors or parallel calls saw it."""
    policy = Policy(Settings(deny_after=2, abort_after=3))
    both = [found(1), found(1, 2)]
    said = [judged(policy, both, number, moment=number // 3) for number in range(9)]
    assert said == [
        HINT, None, None, None, None, None, DENY, None, None,
    ]  # fmt: skip


def test_a_hint_for_one_loop_says_nothing_about_another() -> None:
    """The agent that obeyed the first warning is warned of the second loop, and not stopped."""
    policy = Policy(Settings())
    assert climb(policy, found(1), 0, 1) == [HINT]
    assert climb(policy, found(9), 1, 2) == [HINT, DENY]
    assert climb(policy, found(1), 3, 1) == [DENY]


def test_what_was_not_said_is_not_spent() -> None:
    """Of two loops at one step the stronger one decides; the other one still gets its own hint."""
    policy = Policy(Settings())
    climb(policy, found(1), 0, 1)
    (verdict,) = policy.judge([found(1), found(9)], 1, 1)
    assert (verdict.action, verdict.loop.keys) == (DENY, {1})
    assert climb(policy, found(9), 2, 2) == [HINT, DENY]


def test_a_loop_not_seen_for_long_is_forgotten() -> None:
    """After `tuning.policy.forget_after` calls the ladder starts anew."""
    policy = Policy(Settings(tuning={"policy": {"forget_after": 5}}))
    climb(policy, found(1), 0, 2)
    assert climb(policy, found(1), 20, 1) == [HINT]


@pytest.mark.parametrize("most", ["hint", "steer", "deny", "pause"])
def test_no_further_than_allowed(most: Any) -> None:
    """The strongest action is a setting."""
    policy = Policy(Settings(max_action=most))
    actions = [action for action in climb(policy, found(1), 0, 9) if action]
    assert actions[-1] is Action(most)


def test_denied_calls_are_known() -> None:
    """Calls of a denied loop are refused, others are not."""
    policy = Policy(Settings())
    climb(policy, found(1, 2), 0, 2)
    assert policy.denies(1)
    assert not policy.denies(3)
    assert policy.knows(2)


def test_memory_is_bounded() -> None:
    """Ten thousand loops do not make it grow."""
    policy = Policy(Settings(tuning={"policy": {"forget_after": 1000}}))
    for index in range(10_000):
        judged(policy, [found(index)], index // 100, index)
    assert len(policy.loops) <= 32


def test_a_denied_call_that_comes_again_ends_in_an_abort() -> None:
    """A deny is bounded: calling on against it is a confirmation, and no outcome."""
    policy = Policy(SOON)
    climb(policy, found(1), 0, 2)
    (verdict,) = policy.defied(1, "search", 2, 2)
    assert verdict.action is ABORT
    assert "after its loop was denied" in verdict.detection.message


def test_a_detection_without_keys_is_known_by_its_rule() -> None:
    """A detector of a user's that names no loop still gets one hint and not one per step."""
    assert climb(Policy(Settings()), found(most=HINT), 0, 5) == [HINT, None, None, None, None]


def test_a_success_takes_a_confirmation_back() -> None:
    """A denied loop goes down to its hint, and has to be shown again before it is denied again."""
    policy = Policy(SOON)
    climb(policy, found(1), 0, 2)
    policy.descend()
    assert not policy.denies(1)
    assert climb(policy, found(1), 3, 2) == [DENY, ABORT]


def test_one_rung_at_a_time() -> None:
    """Of four rungs a success takes one away, and the hint is never given again."""
    policy = Policy(Settings(steer_after=1, ask_after=2, deny_after=3, abort_after=4))
    climb(policy, found(1), 0, 4)
    assert policy.denies(1)
    policy.descend()
    assert climb(policy, found(1), 4, 1) == [DENY]
    policy.descend()
    policy.descend()
    assert climb(policy, found(1), 5, 3) == [ASK, DENY, ABORT]


def test_a_loop_goes_down_so_often_and_no_more() -> None:
    """Something new beside a loop does not keep it alive for ever: a deny has an end."""
    policy = Policy(Settings(abort_after=2))
    said: list[Action | None] = []
    for number in range(8):
        said += climb(policy, found(1), number, 1)
        policy.descend()
    assert said == [HINT, DENY, DENY, DENY, DENY, ABORT, None, None]


@pytest.mark.parametrize("most", [PAUSE, ABORT], ids=str)
def test_a_pause_and_an_abort_stay(most: Action) -> None:
    """Only a person lets it go on."""
    policy = Policy(Settings())
    climb(policy, found(1, most=most), 0, 5)
    for _ in range(5):
        policy.descend()
    assert climb(policy, found(1, most=most), 5, 3) == [None, None, None]


def test_a_cooldown_in_rounds_leaves_time_to_react() -> None:
    """Two rounds after the hint are free, one after the deny."""
    cooldowns = {"cooldown_rounds": {"hint": 2, "deny": 1}}
    policy = Policy(Settings(abort_after=2, tuning={"policy": cooldowns}))
    assert climb(policy, found(1), 0, 6) == [HINT, None, None, DENY, None, ABORT]


def test_a_cooldown_in_seconds_goes_by_the_clock() -> None:
    """Rounds within ten seconds after a hint lead nowhere, however many they are."""
    policy = Policy(Settings(abort_after=2, tuning={"policy": {"cooldown_s": {"hint": 10}}}))
    said = [
        judged(policy, [found(1)], number, time=(1000 + second) * SECOND)
        for number, second in enumerate((0, 1, 2, 9, 11, 12))
    ]
    assert said == [HINT, None, None, None, DENY, ABORT]


def test_no_abort_without_a_deny_before_it() -> None:
    """Ten rounds of weak evidence and one of strong evidence are a refusal first."""
    policy = Policy(SOON)
    climb(policy, found(1, most=HINT), 0, 10)
    assert climb(policy, found(1), 10, 2) == [DENY, ABORT]


def test_without_times_a_cooldown_in_seconds_does_not_count() -> None:
    """A time that is not known is no time that passed, nor one that did not."""
    assert climb(
        Policy(Settings(tuning={"policy": {"cooldown_s": {"hint": 10}}})), found(1), 0, 2
    ) == [HINT, DENY]


def test_a_call_that_is_answered_otherwise_ends_its_loops() -> None:
    """What it watches goes on: the next loop of the same call starts with a hint."""
    policy = Policy(Settings())
    climb(policy, found(1), 0, 2)
    climb(policy, found(9), 2, 1)
    policy.moved(1)
    assert not policy.denies(1)
    assert climb(policy, found(1), 3, 1) == [HINT]
    assert climb(policy, found(9), 4, 1) == [DENY]


def test_a_level_that_there_is_not_is_refused() -> None:
    """The error has the name and what was expected."""
    with pytest.raises(LoopGuardSettingsError, match=r"'abort'.*expected of ask, deny, hint"):
        Settings(tuning={"policy": {"cooldown_s": {"abort": 3}}})


def test_a_user_halves_what_was_confirmed() -> None:
    """Half of two confirmations is one: the abort needs another round."""
    policy = Policy(Settings(deny_after=2, abort_after=3))
    climb(policy, found(1), 0, 3)
    policy.user_turn()
    assert climb(policy, found(1), 3, 2) == [None, ABORT]
