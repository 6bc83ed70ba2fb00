"""What the journal says of a session: its steps are shown to new detectors, its loops put back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Decision, Evidence
from otel_loopguard.identity import Rounds
from otel_loopguard.policy import Loop, Policy
from otel_loopguard.sessions.calls import CallEntry
from otel_loopguard.sessions.history import Known
from otel_loopguard.sessions.journal import Mark
from otel_loopguard.sessions.panel import Panel

if TYPE_CHECKING:
    from otel_loopguard.detectors import Registry
    from otel_loopguard.faults import Faults
    from otel_loopguard.sessions.journal import Entry
    from otel_loopguard.settings import Settings

_LASTING: Final = (Action.PAUSE, Action.ABORT)


class Past:
    """Takes the entries of a session in order of time; whatever decides is not asked again.

    Calls are numbered anew, and so are rounds and epochs, so that the steps of several processes
    are one row. Detectors see every call. What they find is not judged: loops stand where the
    entries say that they stood, and what the user did or a success took back is done again. The
    arguments are gone: a number stands in their place, so that short equal answers count as those
    of many items (they are no sign of a loop).

    Args:
        settings: Settings of the guard.
        registry: Its detectors.
        faults: Counts detectors that throw.

    Attributes:
        panel: Detectors that have seen the calls.
        policy: Has the loops.
        known: The newest calls and their answers.
        calls: Tool calls.
        epochs: Changes of the world.
        round: Number of the newest round.
        standing: The decision that the flag stood for; None if it was down.
        troubled: Whether anything was detected.
    """

    def __init__(self, settings: Settings, registry: Registry, faults: Faults) -> None:
        self._settings = settings
        self._rounds = Rounds()
        self.panel = Panel(registry, settings, faults)
        self.policy = Policy(settings)
        self.known = Known()
        self.calls = self.epochs = self.round = 0
        self.standing: Decision | None = None
        self.troubled = False

    def take(self, entry: Entry) -> None:
        """Takes the next entry."""
        if isinstance(entry, CallEntry):
            self._call(entry)
        elif isinstance(entry, Loop):
            self.troubled = True
            entry.last, entry.moment = self.calls - 1, self.round
            self.policy.recall(entry)
        elif isinstance(entry, Decision):
            self._decided(entry)
        elif isinstance(entry, Mark):
            self._marked(entry)

    def _call(self, entry: CallEntry) -> None:
        seen = entry.evidence
        seen.number, seen.epoch, seen.sample = self.calls, self.epochs, str(self.calls)
        seen.round = self.round = self._rounds.of(max(seen.time - entry.took, 0), seen.time)
        self.known.note(seen)
        if seen.tool not in self._settings.exempt:
            self.panel.observe(seen)
            self._calm(seen, opened=entry.opened)
        self.calls += 1
        self.epochs += entry.opened

    def _calm(self, seen: Evidence, *, opened: bool) -> None:
        """What a success takes back. A call that showed a loop has an entry of it behind it."""
        if not self.troubled:
            return
        if seen.call is not None and seen.changed and not seen.error:
            self.policy.moved(seen.call)
        new = seen.novelty is not None and seen.novelty >= self._settings.descend_novelty
        succeeded = not (seen.error or seen.waiting) and (new or opened)
        self.policy.calm(seen.number, succeeded=succeeded)

    def _decided(self, decision: Decision) -> None:
        self.troubled = True
        self.policy.ended = self.policy.ended or decision.action is Action.ABORT
        if decision.shadow:
            return
        standing = self.standing
        if standing is None or decision.action.rank >= standing.action.rank:
            self.standing = decision

    def _marked(self, mark: Mark) -> None:
        if mark in (Mark.LOWERED, Mark.RESTORED):
            lasts = self.standing is not None and self.standing.action in _LASTING
            self.standing = self.standing if lasts else None
            if mark is Mark.RESTORED:
                self._restored(lasts=lasts)
            return
        stopped = self.standing is not None and self.standing.action.stops
        if mark is Mark.CLEARED or self.policy.ended or stopped:
            self.policy.start_over()
        self.standing = None
        self.panel.user_turn()
        self.policy.user_turn()

    def _restored(self, *, lasts: bool) -> None:
        """Copies of the state are not in the journal: what was done before is forgotten (C19)."""
        self.panel.restore({}, {})
        self.known = Known()
        self.epochs += 1
        if not (lasts or self.policy.ended):
            self.policy.start_over()
