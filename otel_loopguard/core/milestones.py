"""Milestones of a session: what its application declared, completed, or gave up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

_MOST: Final = 256
_NAMED: Final = 200


class Reached(str, Enum):
    """How far a milestone has come."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Milestone:
    """One milestone.

    Attributes:
        reached: How far it has come.
        share: What it weighs in the whole; any unit, for only the ratio counts.
        required: Whether the task fails if it does.
        change: Number of the change that it had last.
    """

    reached: Reached
    share: float
    required: bool
    change: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How a session stands with its milestones at one step.

    Attributes:
        done: Milestones completed.
        failed: Milestones given up.
        open: Milestones that are still to come, as far as they were declared.
        percent: Weight of those done, of all declared, 0 to 100.
        hopeless: Name of a required milestone that failed while nothing is left that could still
            succeed; None where there is none.
        steps: Steps since a milestone last changed.
        seconds: Seconds since then; 0 without times.
        key: Identity of this standing; another one after every change.
    """

    done: int
    failed: int
    open: int
    percent: float
    hopeless: str | None
    steps: int
    seconds: float
    key: int


class Milestones:
    """The board of one session: the application writes, the guard reads, and nobody waits.

    Every method is one or two assignments to a dict, which are atomic. At most 256 milestones are
    kept by name; of more the oldest that are done are only counted.

    Attributes:
        changes: How often anything changed. Two threads that change it at the same moment may count
            once; readers only compare it.
    """

    __slots__ = ("_known", "_of", "_passed", "changes")

    def __init__(self) -> None:
        self._known: dict[str, Milestone] = {}
        self._of = 0
        self._passed = 0
        self.changes = 0

    def declare(self, shares: Mapping[str, float], optional: Collection[str]) -> None:
        """Declares the plan in place of the one before; what is done by name stays done.

        Args:
            shares: Weight by name, at most 256.
            optional: Names whose failure does not fail the task.
        """
        change = self.changes + 1
        before = self._known
        plan: dict[str, Milestone] = {}
        for name, share in list(shares.items())[:_MOST]:
            named = name[:_NAMED]
            known = before.get(named)
            done = known is not None and known.reached is Reached.DONE
            reached = Reached.DONE if done else Reached.OPEN
            plan[named] = Milestone(reached, share, name not in optional, change)
        self._known, self._of, self._passed = plan, 0, 0
        self.changes = change

    def report(self, name: str, reached: Reached, of: int | None = None) -> bool:
        """Says how far a milestone has come; one that was not declared is now, as optional.

        Args:
            name: Its name.
            reached: How far it has come. Saying the same twice is no change.
            of: How many milestones there are in all, declared or not.

        Returns:
            Whether there was room for it.
        """
        name = name[:_NAMED]
        known = self._known.get(name)
        if of is not None:
            self._of = of
        if known is not None and known.reached is reached:
            return True
        if known is None and len(self._known) >= _MOST and not self._make_room():
            return False
        share, required = (known.share, known.required) if known else (1.0, False)
        change = self.changes + 1
        self._known[name] = Milestone(reached, share, required, change)
        self.changes = change
        return True

    def adopt(self, other: Milestones) -> None:
        """Takes over what another board knows, if nothing is known here."""
        if not self.changes:
            self._known, self._of, self._passed = other._known, other._of, other._passed
            self.changes = other.changes

    def percent(self, since: int = 0) -> float:
        """Weight of those done, of all declared, 0 to 100.

        Args:
            since: Number of the last change that no longer counts.
        """
        known = self._since(since)
        done = sum(one.share for _, one in known if one.reached is Reached.DONE) + self._passed
        total = sum(one.share for _, one in known) + self._passed
        if self._of > len(known) + self._passed:
            total += self._of - len(known) - self._passed
        return round(100.0 * done / total, 1) if total > 0 else 0.0

    def standing(self, since: int, steps: int, seconds: float, key: int) -> Standing:
        """How the session stands.

        Args:
            since: Number of the last change that belongs to an earlier task.
            steps: Steps since the last change.
            seconds: Seconds since then.
            key: Identity of the standing.
        """
        known = self._since(since)
        states = [one.reached for _, one in known]
        done = states.count(Reached.DONE) + self._passed
        failed = states.count(Reached.FAILED)
        still = states.count(Reached.OPEN) + max(self._of - len(known) - self._passed, 0)
        lost = [name for name, one in known if one.required and one.reached is Reached.FAILED]
        hopeless = lost[0] if lost and not still else None
        return Standing(done, failed, still, self.percent(since), hopeless, steps, seconds, key)

    def _since(self, since: int) -> list[tuple[str, Milestone]]:
        # `list` of a dict's items is one step; a loop over them would see other threads write.
        return [entry for entry in list(self._known.items()) if entry[1].change > since]

    def _make_room(self) -> bool:
        """Counts the oldest optional milestone that is done, in place of keeping it."""
        for name, one in list(self._known.items()):
            if one.reached is Reached.DONE and not one.required:
                if self._known.pop(name, None) is not None:
                    self._passed += 1
                return True
        return False
