"""Runs of agents that are open: how long, since when without a step, in which phase."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from otel_loopguard.detectors import idle_clocks, phase_clocks, run_clocks
from otel_loopguard.watch.clocks import Look, look

if TYPE_CHECKING:
    from otel_loopguard.detectors import Clock
    from otel_loopguard.opens import Open
    from otel_loopguard.settings import Settings
    from otel_loopguard.watch.deadlines import Ticket


class Run:
    """One open run: the outermost span of an agent or a workflow.

    Attributes:
        opened: Its span.
        busy: Open steps below it; spans of agents are none.
        last: When a step of it last began or ended, nanoseconds since the epoch.
        phase: Name of the agent at work.
        phase_since: Since when, nanoseconds since the epoch.
        phases: How many phases there were.
        said: Codes of what was said about its limits.
        ticket: When it is to be looked at next.
    """

    __slots__ = (
        "busy", "last", "opened", "phase", "phase_since", "phases", "said", "ticket",
    )  # fmt: skip

    def __init__(self, opened: Open) -> None:
        self.opened = opened
        self.busy = 0
        self.last = opened.since
        self.phase: str | None = None
        self.phase_since = opened.since
        self.phases = 0
        self.said: set[str] = set()
        self.ticket: Ticket[object] | None = None

    def works(self, agent: str | None, now: int) -> bool:
        """Something of it began or ended.

        Args:
            agent: Name of the agent that does it, if that is known.
            now: Nanoseconds since the epoch.

        Returns:
            Whether another phase begins by that.
        """
        self.last = max(self.last, now)
        if agent is None or agent == self.phase:
            return False
        self.phase, self.phase_since = agent, now
        self.phases += 1
        self.said.discard("same_phase")
        return self.phases > 1


class Runs:
    """Judges open runs, and adds up what those of each session took. Not thread-safe.

    Args:
        settings: Settings of the guard.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._most = settings.max_sessions
        self._idle = round(settings.stall_idle_s * 1e9)
        self._idle_near = round(settings.stall_idle_s * settings.stall_warning * 1e9)
        self._spent: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()

    def look(self, run: Run, session: str | None, now: int) -> Look:
        """What there is to say about an open run, and when to look at it again.

        Args:
            run: The run.
            session: Key of its session, if that is known.
            now: Nanoseconds since the epoch.
        """
        spent, said = self._spent.get(session or "", (0, frozenset[str]()))
        found = look(self._clocks(run, spent), run.said | said, now, self._settings.stall_warning)
        run.said.update(_codes(found))
        return found

    def phase_due(self, run: Run) -> int | None:
        """When a run in which a phase began is to be looked at; None if that is no matter."""
        return next(
            (clock.after() for clock in phase_clocks(self._settings, run.phase_since)), None
        )

    def idle_due(self, run: Run) -> int | None:
        """When a run in which nothing runs is to be looked at; None if that is no matter."""
        # In plain numbers: this is asked whenever a step ends.
        if not self._idle or "idle" in run.said:
            return None
        return run.last + (self._idle if "idle_near" in run.said else self._idle_near)

    def ended(self, run: Run, session: str | None, now: int) -> None:
        """A run ended: its time counts for the next runs of its session, of the newest sessions.

        Args:
            run: The run.
            session: Key of its session, if that is known.
            now: Nanoseconds since the epoch.
        """
        if session is None:
            return
        spent, said = self._spent.pop(session, (0, frozenset[str]()))
        overall = frozenset(code for code in run.said if code.startswith("overall"))
        self._spent[session] = (spent + max(now - run.opened.since, 0), said | overall)
        if len(self._spent) > self._most:
            self._spent.popitem(last=False)

    def forget(self, session: str) -> None:
        """A session is known no more.

        Args:
            session: Its key.
        """
        self._spent.pop(session, None)

    def _clocks(self, run: Run, spent: int) -> list[Clock]:
        settings = self._settings
        clocks = run_clocks(settings, run.opened.since, spent)
        if not run.busy:
            clocks += idle_clocks(settings, run.last)
        if run.phases > 1:
            clocks += phase_clocks(settings, run.phase_since)
        return clocks


def _codes(found: Look) -> set[str]:
    codes = {f"{clock.reason}_near" for clock, _ in found.found}
    return codes | {clock.reason for clock, near in found.found if not near}
