"""Test mode: the guard switched off, or on a clock that the test moves."""

from __future__ import annotations

import math
import time
import weakref
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from otel_loopguard._util.text import check_number

if TYPE_CHECKING:
    from typing_extensions import Self

_MOVES: Final = 10_000
"""Moves of the clock that are remembered, 1 MB: a long test run moves it a few hundred times."""


class _State(NamedTuple):
    testing: bool
    off: bool
    gate_limit_s: float
    only: object = None  # the guard that a test watches with


class Ticking(Protocol):
    """Looks at the clock by itself, unless the guard is deterministic."""

    def tick(self) -> None:
        """The clock was moved: reports what is late."""
        ...


class TestMode:
    """Result of `set_testing`; as a context manager it restores the previous state."""

    def __init__(self, before: _State) -> None:
        self._before = before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _set(self._before)

    def advance(self, seconds: float) -> None:
        """Moves the clock of all guards of this process on, and has them look at it.

        Spans that start or end from now on count as that much later. The clock stays moved when
        the testing ends: it never goes back. Call it from one thread at a time.
        """
        check_number("seconds", seconds, 0, finite=True)
        if not state.testing:
            msg = f"the clock was to be moved by {seconds!r} s, but set_testing(True) does not hold"
            raise RuntimeError(msg)
        _move(round(seconds * 1e9))
        for ticking in tuple(_ticking):
            ticking.tick()


def set_testing(
    testing: bool | Literal["off"] = True,  # noqa: FBT001, FBT002, RUF100
    *,
    gate_limit_s: float = 0.0,
) -> TestMode:
    """Switches all guards of this process off, or makes them deterministic, for your own tests.

    ::

        otel_loopguard.set_testing("off")  # for good, in conftest.py

        with otel_loopguard.set_testing(True) as rehearsal:  # for a block
            ...
            rehearsal.advance(61)

    It holds at once, for all threads, until it is called again; see docs/false-alarms.md.

    Args:
        testing: `"off"`: as though no guard were there: no decision is taken, `check` and `gate`
            never raise or wait, and every control is `allow`. True: guards judge what they are
            shown and nothing else. No thread looks at the clock, a call that hangs is found when
            the test moves the clock on, gates wait no longer than `gate_limit_s`, and retries do
            not wait at all. False: as in production.
        gate_limit_s: Seconds that a gate waits at most where `testing` is True.

    Returns:
        A context manager that sets back what was before, and moves the clock.

    Raises:
        ValueError: A value is none of these.
    """
    if testing not in (True, False, "off"):
        raise ValueError(f"testing must be True, False or 'off', got {testing!r}")
    check_number("gate_limit_s", gate_limit_s, 0)
    before = state
    on = testing is True
    limit_s = gate_limit_s if on else math.inf
    _set(state._replace(testing=on, off=testing == "off", gate_limit_s=limit_s))
    return TestMode(before)


def let_only(guard: object) -> None:
    """Has no other live guard do anything, until what was before is set back."""
    _set(state._replace(only=guard))


def off(guard: object = None) -> bool:
    """True if guards do nothing; of one guard also if a test watches with another."""
    return state.off or (guard is not None and state.only not in (None, guard))


def deterministic() -> bool:
    """True if guards start no thread and wait for nothing by themselves."""
    return state.testing


def waits(limit_s: float) -> float:
    """Bounds the wait of a gate while a test runs."""
    return min(limit_s, state.gate_limit_s)


AHEAD_NS: Final = 60 * 10**9
"""Nanoseconds that the clock of another host may be ahead. What lies further in the future was
before a clock was set back."""


def now() -> int:
    """The time by the clock of live guards, nanoseconds since the epoch."""
    return time.time_ns() + _ahead if _ahead else time.time_ns()


def was_set_back(last: int, moment: int) -> bool:
    """True if a clock was set back between two times: the last is in the future, and this is not.

    Where both are, they are of a host whose clock is ahead.
    """
    return last > now() + AHEAD_NS >= moment


def steady() -> int:
    """Nanoseconds of a steady clock, which counts suspended time; only tests move it."""
    return _steady() + _ahead


def _since_boot() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


_steady: Final = _since_boot if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns


def to_guard_time(moment: int) -> int:
    """Converts a moment of the machine's clock to that of live guards."""
    if not moves:
        return moment
    place = bisect_right(moves, (moment, 2**63))
    return moment + moves[place - 1][1] if place else moment


def ticks(ticking: Ticking) -> None:
    """Registers, weakly, an object that ticks when a test moves the clock."""
    _ticking.add(ticking)


def _set(found: _State) -> None:
    global state  # noqa: PLW0603
    state = found


def _move(by: int) -> None:
    global _ahead  # noqa: PLW0603
    if by:
        _ahead += by
        moves.append((time.time_ns(), _ahead))
        # Spans that started ten thousand moves ago are told by the oldest that is left.
        del moves[:-_MOVES]


state = _State(testing=False, off=False, gate_limit_s=math.inf)
"""State set by `set_testing`, for hot paths. Never keep a reference to it."""
_ahead = 0
"""Nanoseconds that the guards' clock is ahead of the machine's."""
moves: list[tuple[int, int]] = []
"""When a test moved the clock, and how far it was ahead since: none in production."""
_ticking: weakref.WeakSet[Ticking] = weakref.WeakSet()
