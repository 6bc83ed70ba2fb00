"""The newest steps of one session, as compact entries, and what of them is still to be written."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.sessions.calls import CallEntry, instant
from otel_loopguard.sessions.journal import Codec, Mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.core import Decision, Detection, Evidence, Progress, Step
    from otel_loopguard.policy import Loop
    from otel_loopguard.sessions.cover import Cover

Written = tuple[str, bytes]
"""Id and value of an entry."""

Noted = tuple[str, bytes | CallEntry]
"""The same, with calls that are still to be packed: that is not done where steps end."""

_REMEMBERED: Final = 128
_WORDINGS: Final = 4


class Answers(NamedTuple):
    """What the past knows of one call.

    Attributes:
        outcomes: Keys of its newest answers, four at most, the newest last.
        waiting: Whether it was waiting when it was made last.
        pending: Whether it may have been waiting then.
    """

    outcomes: tuple[int | None, ...]
    waiting: bool
    pending: bool


class Known:
    """The answers of the newest 128 different calls of the past."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: OrderedDict[int, Answers] = OrderedDict()

    def note(self, seen: Evidence) -> None:
        """Notes a call of the past."""
        if seen.call is None:
            return
        before = self._calls.pop(seen.call, None)
        outcomes = () if before is None else before.outcomes[1 - _WORDINGS :]
        self._calls[seen.call] = Answers((*outcomes, seen.outcome), seen.waiting, seen.pending)
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)

    def tell(self, seen: Evidence) -> None:
        """A call that this process has not seen before is none that is made for the first time.

        Who polled before the restart still does: an unchanged answer is taken as it was then.
        """
        past = self._calls.pop(seen.call or 0, None)
        if past is None or not seen.fresh:
            return
        seen.fresh = False
        outcome = seen.outcome
        seen.changed = (
            outcome is not None and None not in past.outcomes and (outcome not in past.outcomes)
        )
        if outcome is not None and outcome in past.outcomes and seen.novelty is not None:
            seen.novelty = 0.0
        if outcome is not None and outcome == past.outcomes[-1]:
            seen.waiting, seen.pending = seen.waiting or past.waiting, seen.pending or past.pending


class Before(NamedTuple):
    """What comes before the steps of this process, added to the numbers of its own.

    Attributes:
        calls: Tool calls.
        epochs: Changes of the world.
        rounds: Rounds.
    """

    calls: int = 0
    epochs: int = 0
    rounds: int = 0


class History:
    """The newest `journal_steps` (1000) entries of one session, own ones and those of others.

    Not thread-safe: the guard's lock is held.

    Args:
        cover: Covers the keys of calls and loops.
        size: Entries that are kept.

    Attributes:
        entries: Id and value of each that was handed on, or is of others.
        pending: Those that are still to be handed on, in order; not among `entries`.
        since: Those that came since others' were asked for; None while nobody asks.
        before: What comes before the steps of this process.
        known: Calls of the past that this process has not made yet.
        round: Number that the newest round has in this process.
        after: Id of the entry that the store was read to; None at first.
        looks: How often others are still to be looked for, without a step of this process.
        told: Id of the decision of another process, or of before, that the flag stands for.
    """

    __slots__ = (
        "_codec", "_cover", "_moment", "_number", "_process", "after", "before", "entries",
        "known", "looks", "pending", "round", "since", "told",
    )  # fmt: skip

    def __init__(self, cover: Cover, size: int) -> None:
        self._cover = cover
        self._codec = Codec(cover.id)
        self._process = secrets.token_hex(4)
        self._moment = self._number = 0
        self.entries: deque[Written] = deque(maxlen=size)
        self.pending: list[Noted] = []
        self.since: list[Noted] | None = None
        self.before = Before()
        self.known: Known | None = None
        self.round = 0
        self.after: str | None = None
        self.looks = 0
        self.told: str | None = None

    def call(self, step: Step, seen: Evidence, *, opened: bool) -> None:
        """Covers the keys of a call, numbers it after what comes before, and writes it down.

        Args:
            step: The call.
            seen: Its evidence; changed.
            opened: Whether it changed the world.
        """
        before = self.before
        self.round = seen.round
        self._cover.call(seen)
        seen.number += before.calls
        seen.epoch += before.epochs
        seen.round += before.rounds
        if self.known is not None:
            self.known.tell(seen)
        took = seen.time - step.start if step.start else 0
        self._add(CallEntry(seen, took, opened), seen.time)

    def step(self, step: Step) -> None:
        """Writes a step down that is no tool call."""
        self._add(self._codec.step(step), step.end or 0)

    def loops(self, loops: Iterable[Loop]) -> None:
        """Writes down where loops stand."""
        for loop in loops:
            self._add(self._codec.loop(loop))

    def decided(self, decision: Decision) -> None:
        """Writes a decision down."""
        self._add(self._codec.decision(decision))

    def mark(self, mark: Mark) -> None:
        """Writes a mark down."""
        self._add(self._codec.mark(mark), time.time_ns())

    def covered(self, found: Sequence[Detection]) -> list[Detection]:
        """Detections by other evidence than calls, with their keys covered."""
        return [self._cover.detection(one) for one in found]

    def cover(self, key: int) -> int:
        """The digest of a key."""
        return self._cover.of(key)

    def follow(self, known: Known, calls: int, epochs: int, rounds: int, own: Progress) -> None:
        """Numbers what comes after the past.

        Args:
            known: The calls of the past and their answers.
            calls: Tool calls of the past, those of this process among them.
            epochs: Changes of the world, likewise.
            rounds: Number of its newest round.
            own: Totals of this process.
        """
        self.known = known
        self.before = Before(calls - own.calls, epochs - own.epoch, rounds - self.round)

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
        # Ids sort by time, and of one process in the order of writing.
        name = f"{moment:016x}-{self._process}{self._number & 0xFFFF_FFFF:08x}"
        self.pending.append((name, value))
        if self.since is not None:
            self.since.append((name, value))
