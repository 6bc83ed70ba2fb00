"""The one place that swallows exceptions.

What a hook of a span processor raises reaches the user's code (the SDK catches nothing), so every
hook is a `hook` and all else that may fail runs inside `swallow`: the fault is counted, logged once
per kind, and the agent goes on. `raise_faults(True)` raises them again: for the project's own tests
only, because even the tests of an agent should not fail for a fault of ours.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_Given = ParamSpec("_Given")


class InternalErrors:
    """Counts faults by kind (`where:ExceptionClass`) and logs the first of each kind.

    Attributes:
        counts: How often each kind was seen. Bounded: past 256 kinds all others are one.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        self._lock = new_lock()

    def note(self, where: str, fault: BaseException) -> None:
        """Counts one fault, and logs it if it is the first of its kind."""
        kind = f"{where}:{type(fault).__name__}"
        with self._lock:
            if kind not in self.counts and len(self.counts) >= 256:
                kind = "other"
            self.counts[kind] += 1
            first = self.counts[kind] == 1
        if first:
            try:
                logger.warning("%s failed and was skipped", kind, exc_info=fault)
            except Exception:  # noqa: BLE001
                # A log handler that throws must not do so into the agent.
                with self._lock:
                    self.counts["log:" + kind] += 1

    def caught(self, where: str, fault: Exception) -> None:
        """Counts a fault in an `except` clause of a hot path; tests of the project raise it again.

        Cheaper than `swallow` and `attempt`, which are a call each where nothing fails.
        """
        self.note(where, fault)
        if _raising:
            raise fault


class _Faulty(Protocol):
    @property
    def faults(self) -> InternalErrors: ...


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_Self = TypeVar("_Self", bound=_Faulty)
_raising = False


def raise_faults(raising: bool) -> None:
    """Says whether faults are raised again after they were counted; the default is no."""
    global _raising  # noqa: PLW0603
    _raising = raising


def hook(
    method: Callable[Concatenate[_Self, _Given], None],
) -> Callable[Concatenate[_Self, _Given], None]:
    """Makes a method of an object with `faults` swallow, count and log any `Exception`.

    Cheaper than `swallow`, for what runs on every span.
    """

    @functools.wraps(method)
    def hooked(self: _Self, /, *given: _Given.args, **named: _Given.kwargs) -> None:
        try:
            method(self, *given, **named)
        except Exception as fault:
            self.faults.note(method.__name__, fault)
            if _raising:
                raise

    return hooked


def attempt(
    faults: InternalErrors,
    where: str,
    function: Callable[[_Argument], _Result],
    given: _Argument,
    failed: _Result | None = None,
) -> _Result | None:
    """Calls a function; returns `failed` for an `Exception`, which is counted and logged."""
    try:
        return function(given)
    except Exception as fault:
        faults.note(where, fault)
        if _raising:
            raise
        return failed


def attempt_each(
    faults: InternalErrors,
    functions: Sequence[tuple[str, Callable[[_Argument], _Result | None]]],
    given: _Argument,
) -> tuple[list[tuple[str, _Result]], list[str]]:
    """Calls functions one after the other, each by its name, whatever the ones before do.

    One loop, for what runs on every call: `attempt` for each would cost more than they do.
    """
    found: list[tuple[str, _Result]] = []
    failed: list[str] = []
    for name, function in functions:
        try:
            seen = function(given)
        except Exception as fault:
            faults.note(name, fault)
            if _raising:
                raise
            failed.append(name)
            continue
        if seen is not None:
            found.append((name, seen))
    return found, failed


class swallow:  # noqa: N801  # reads as a statement: `with swallow(faults, "on_end"):`
    """Swallows, counts and logs any `Exception` raised inside the block."""

    __slots__ = ("_faults", "_where")

    def __init__(self, faults: InternalErrors, where: str) -> None:
        self._faults = faults
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        fault: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(fault, Exception):
            return False
        self._faults.note(self._where, fault)
        return not _raising


__all__ = ["InternalErrors", "attempt", "attempt_each", "hook", "raise_faults", "swallow"]
