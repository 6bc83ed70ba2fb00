"""A KeyboardInterrupt, at every line of ours that runs while an abort is decided."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, Settings
from otel_loopguard._control.flag import Flag, any_stops
from otel_loopguard._util.errors import raise_faults
from otel_loopguard._util.locks import held
from otel_loopguard.core import Action, Kind, Step

if TYPE_CHECKING:
    from types import FrameType

    from otel_loopguard.core import Decision

OURS = str(Path(otel_loopguard.__file__).parent)


def again(guard: LoopGuard, session: str, times: int = 1) -> None:
    """The same call, with the same outcome."""
    for _ in range(times):
        guard.observe(Step(Kind.TOOL, "search", args={"q": 1}, outcome="none found"), session)


def flag_of(guard: LoopGuard, session: str) -> Flag:
    flag = guard.flag_of(session)
    assert flag is not None
    return flag


def calls_to_abort(guard: LoopGuard) -> int:
    for number in range(100):
        again(guard, "undisturbed")
        if flag_of(guard, "undisturbed").control.action is Action.ABORT:
            return number
    pytest.fail("no abort")


class InterruptAt:
    """Raises a KeyboardInterrupt at the n-th line of ours."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _given: object) -> InterruptAt | None:
        code = frame.f_code
        if not code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.left -= 1
            # Python looks at no signal between the end of a block and what its `with` calls then,
            # nor at a `try:`, which does nothing and may be outside of all handlers.
            line = linecache.getline(code.co_filename, frame.f_lineno).lstrip()
            if self.left <= 0 and not self.where and not line.startswith(("with ", "try:")):
                self.where = f"{code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self


def interrupted(guard: LoopGuard, session: str, number: int) -> str:
    """One more call, interrupted; where that was, or nothing if it was over before."""
    interrupt = InterruptAt(number)
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        again(guard, session)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return interrupt.where


@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.rare)])
def test_an_interrupted_abort_is_made_good(every: int) -> None:
    """The session is stopped at the latest when a new one would be, and no lock stays held."""
    guard = LoopGuard(Settings(telemetry_events=False))
    before = calls_to_abort(guard)
    number = 1
    while True:
        session = f"interrupted-{number}"
        again(guard, session, before)
        where = interrupted(guard, session, number)
        if not where:
            break
        assert not held(), where
        again(guard, session, before + 2)
        flag = flag_of(guard, session)
        assert flag.control.action is Action.ABORT, where
        assert flag.stops, where
        assert any_stops(), where
        number += every
    assert number > 100


def test_an_abort_without_its_flag_is_made_good_by_the_same_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An interrupt after the ladder and before the flag: the same call once more is stopped."""
    guard = LoopGuard()
    before = calls_to_abort(guard)
    again(guard, "s", before)
    with monkeypatch.context() as patched:
        patched.setattr(Flag, "set", _interrupts)
        with pytest.raises(KeyboardInterrupt):
            again(guard, "s")
    assert flag_of(guard, "s").control.action is Action.DENY
    again(guard, "s")
    assert flag_of(guard, "s").control.action is Action.ABORT


def test_an_abort_that_a_fault_swallowed_is_made_good_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with an interrupt; the fault is counted."""
    raise_faults(False)
    guard = LoopGuard()
    before = calls_to_abort(guard)
    again(guard, "s", before)
    with monkeypatch.context() as patched:
        patched.setattr(Flag, "set", _fails)
        again(guard, "s")
    assert guard.faults.counts == {"judge:RuntimeError": 1}
    again(guard, "s")
    assert flag_of(guard, "s").control.action is Action.ABORT


def test_what_an_interrupt_left_over_is_over_with_the_users_next_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user was asked meanwhile: an abort of before stops nothing."""
    guard = LoopGuard()
    before = calls_to_abort(guard)
    again(guard, "s", before)
    with monkeypatch.context() as patched:
        patched.setattr(Flag, "set", _interrupts)
        with pytest.raises(KeyboardInterrupt):
            again(guard, "s")
    guard.observe(Step(Kind.OTHER, "user"), "s")
    guard.observe(Step(Kind.TOOL, "other", args={}, outcome="news"), "s")
    assert not flag_of(guard, "s").stops


def test_a_decision_is_given_once_where_nothing_interrupts() -> None:
    """What is made good is what was left over, and nothing else."""
    decisions: list[Decision] = []
    guard = LoopGuard(on_decision=lambda _session, decision: decisions.append(decision))
    again(guard, "s", 12)
    actions = [decision.action for decision in decisions]
    assert len(actions) == len(set(actions))


def _interrupts(*_given: object, **_named: object) -> bool:
    raise KeyboardInterrupt


def _fails(*_given: object, **_named: object) -> bool:
    msg = "not now"
    raise RuntimeError(msg)
