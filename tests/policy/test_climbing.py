"""A hint that is ignored climbs where `hint_climbs_after` says so, and never ends a run."""

from __future__ import annotations

import pytest

from otel_loopguard import Action, Settings
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import Severity
from otel_loopguard.policy import RUNGS, Policy
from tests.calls import Run, call
from tests.policy.test_ladder import climb, found

HINT, STEER, ASK, DENY, PAUSE, ABORT = list(Action)[1:]
PATIENT = Settings(hint_climbs_after=3)


def tell(run: Run, times: int, start: int = 0, pause: float = 0.5) -> list[str]:
    """Calls whose answers are not captured: equal, and next to no evidence."""
    steps = [call("poke", {"n": 1}, at=start + number * pause) for number in range(times)]
    return run.calls(*steps)


def test_off_by_default() -> None:
    """A hint of weak evidence is one hint, for ever."""
    policy = Policy(Settings())
    assert [one for one in climb(policy, found(1, most=HINT), 0, 20) if one] == [HINT]


def test_who_insists_after_that_deny_is_stopped_like_anybody() -> None:
    """Refused calls are evidence that stands by itself; each counts as one."""
    run = Run(Settings(hint_climbs_after=2))
    tell(run, 20)
    assert run.actions[-1] == "deny"
    for number in range(6):
        denied = call("poke", {"n": 1}, error="refused", at=100 + number)
        denied.error_type = "loopguard_deny"
        run.calls(denied)
    assert run.actions[-2:] == ["deny", "abort"]


def test_what_cannot_be_refused_climbs_to_an_ask() -> None:
    """A loop of answers or of texts has no call that a refusal could meet."""
    said = climb(Policy(PATIENT), found(1, most=HINT), 0, 40)
    assert [one for one in said if one] == [HINT, STEER, ASK]
    assert [place for place, one in enumerate(said) if one] == [0, 3, 6]


def test_something_new_takes_a_round_back() -> None:
    """Whoever gets on between is not ignoring it."""
    policy = Policy(PATIENT)
    weak = found(1, most=HINT)
    said: list[Action | None] = []
    for number in range(30):
        said += climb(policy, weak, number, 1)
        policy.descend()
    assert [one for one in said if one] == [HINT]


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: str(rung.action))
def test_each_rung_enters_by_its_setting(rung: object) -> None:
    """The table is the ladder: a setting moves its own rung, and no other."""
    assert isinstance(rung, type(RUNGS[0]))
    if not rung.after:
        return
    strongest = rung.leads_to[0] if rung.action is not Action.ABORT else Action.ABORT
    for after in (3, 7):
        settings = Settings(**{rung.after: after})  # type: ignore[arg-type]
        said = climb(Policy(settings), _found(strongest), 0, 9)
        assert said.index(rung.action) == after


def _found(most: Action) -> Detection:
    return Detection("d", "rule", Severity.WARNING, 0.9, frozenset({1}), 3, 3, "m", max_action=most)
