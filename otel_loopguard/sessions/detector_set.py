"""The detectors of one session."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.errors import attempt, attempt_each
from otel_loopguard.core import Detection, MilestoneStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.detectors import Detector, Registry
    from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    _Seats = tuple[tuple[str, Callable[[object], Detection | None]], ...]


_NONE: Final[Mapping[str, Detector]] = {}
_LASTING: Final = ("budget", "milestones", "judge")
"""Families whose counts no checkpoint takes back: what was spent is spent."""


class DetectorSet:
    """Shows evidence to the detectors that look at its type; they are made on first use.

    A detector that throws is switched off for this session: the fault is counted and logged, and
    the others go on.

    Attributes:
        broken: Names of the detectors that were switched off.
    """

    __slots__ = ("_detectors", "_faults", "_registry", "_seats", "_settings", "broken")

    def __init__(self, registry: Registry, settings: Settings, faults: InternalErrors) -> None:
        self._registry = registry
        self._settings = settings
        self._faults = faults
        self._seats: dict[type, _Seats] = {}
        self._detectors: dict[str, Detector] = {}
        self.broken: tuple[str, ...] = ()

    def observe(self, evidence: object) -> list[Detection]:
        """What the detectors find in one piece of evidence."""
        kind = type(evidence)
        seats = self._seats.get(kind)
        if seats is None:
            seats = self._seat(kind)
        if not seats:
            return []
        found, failed = attempt_each(self._faults, seats, evidence)
        for name in failed:
            self._break(kind, name)
        return [self._signed(name, seen) for name, seen in found if self._holds(kind, name, seen)]

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        for kind, seats in tuple(self._seats.items()):
            for name, _ in seats:
                turned = attempt(self._faults, name, _turn, self._detectors[name], failed=False)
                if turned is False:
                    self._break(kind, name)

    def saved(self, memo: dict[int, object]) -> dict[str, Detector]:
        """Copies of the detectors that look at what is done, for a later `restore`.

        A detector of the user's that cannot be copied is left out; the fault is counted.
        """
        found: dict[str, Detector] = {}
        for kind, seats in tuple(self._seats.items()):
            for name, _ in seats:
                if self._lasts(kind, name):
                    continue
                made = attempt(self._faults, name, _copied, (self._detectors[name], dict(memo)))
                if made is not None:
                    found[name] = made
        return found

    def restore(self, saved: Mapping[str, Detector], memo: dict[int, object]) -> None:
        """Goes on with copies of what was saved; a detector that was not saved begins anew."""
        for kind in tuple(self._seats):
            kept: dict[str, Detector] = {}
            for name, _ in self._seats.pop(kind):
                own = self._detectors.pop(name)
                if self._lasts(kind, name):
                    kept[name] = own
                elif name in saved:
                    made = attempt(self._faults, name, _copied, (saved[name], dict(memo)))
                    if made is not None:
                        kept[name] = made
            self._seat(kind, kept)

    def _lasts(self, kind: type, name: str) -> bool:
        return kind in (Usage, MilestoneStatus) or self._registry.families[name] in _LASTING

    def adopt(self, other: DetectorSet, kind: type) -> None:
        """Takes over the detectors of another set that look at one type of evidence."""
        seats = other._seats.get(kind)
        if seats is None:
            return
        for name, _ in self._seats.get(kind, ()):
            self._detectors.pop(name, None)
        kept = tuple(seat for seat in seats if seat[0] not in self.broken)
        self._seats[kind] = kept
        self._detectors.update((name, other._detectors[name]) for name, _ in kept)

    def _seat(self, kind: type, kept: Mapping[str, Detector] = _NONE) -> _Seats:
        for entry in self._registry.of(kind):
            if entry.name in self.broken:
                continue
            made: object = kept.get(entry.name)
            if made is None:
                made = attempt(self._faults, entry.name, entry.make, self._settings)
            if not callable(getattr(made, "observe", None)):
                self.broken = (*self.broken, entry.name)
            else:
                self._detectors[entry.name] = cast("Detector", made)
        self._seats[kind] = tuple(
            (entry.name, self._detectors[entry.name].observe)
            for entry in self._registry.of(kind)
            if entry.name in self._detectors
        )
        return self._seats[kind]

    def _holds(self, kind: type, name: str, seen: object) -> bool:
        """Whether a detector of the user's gave a detection; one that did not is switched off."""
        if isinstance(seen, Detection):
            return True
        msg = f"expected a Detection or None, got {type(seen).__name__}"
        self._faults.note(name, TypeError(msg))
        self._break(kind, name)
        return False

    def _signed(self, name: str, seen: Detection) -> Detection:
        return replace(seen, family=self._registry.families[name])

    def _break(self, kind: type, name: str) -> None:
        self.broken = (*self.broken, name)
        self._detectors.pop(name, None)
        self._seats[kind] = tuple(seat for seat in self._seats[kind] if seat[0] != name)


def _turn(detector: Detector) -> bool:
    turn = getattr(detector, "user_turn", None)
    if turn is not None:
        turn()
    return True


def _copied(given: tuple[Detector, dict[int, object]]) -> Detector:
    detector, memo = given
    return deepcopy(detector, memo)
