"""The one place that swallows exceptions.

What a hook of a span processor raises reaches the user's code, for the SDK catches nothing. So
whatever may fail runs inside `swallow` or `attempt`, or passes what it caught to
`InternalErrors.caught`: the fault is counted, logged once per kind, and the agent goes on.
`raise_faults(True)` raises faults again, in the project's own tests only: others should not fail
for a fault of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from traceback import walk_tb
from typing import Final, TypeVar

from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger

_KINDS: Final = 256
"""Kinds of faults that are counted apart. Some 100 places catch faults, of few classes; only names
of users' own functions could make it more."""
_FRAMES: Final = 6
"""Innermost frames of a fault that are logged: from what failed to who asked for it."""


class InternalErrors:
    """Counts faults by kind (`where:ExceptionClass`) and logs the first of each kind.

    Attributes:
        counts: How often each kind was seen; past 256 kinds all others are one.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()

    def note(self, where: str, fault: BaseException) -> None:
        """Counts one fault, and logs it if it is the first of its kind: where, not its message.

        What raised it may have put content into its message, unless nothing did: then it is ours.
        """
        kind = f"{where}:{type(fault).__name__}"
        with self._lock:
            if kind not in self.counts and len(self.counts) >= _KINDS:
                kind = "other"
            self.counts[kind] += 1
            first = self.counts[kind] == 1
        if first:
            try:
                place = place_of(fault, _FRAMES) or fault
                logger.warning("%s failed and was skipped: %s", kind, place, extra={"fault": kind})
            except Exception:  # noqa: BLE001
                # A log handler that throws must not do so into the agent.
                with self._lock:
                    self.counts["log:" + kind] += 1

    def caught(self, where: str, fault: Exception) -> None:
        """Counts and logs what an `except` clause of a hot path caught.

        Cheaper than `swallow` and `attempt`, which cost a call where nothing fails.
        """
        self.note(where, fault)
        if _raising:
            raise fault


def place_of(fault: BaseException, frames: int) -> str:
    """The innermost frames that an exception came through; empty if it was not raised."""
    codes = [(frame.f_code, line) for frame, line in walk_tb(fault.__traceback__)][-frames:]
    places = (
        f"{'/'.join(Path(code.co_filename).parts[-2:])}:{line} {code.co_name}"
        for code, line in codes
    )
    return " > ".join(places)


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_raising = False


def raise_faults(raising: bool) -> None:
    """Says whether faults are raised again after they were counted; the default is no."""
    global _raising  # noqa: PLW0603
    _raising = raising


def attempt(
    faults: InternalErrors, where: str, function: Callable[[_Argument], _Result], given: _Argument
) -> _Result | None:
    """Calls a function; returns None for an `Exception`, which is counted and logged."""
    try:
        return function(given)
    except Exception as fault:
        faults.note(where, fault)
        if _raising:
            raise
        return None


class swallow:  # noqa: N801  # reads as a statement: `with swallow(faults, "on_end"):`
    """Swallows, counts and logs any `Exception` raised inside the block."""

    __slots__ = ("_faults", "_where")

    def __init__(self, faults: InternalErrors, where: str) -> None:
        self._faults = faults
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, fault: BaseException | None, _traceback: object) -> bool:
        if not isinstance(fault, Exception):
            return False
        self._faults.note(self._where, fault)
        return not _raising
