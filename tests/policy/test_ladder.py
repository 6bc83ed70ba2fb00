"""The ladder: which rung a loop stands on, how it climbs and how it goes down again."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Detection, Severity
from otel_loopguard.policy import RUNGS, Policy
from tests.calls import Run, call

HINT, DENY, ABORT = Action.HINT, Action.DENY, Action.ABORT
SOON = {"abort_after": 2}
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


RUNGS_TOLD = [
    re.split(r"  +", line)
    for line in Path(__file__).with_name("rungs.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize(("settings", "script", "said"), RUNGS_TOLD)
def test_one_rung_at_a_time(settings: str, script: str, said: str) -> None:
    """Each round that shows a loop confirms it; a success takes a confirmation back."""
    assert played(Policy(Settings(**json.loads(settings))), script) == said


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: str(rung.action))
def test_every_rung_can_be_put_on_the_way(rung: Any) -> None:
    """The table is the ladder: a setting moves its own rung, and no other."""
    if not rung.after:
        return
    strongest = rung.leads_to[0] if rung.action is not ABORT else ABORT
    for after in (3, 7):
        policy = Policy(Settings(**{rung.after: after}))
        assert climb(policy, found(1, most=strongest), 0, 9).index(rung.action) == after


def test_memory_is_bounded() -> None:
    """Ten thousand loops do not make it grow."""
    policy = Policy(Settings(tuning={"policy": {"forget_after": 1000}}))
    for index in range(10_000):
        judged(policy, [found(index)], index // 100, index)
    assert len(policy.loops) <= 32
    # A detector of a user's that names no loop gets one hint and not one per step.
    assert climb(Policy(Settings()), found(most=HINT), 0, 5) == [HINT, None, None, None, None]


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
