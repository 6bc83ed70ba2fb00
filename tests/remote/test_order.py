"""Of two changes of one session one counts, in whichever order they are heard."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard._control.replication import takes_precedence
from otel_loopguard.core import Action
from tests.remote.changes import notice

ALLOW, DENY, PAUSE, ABORT = Action.ALLOW, Action.DENY, Action.PAUSE, Action.ABORT


def said(who: str, action: Action, at: int, **more: Any) -> Any:
    return notice(who=who, action=action, at=at, **more)


CASES: dict[str, Any] = {
    "newer resume lifts a person's abort": (("ada", ABORT, 1), ("bob", ALLOW, 2), False),
    "older resume does not": (("ada", ABORT, 2), ("bob", ALLOW, 1), True),
    "newer resume lifts a policy's abort": (("policy", ABORT, 1), ("bob", ALLOW, 2), False),
    "older resume does not lift a policy's": (("policy", ABORT, 2), ("bob", ALLOW, 1), True),
    "a policy does not lower a person's pause": (("ada", PAUSE, 1), ("policy", ALLOW, 2), True),
    "a policy does not deny what is paused": (("ada", PAUSE, 1), ("policy", DENY, 2), True),
    "a policy aborts what is paused": (("ada", PAUSE, 1), ("policy", ABORT, 2), False),
    "a late pause goes before a policy's deny": (("policy", DENY, 2), ("ada", PAUSE, 1), False),
    "a late pause goes before a policy's allow": (("policy", ALLOW, 2), ("ada", PAUSE, 1), False),
    "a late pause does not undo an abort": (("policy", ABORT, 2), ("ada", PAUSE, 1), True),
    "a policy stops again after a resume": (("ada", ALLOW, 1), ("policy", DENY, 2), False),
    "an old stop comes after the resume": (("ada", ALLOW, 2), ("policy", ABORT, 1), True),
    "the same twice": (("ada", PAUSE, 1), ("ada", PAUSE, 1), True),
}


@pytest.mark.parametrize(("last", "new", "expected"), CASES.values(), ids=CASES.keys())
def test_which_one_counts(last: Any, new: Any, *, expected: bool) -> None:
    """The newer one, but people go before policies."""
    assert takes_precedence(said(*last), said(*new)) is expected


def test_a_policy_takes_down_only_what_the_same_guard_said() -> None:
    """Another guard's deny that is lowered says nothing about an abort."""
    last = said("policy", ABORT, 1, origin="one")
    assert takes_precedence(last, said("policy", ALLOW, 2, origin="two"))
    assert not takes_precedence(last, said("policy", ALLOW, 2, origin="one"))


def test_what_is_over_stands_no_more() -> None:
    """A pause with an end keeps nothing out after it."""
    last = said("ada", PAUSE, 5, until=10)
    assert takes_precedence(last, said("policy", DENY, 9))
    assert not takes_precedence(last, said("policy", DENY, 11))
