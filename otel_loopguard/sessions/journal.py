"""The journal of a session: its newest entries, and what a past of entries amounts to."""

from __future__ import annotations

import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from otel_loopguard.core import Action, Decision
from otel_loopguard.detectors import DetectorSet
from otel_loopguard.evidence import NEWS, Rounds
from otel_loopguard.evidence.weight import Pace, weigh
from otel_loopguard.policy import Loop, Policy
from otel_loopguard.sessions.decisions import is_about
from otel_loopguard.sessions.journal_codec import CallEntry, Codec, Mark, Pseudonymizer, instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Detection, Step
    from otel_loopguard.core.evidence import Evidence
    from otel_loopguard.core.progress import Progress
    from otel_loopguard.detectors import Registry
    from otel_loopguard.evidence.weight import Since
    from otel_loopguard.sessions.journal_codec import Entry
    from otel_loopguard.settings import Settings

Written = tuple[str, bytes]
"""Id and value of an entry."""

Noted = tuple[str, bytes | CallEntry]
"""The same, with calls that are still to be packed: that is not done where steps end."""

MarkName = Literal["TURN", "CLEARED", "LOWERED", "RESTORED"]


class Known:
    """What the past tells of the calls that come after it."""

    __slots__ = ("_pace",)

    def __init__(self) -> None:
        self._pace = Pace()

    def note(self, seen: Evidence, took: int) -> Since:
        """Notes a call, and says what was between it and the same call before."""
        return self._pace.add(seen, max(seen.time - took, 0) if took else 0)

    def tell(self, seen: Evidence, took: int) -> None:
        """A call that this process has not seen before is none that is made for the first time."""
        since = self.note(seen, took)
        if since.fresh or not seen.fresh:
            return
        seen.fresh, seen.changed = False, since.changed
        if since.equal and seen.novelty is not None:
            seen.novelty = 0.0
        weigh(seen, since)


class Before(NamedTuple):
    """Calls, changes of the world and rounds before those of this process, added to its own."""

    calls: int = 0
    epochs: int = 0
    rounds: int = 0


class JournalBuffer:
    """The newest `journal.steps` (1000) entries of one session, own ones and those of others."""

    __slots__ = (
        "_codec", "_cover", "_moment", "_number", "_process", "after", "before", "decision_id",
        "entries", "known", "looks", "pending", "round", "since",
    )  # fmt: skip

    def __init__(self, cover: Pseudonymizer, size: int) -> None:
        self._cover = cover
        self._codec = Codec(cover.id)
        self._process = secrets.token_hex(4)
        self._moment = self._number = 0
        # Those handed on or of others, and those still to be handed on, in order.
        self.entries: deque[Written] = deque(maxlen=size)
        self.pending: list[Noted] = []
        # Those that came since others' were asked for; None while nobody asks.
        self.since: list[Noted] | None = None
        self.before = Before()
        # Calls of the past that this process has not made yet, and its newest round.
        self.known: Known | None = None
        self.round = 0
        # The entry that the store was read to, and how often it is still to be read.
        self.after: str | None = None
        self.looks = 0
        # The decision of another process, or of before, that the flag stands for.
        self.decision_id: str | None = None

    def call(self, step: Step, seen: Evidence, *, opened: bool) -> None:
        """Covers the keys of a call, numbers it after what comes before, and writes it down."""
        before = self.before
        self.round = seen.round
        self._cover.call(seen)
        seen.number += before.calls
        seen.epoch += before.epochs
        seen.round += before.rounds
        took = seen.time - step.start if step.start else 0
        if self.known is not None:
            self.known.tell(seen, took)
        self._add(CallEntry(seen, took, opened), seen.time)

    def loops(self, loops: Iterable[Loop]) -> None:
        """Writes down where loops stand."""
        for loop in loops:
            self._add(self._codec.loop(loop))

    def decided(self, decision: Decision) -> None:
        """Writes a decision down."""
        self._add(self._codec.decision(decision))

    def mark(self, name: MarkName, moment: int = 0) -> None:
        """Writes down what happened between two steps; now, where their clock does not say when."""
        self._add(self._codec.mark(Mark[name]), moment or time.time_ns())

    def covered(self, found: Sequence[Detection]) -> list[Detection]:
        """Detections by other evidence than calls, with their keys covered."""
        return [self._cover.detection(one) for one in found]

    def cover(self, key: int) -> int:
        """The digest of a key."""
        return self._cover.of(key)

    def follow(self, known: Known, calls: int, epochs: int, rounds: int, own: Progress) -> None:
        """Numbers what comes after the past."""
        self.known = known
        self.before = Before(calls - own.calls, epochs - own.epoch, rounds - self.round)

    def wrote(self, name: str) -> bool:
        """Whether an entry was written here, by its id: its call is counted."""
        return name.startswith(self._process, 17)

    def start_over(self) -> None:
        """The session has another key: under that nothing is written yet, nor read."""
        self.pending = [*self.entries, *self.pending]
        self.entries.clear()
        self.after = None

    def take(self) -> list[Noted]:
        """What is still to be handed on, given once; then `packed`, and told to `keep`."""
        pending, self.pending = self.pending, []
        return pending

    def packed(self, noted: Iterable[Noted]) -> list[Written]:
        """Entries as they are stored. Needs no lock."""
        pack = self._codec.call
        return [(name, value if isinstance(value, bytes) else pack(value)) for name, value in noted]

    def keep(self, written: Iterable[Written]) -> None:
        """Remembers what was handed on."""
        self.entries.extend(written)

    def _add(self, value: bytes | CallEntry, moment: int = 0) -> None:
        """Adds an entry; without a moment of its own it belongs to the entry before."""
        moment = self._moment = instant(moment) or self._moment or time.time_ns()
        self._number += 1
        # Ids sort by time, and of one process in the order of writing; `wrote` knows them by it.
        name = f"{moment:016x}-{self._process}{self._number & 0xFFFF_FFFF:08x}"
        self.pending.append((name, value))
        if self.since is not None:
            self.since.append((name, value))


