"""The ladder: which rung a loop stands on, how it climbs and how it goes down again."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otel_loopguard import Action, LoopGuardSettingsError, Settings
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import Severity
from otel_loopguard.policy import RUNGS, Policy
from tests.calls import SECOND, Run, call

HINT, STEER, ASK, DENY, PAUSE, ABORT = list(Action)[1:]
WHOLE = {"steer_after": 1, "ask_after": 2, "deny_after": 3, "abort_after": 4}
LATER = {"deny_after": 3, "abort_after": 5}
TWO = {"deny_after": 2, "abort_after": 3}
SOON = {"abort_after": 2}
SHORT = {"tuning": {"policy": {"forget_after": 5}}}
FREE = {"abort_after": 2, "tuning": {"policy": {"cooldown_rounds": {"hint": 2, "deny": 1}}}}
TIMED = {"tuning": {"policy": {"cooldown_s": {"hint": 10}}}}
CLIMBS = {"hint_climbs_after": 3}
ROUND = re.compile(r"(?P<keys>[\d,]+)(?:<(?P<most>hint|steer|ask|deny|pause))?(?:x(?P<times>\d+))?")


def found(*keys: int, most: Action = Action.ABORT, weight: float = 1.0) -> Detection:
    return Detection(
        "exact_repeat", "identical_call", Severity.WARNING, 0.9, frozenset(keys), 3, 3, "m",
        max_action=most, weight=weight,
    )  # fmt: skip


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


def climb(policy: Policy, detection: Detection, start: int, steps: int) -> list[Action | None]:
    """The actions of rounds that show a detection, one call each."""
    return [judged(policy, [detection], index) for index in range(start, start + steps)]


def played(policy: Policy, script: str) -> str:
    """What is said in rounds; `1,2<deny x3`: three of a loop of two calls that leads to a deny."""
    said: list[str] = []
    number = 0
    for word in script.split():
        if rounds := ROUND.fullmatch(word):
            loop = found(*map(int, rounds["keys"].split(",")), most=Action(rounds["most"] or ABORT))
            for action in climb(policy, loop, number, int(rounds["times"] or 1)):
                said.append(str(action or "-"))
                number += 1
        elif word == "down":
            policy.descend()
        elif word == "user":
            policy.user_turn()
        elif word == "moved":
            policy.moved(1)
        else:
            number += int(word.removeprefix("later"))
    return re.sub(r"-( -)+", "...", " ".join(said))


DOWN = "1 down 1 down 1 down 1 down 1 down 1 down 1 down 1 down"


@pytest.mark.parametrize(
    ("settings", "script", "said"),
    [
        # Notice and one confirmation deny, three more abort, then there is silence.
        ({}, "1x7", "hint deny ... abort ..."),
        # The whole ladder: hint, another way, ask, deny, abort.
        (WHOLE, "1x5", "hint steer ask deny abort"),
        # A line further off leaves more rounds to react; on the way a steer is asked for.
        (LATER, "1x6", "hint - steer deny - abort"),
        # The rungs on the way to a pause are others than the ones to an abort.
        ({}, "1<hintx20", "hint ..."),
        ({}, "1<steerx9", "hint - steer ..."),
        ({}, "1<askx9", "hint - steer - ask ..."),
        ({}, "1<denyx9", "hint deny ..."),
        ({}, "1<pausex9", "hint pause ..."),
        # `max_action` bounds them all.
        ({"max_action": "hint"}, "1x9", "hint ..."),
        ({"max_action": "steer"}, "1x9", "hint - steer ..."),
        ({"max_action": "deny"}, "1x9", "hint deny ..."),
        ({"max_action": "pause"}, "1x9", "hint pause ..."),
        # A cycle and the repeats inside it climb one ladder.
        (SOON, "1 1,2 2", "hint deny abort"),
        # The agent that obeyed the first warning is warned of the second loop, and not stopped.
        ({}, "1 9x2 1", "hint hint deny deny"),
        # After `forget_after` calls the ladder starts anew.
        (SHORT, "1x2 later18 1", "hint deny hint"),
        # Ten rounds of weak evidence and one of strong evidence are a refusal first.
        (SOON, "1<hintx10 1x2", "hint ... deny abort"),
        # A denied loop goes down to its hint, and has to be shown again before it is denied again.
        (SOON, "1x2 down 1x2", "hint deny deny abort"),
        # Of four rungs a success takes one away, and the hint is never given again.
        (WHOLE, "1x4 down 1", "hint steer ask deny deny"),
        (WHOLE, "1x4 down down 1x3", "hint steer ask deny ask deny abort"),
        # Something new beside a loop does not keep it alive for ever: a deny has an end.
        (SOON, DOWN, "hint deny deny deny deny abort ..."),
        # Only a person lets a pause or an abort go on.
        ({}, "1x5 down down down down down 1x3", "hint deny ... abort ..."),
        ({}, "1<pausex5 down down down down down 1<pausex3", "hint pause ..."),
        # Two rounds after the hint are free, one after the deny.
        (FREE, "1x6", "hint ... deny - abort"),
        # A time that is not known is no time that passed, nor one that did not.
        (TIMED, "1x2", "hint deny"),
        # A call that is answered otherwise ends its loops, and no others.
        ({}, "1x2 9 moved 1 9", "hint deny hint hint deny"),
        # Half of two confirmations is one: the abort needs another round.
        (TWO, "1x3 user 1x2", "hint - deny - abort"),
        # A loop of answers or of texts has no call that a refusal could meet.
        (CLIMBS, "1<hintx40", "hint ... steer ... ask ..."),
        # Whoever gets on between is not ignoring it.
        (CLIMBS, DOWN.replace("1", "1<hint"), "hint ..."),
    ],
)
def test_one_rung_at_a_time(settings: dict[str, Any], script: str, said: str) -> None:
    """Each round that shows a loop confirms it; a success takes a confirmation back."""
    assert played(Policy(Settings(**settings)), script) == said


@pytest.mark.parametrize("weight", [0.9, 0.3, 0.05])
def test_what_weighs_less_leads_later_to_the_same(weight: float) -> None:
    """Weights are added up, of whatever size, without a least one."""
    said = climb(Policy(Settings()), found(1, weight=weight), 0, 90)
    assert [action for action in said if action] == [HINT, DENY, ABORT]
    assert said.index(DENY) == pytest.approx(1 / weight, abs=1)
    assert said.index(ABORT) == pytest.approx(4 / weight, abs=1)


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: str(rung.action))
def test_every_rung_can_be_put_on_the_way(rung: Any) -> None:
    """The table is the ladder: a setting moves its own rung, and no other."""
    if not rung.after:
        return
    strongest = rung.leads_to[0] if rung.action is not ABORT else ABORT
    for after in (3, 7):
        policy = Policy(Settings(**{rung.after: after}))
        assert climb(policy, found(1, most=strongest), 0, 9).index(rung.action) == after


def test_two_detections_of_one_round_confirm_once() -> None:
    """What counts is the round, not how many detectors or parallel calls saw it."""
    policy = Policy(Settings(**TWO))
    both = [found(1), found(1, 2)]
    said = [judged(policy, both, number, moment=number // 3) for number in range(9)]
    assert [(number, one) for number, one in enumerate(said) if one] == [(0, HINT), (6, DENY)]


def test_what_was_not_said_is_not_spent() -> None:
    """Of two loops at one step the stronger one decides; the other one still gets its own hint."""
    policy = Policy(Settings())
    climb(policy, found(1), 0, 1)
    (verdict,) = policy.judge([found(1), found(9)], 1, 1)
    assert (verdict.action, verdict.loop.keys) == (DENY, {1})
    assert climb(policy, found(9), 2, 2) == [HINT, DENY]


def test_denied_calls_are_known() -> None:
    """Calls of a denied loop are refused, others are not, nor after a success or news of it."""
    for lift in (Policy.descend, lambda policy: policy.moved(1)):
        policy = Policy(Settings())
        climb(policy, found(1, 2), 0, 2)
        assert [policy.denies(key) for key in (1, 2, 3)] == [True, True, False]
        assert policy.knows(2)
        lift(policy)
        assert not policy.denies(1)


def test_memory_is_bounded() -> None:
    """Ten thousand loops do not make it grow."""
    policy = Policy(Settings(tuning={"policy": {"forget_after": 1000}}))
    for index in range(10_000):
        judged(policy, [found(index)], index // 100, index)
    assert len(policy.loops) <= 32


def test_a_denied_call_that_comes_again_ends_in_an_abort() -> None:
    """A deny is bounded: calling on against it is a confirmation, and no outcome."""
    policy = Policy(Settings(**SOON))
    climb(policy, found(1), 0, 2)
    (verdict,) = policy.defied(1, "search", 2, 2)
    assert verdict.action is ABORT
    assert "after its loop was denied" in verdict.detection.message
    run = Run(Settings(hint_climbs_after=2))
    run.calls(*[call("poke", {"n": 1}, at=number / 2) for number in range(20)])
    assert run.actions[-1] == "deny"
    for number in range(6):
        denied = call("poke", {"n": 1}, error="refused", at=100 + number)
        denied.error_type = "loopguard_deny"
        run.calls(denied)
    assert run.actions[-2:] == ["deny", "abort"]


def test_a_detection_without_keys_is_known_by_its_rule() -> None:
    """A detector of a user's that names no loop still gets one hint and not one per step."""
    assert climb(Policy(Settings()), found(most=HINT), 0, 5) == [HINT, None, None, None, None]


def test_a_cooldown_in_seconds_goes_by_the_clock() -> None:
    """Rounds within ten seconds after a hint lead nowhere, however many they are."""
    policy = Policy(Settings(**SOON, **TIMED))
    said = [
        judged(policy, [found(1)], number, time=(1000 + second) * SECOND)
        for number, second in enumerate((0, 1, 2, 9, 11, 12))
    ]
    assert said == [HINT, None, None, None, DENY, ABORT]


def test_a_level_that_there_is_not_is_refused() -> None:
    """The error has the name and what was expected."""
    with pytest.raises(LoopGuardSettingsError, match=r"'abort'.*expected of ask, deny, hint"):
        Settings(tuning={"policy": {"cooldown_s": {"abort": 3}}})
