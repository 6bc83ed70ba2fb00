"""Which session a run or a step belongs to, by its span and by what is open around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind
from otel_loopguard.faults import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.core import Step
    from otel_loopguard.dialects import Reader
    from otel_loopguard.faults import Faults
    from otel_loopguard.opens import Open, Opens
    from otel_loopguard.sessions import Session, Sessions

_RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})


class Belonging:
    """Finds the sessions of one guard's runs and steps. The guard's lock is held.

    Args:
        sessions: The sessions.
        opens: The open spans.
        reader: Reads steps off spans.
        faults: Where faults are counted.
        clock: The time of the guard; takes the time that a span says, nanoseconds since the epoch.
    """

    def __init__(
        self, sessions: Sessions, opens: Opens, reader: Reader, faults: Faults,
        clock: Callable[[int | None], int],
    ) -> None:  # fmt: skip
        self._sessions = sessions
        self._opens = opens
        self._reader = reader
        self._faults = faults
        self._clock = clock

    def begins(self, opened: Open) -> None:
        """A span that starts a run of an agent says whose it is, and of which conversation.

        Args:
            opened: Its open span; whether it is a run, and of which agent, is put on it.
        """
        view = opened.view
        step = attempt(self._faults, "read", self._reader.read, view)
        if step is None or step.kind not in _RUNS:
            return
        opened.runs = True
        opened.agent = step.name if step.kind is Kind.AGENT else opened.agent
        if view.parent_id is None and opened.session is None and step.session is not None:
            now = self._clock(view.start)
            session = self._sessions.run(view.trace_id, step.session, now)
            # Beside a run that is still open it is a sub-agent; after it, the user's next turn.
            if session is not None and self._opens.get(session.run) is None:
                session.next_run(view.span_id)

    def of(self, step: Step, opened: Open | None) -> Session:
        """The session of a step; a new one if there is none.

        Args:
            step: The step.
            opened: Its open span, if its start was shown.
        """
        if opened is not None and opened.session is not None:
            return self._sessions.used(opened.session, self._clock(step.end))
        return self._sessions.of_step(step, self._clock(step.end))