_LASTING: Final = (Action.PAUSE, Action.ABORT)


class JournalReplay:
    """Takes the entries of a session in order of time; whatever decides is not asked again.

    Calls are numbered anew, and so are rounds and epochs, so that the steps of several processes
    are one row. Detectors see every call. What they find is not judged: loops stand where the
    entries say that they stood, and what the user did or a success took back is done again. The
    arguments are gone: a number stands in their place, so that short equal answers count as those
    of many items (they are no sign of a loop).
    """

    def __init__(self, settings: Settings, registry: Registry, faults: InternalErrors) -> None:
        self._settings = settings
        self._rounds = Rounds()
        self.detectors = DetectorSet(registry, settings, faults)
        self.policy = Policy(settings)
        self.known = Known()
        self.calls = self.epochs = self.round = 0
        # The decision that the flag stood for; None if it was down.
        self.standing: Decision | None = None
        self.troubled = False
        # Loops whose rung was only noted by a guard in mode shadow: nobody has heard it.
        self._noted: set[int] = set()

    def take(self, entry: Entry) -> None:
        """Takes the next entry."""
        if isinstance(entry, CallEntry):
            self._call(entry)
        elif isinstance(entry, Loop):
            self.troubled = True
            entry.last, entry.moment = self.calls - 1, self.round
            if entry.id in self._noted:
                entry.action = Action.ALLOW
            self.policy.recall(entry)
        elif isinstance(entry, Decision):
            self._decided(entry)
        else:
            self._marked(entry)

    def _call(self, entry: CallEntry) -> None:
        seen = entry.evidence
        seen.number, seen.epoch, seen.sample = self.calls, self.epochs, str(self.calls)
        seen.round = self.round = self._rounds.add(max(seen.time - entry.took, 0), seen.time)
        self.known.note(seen, entry.took)
        if seen.tool not in self._settings.exempt:
            self.detectors.observe(seen)
            self._calm(seen, opened=entry.opened)
        self.calls += 1
        self.epochs += entry.opened

    def _calm(self, seen: Evidence, *, opened: bool) -> None:
        """What a success takes back. A call that showed a loop has an entry of it behind it."""
        if not self.troubled:
            return
        if seen.call is not None and seen.changed and not seen.error:
            self.policy.moved(seen.call)
        new = seen.novelty is not None and seen.novelty >= NEWS
        succeeded = not (seen.error or seen.waits) and (new or opened)
        self.policy.calm(seen.number, succeeded=succeeded)

    def _decided(self, decision: Decision) -> None:
        self.troubled = True
        shadow = decision.shadow and self._settings.mode != "shadow"
        for loop in self.policy.shown(self.round):
            if is_about(decision, loop, self._settings):
                loop.decision = "" if decision.shadow else decision.id
                if shadow:
                    loop.action = Action.ALLOW
                    self._noted.add(loop.id)
                else:
                    self._noted.discard(loop.id)
        if not shadow:
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
        self.detectors.user_turn()
        self.policy.user_turn()

    def _restored(self, *, lasts: bool) -> None:
        """Copies of the state are not in the journal: what was done before is forgotten."""
        self.detectors.restore({}, {})
        self.known = Known()
        self.epochs += 1
        if not (lasts or self.policy.ended):
            self.policy.start_over()
