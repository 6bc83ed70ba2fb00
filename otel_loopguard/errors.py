"""Everything that otel-loopguard raises on purpose.

LoopGuardError
├── LoopGuardSettingsError   a setting that cannot be used
├── RecordingError           a recorded file that cannot be read
└── LoopGuardStop            the runtime asked, and the session has to stop
    ├── LoopGuardAbort       it is over
    └── LoopGuardPaused      nobody let it go on within the limit

Only code that asks gets a `LoopGuardStop`: `control.check()` and `control.gate()` raise it,
span processors never do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.core import Decision


class LoopGuardError(Exception):
    """Base of all errors of this package."""


class LoopGuardSettingsError(LoopGuardError, ValueError):
    """A setting has a value that cannot be used; the message has name, value, expectation."""


class RecordingError(LoopGuardError):
    """A recorded file cannot be read; the message has file, line and what was expected."""


class LoopGuardStop(LoopGuardError):  # noqa: N818  # it says what to do, not what broke
    """The session of the current context has to stop.

    Attributes:
        session: Key of the session.
        decision: What was decided, or None where a person stopped the session by hand.
    """

    def __init__(self, message: str, session: str, decision: Decision | None = None) -> None:
        super().__init__(message)
        self.session = session
        self.decision = decision


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
