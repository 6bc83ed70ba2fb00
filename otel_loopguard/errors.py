"""Everything that otel-loopguard raises on purpose.

LoopGuardError
├── LoopGuardSettingsError   a setting that cannot be used
├── RecordingError           a recorded file that cannot be read
├── LoopGuardLimit           a call that passed its limit in time and was cancelled
├── StoreError               a store that cannot do its work
├── PlanError                a plan that is not sound
├── BreakerOpenError         the breaker of a tool or agent lets no call through
├── CheckpointError          a checkpoint cannot be made, found or restored
├── UnverifiedWriteError     what was said to be stored is not
├── EscalationError          an answer that cannot be taken
└── LoopGuardStop            the runtime asked, and the session has to stop
    ├── LoopGuardAbort       it is over
    └── LoopGuardPaused      nobody let it go on within the limit

Only code that asks gets a `LoopGuardStop`: `control.check()` and `control.gate()` raise it,
span processors never do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from otel_loopguard.core import Decision
    from otel_loopguard.core.decision import Outcome
    from otel_loopguard.core.task import Problem


class LoopGuardError(Exception):
    """Base of all errors of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        # Python would call the class with the message alone. A worker's error that cannot be read
        # ends all work of a process pool, or hangs it.
        return _restored, (type(self), self.args), self.__dict__


def _restored(kind: type[LoopGuardError], args: tuple[object, ...]) -> LoopGuardError:
    """An error as it was, but for its fields."""
    made = kind.__new__(kind)
    made.args = args
    return made


class LoopGuardSettingsError(LoopGuardError, ValueError):
    """A setting has a value that cannot be used; the message has name, value, expectation."""


class RecordingError(LoopGuardError):
    """A recorded file cannot be read; the message has file, line and what was expected."""


class LoopGuardLimit(LoopGuardError, TimeoutError):  # noqa: N818  # it says what was passed
    """Code inside `control.limit()` passed its limit and was cancelled.

    Attributes:
        limit_s: The limit, in seconds.
        name: Name of what ran; None if it was not given.
    """

    def __init__(self, message: str, limit_s: float = 0.0, name: str | None = None) -> None:
        super().__init__(message)
        self.limit_s = limit_s
        self.name = name


class PlanError(LoopGuardError, ValueError):
    """A plan is not sound.

    Attributes:
        problems: Everything that is wrong with it; the message has the first 100.
    """

    def __init__(self, message: str, problems: Iterable[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class BreakerOpenError(LoopGuardError):
    """The breaker of a tool or agent is open; the message says since when and until when."""


class CheckpointError(LoopGuardError):
    """A checkpoint cannot be made, found or restored; the message has place and reason."""


class UnverifiedWriteError(LoopGuardError):
    """A write that was confirmed is not there."""


class EscalationError(LoopGuardError, ValueError):
    """An answer to an escalation cannot be taken: it is unknown, over, or no answer.

    Nothing was changed; the message says which escalation, and how it ended.
    """


class StoreError(LoopGuardError):
    """A store cannot do its work; the message has the store, the key where there is one, and why.

    Args:
        message: What is told.
        reason: What kind of trouble it is.

    Attributes:
        reason: `down` (cannot be reached, or lets nobody in), `slow` (no answer in time), `full`,
            `read_only`: the same may work later. `refused`: it never will, because what is there is
            of another kind, or because what was given cannot be stored.
    """

    def __init__(
        self, message: str, reason: Literal["down", "slow", "full", "read_only", "refused"] = "down"
    ) -> None:
        super().__init__(message)
        self.reason: Final = reason


class LoopGuardStop(LoopGuardError):  # noqa: N818  # it says what to do, not what broke
    """The session of the current context has to stop.

    Attributes:
        session: Key of the session; empty where a queue passed on the message alone (Celery).
        decision: What was decided, or None where a person stopped the session by hand.
        parts: Results so far, as `resilience.partial` was given them, oldest first.
        by: Who stopped it: `policy`, or the name of a person; None where that is not known.
    """

    def __init__(
        self,
        message: str,
        session: str = "",
        decision: Decision | None = None,
        parts: Iterable[object] = (),
        by: str | None = None,
    ) -> None:
        super().__init__(message)
        self.session = session
        self.decision = decision
        self.parts = tuple(parts)
        self.by = by

    @property
    def outcome(self) -> Outcome:
        """The end of the run: `loop`, `stalled`, `failing`, `budget`, `aborted_by_person`, …"""
        from otel_loopguard.core.decision import outcome_of  # noqa: PLC0415  # of an error alone

        return outcome_of(self.decision, self.by)

    def as_dict(self) -> dict[str, str | None]:
        """The end of the run as JSON values; unknown is None. No content, and no parts."""
        decision = self.decision
        return {
            "outcome": self.outcome.value,
            "session": self.session,
            "message": str(self),
            "by": self.by,
            "reason": None if decision is None else decision.reason,
            "detector": None if decision is None else decision.detector,
            "decision_id": None if decision is None else decision.id,
        }


class LoopGuardAbort(LoopGuardStop):
    """The session is aborted.

    ::

        try:
            while not done:
                control.check()
                ...
        except LoopGuardAbort as stop:
            return f"stopped: {stop}"
    """


class LoopGuardPaused(LoopGuardStop):
    """The session was paused, and nobody let it go on within the limit of the gate."""

    @property
    def outcome(self) -> Outcome:
        """`paused`; `decision` says why, where it was not a person."""
        from otel_loopguard.core.decision import Outcome  # noqa: PLC0415  # of an error alone

        return Outcome.PAUSED


REFUSALS: Final = frozenset(
    kind.__name__ for kind in (BreakerOpenError, LoopGuardAbort, LoopGuardPaused)
)
"""Names of what is raised in place of a call's result."""
