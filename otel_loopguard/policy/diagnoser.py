"""Asks the user's own function about errors of unknown kind, beside the agent's path (C13)."""

from __future__ import annotations

import pkgutil
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.core import Diagnosis
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.faults import attempt
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock, start_thread

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults

Diagnose = Callable[[str], object]
"""Takes the text of an error (at most 4,000 characters of it); gives a `Diagnosis`, the cause alone
as text, or None."""

_KEPT: Final = 256
_WAITING: Final = 16
_LOOK: Final = 4_000
_ASKED: Final = "custom"


class Diagnoser:
    """Keeps what a user's function said about errors, by error.

    It runs on a daemon thread that ends when nothing waits; each error is asked about once, of
    further ones at most 16 wait, and the newest 256 answers are kept. An answer goes with the
    decisions that come after it: a hint does not wait for a model. A function that throws is
    counted and gave no answer; one that never returns holds up nothing but the other questions.

    Args:
        function: The user's function.
        faults: Where its failures are counted.
    """

    def __init__(self, function: Diagnose, faults: Faults) -> None:
        self._function = function
        self._faults = faults
        self._answers: OrderedDict[int, Diagnosis | None] = OrderedDict()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the thread is not here, and the lock may be held."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()
        self._waiting: deque[tuple[int, str]] = deque()
        self._working = False

    def of(self, error: int, text: str) -> Diagnosis | None:
        """What is known by now about an error; asks if nobody did. Does not wait.

        Args:
            error: Key of the line that names it.
            text: What was said.
        """
        with self._lock:
            if error in self._answers or len(self._waiting) >= _WAITING:
                return self._answers.get(error)
            self._answers[error] = None
            if len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
            self._waiting.append((error, text[:_LOOK]))
            begins, self._working = not self._working, True
        if begins and not start_thread("diagnoser", self._work):
            self._working = False
        return None

    def _work(self) -> None:
        while (question := self._next()) is not None:
            error, text = question
            answer = attempt(self._faults, "diagnoser", self._asked, text)
            with self._lock:
                if error in self._answers:
                    self._answers[error] = answer

    def _next(self) -> tuple[int, str] | None:
        with self._lock:
            if not self._waiting:
                self._working = False
                return None
            return self._waiting.popleft()

    def _asked(self, text: str) -> Diagnosis | None:
        answer: object = self._function(text)
        if answer is None or isinstance(answer, Diagnosis):
            return answer
        if isinstance(answer, str):
            return Diagnosis(_ASKED, answer.strip()[:1000]) if answer.strip() else None
        msg = f"a diagnosis must be a Diagnosis, a text or None, got {answer!r:.200}"
        raise TypeError(msg)


def diagnoser(place: str, faults: Faults) -> Diagnoser | None:
    """The diagnoser that a setting names; None if it names none.

    Args:
        place: `module:name` of the user's function, or nothing.
        faults: Where its failures are counted.

    Raises:
        LoopGuardSettingsError: It cannot be imported or called.
    """
    if not place:
        return None
    try:
        function = cast("Diagnose", pkgutil.resolve_name(place))
    except (ImportError, AttributeError, ValueError) as error:
        raise LoopGuardSettingsError(_refused(place, f"cannot be imported: {error}")) from None
    if not callable(function):
        raise LoopGuardSettingsError(_refused(place, "expected a function"))
    return Diagnoser(function, faults)


def _refused(place: str, why: str) -> str:
    return f"diagnoser (LOOPGUARD_DIAGNOSER) = {place!r}: {why}"
