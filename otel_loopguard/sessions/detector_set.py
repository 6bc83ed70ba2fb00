"""The detectors of one session."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.core import Detection, MilestoneStatus, Step, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.detectors import Detector, Entry, Registry
    from otel_loopguard.detectors.registry import EvidenceKind
    from otel_loopguard.settings import Settings

_Observer = tuple[str, "Callable[[Any], Detection | None]"]
"""Name and `observe` of a detector."""
_LASTING: Final = ("budget", "milestones", "judge")
"""Families whose counts no checkpoint takes back: what was spent is spent."""


class DetectorSet:
    """Shows evidence to the detectors that it concerns; each is made with the first of it.

    A detector that throws is switched off for this session: the fault is counted and logged, and
    the others go on.

    Attributes:
        broken: Names of the detectors that were switched off.
    """

    __slots__ = ("_faults", "_made", "_observers", "_registry", "_settings", "broken")

    def __init__(self, registry: Registry, settings: Settings, faults: InternalErrors) -> None:
        self._registry = registry
        self._settings = settings
        self._faults = faults
        self._made: dict[str, Detector] = {}
        # By kind of evidence, and by kind and by which of its signs it shows.
        self._observers: dict[object, Sequence[_Observer]] = {}
        self.broken: tuple[str, ...] = ()

    def __getstate__(self) -> tuple[Any, ...]:
        # The observers follow from the detectors that exist.
        return self._registry, self._settings, self._faults, self._made, self.broken

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._registry, self._settings, self._faults, self._made, self.broken = state
        self._observers = {}

    def observe(self, evidence: object) -> list[Detection]:
        """Returns the detections in one piece of evidence."""
        kind = evidence.kind if type(evidence) is Step else type(evidence)
        found: list[Detection] = []
        signs = self._registry.signs.get(kind)
        if signs is not None and any(shown := signs(evidence)):
            signed = kind, *map(bool, shown)
            observers = self._observers.get(signed)
            if observers is None:
                observers = self._observers[signed] = self._concerned(kind, evidence)
        else:
            observers = self._observers.get(kind)
            if observers is None:
                observers = self._observers[kind] = self._concerned(kind)
        for name, observe in observers:
            try:
                seen: object = observe(evidence)
            except Exception as fault:  # noqa: BLE001
                self._break(name, fault)
                continue
            if seen is None:
                continue
            if isinstance(seen, Detection):  # pyright: ignore[reportUnnecessaryIsInstance]
                found.append(replace(seen, family=self._registry.families[name]))
            else:
                msg = f"expected a Detection or None, got {type(seen).__name__}"
                self._break(name, TypeError(msg))
        return found

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        for name, detector in tuple(self._made.items()):
            turn = getattr(detector, "user_turn", None)
            try:
                if turn is not None:
                    turn()
            except Exception as fault:  # noqa: BLE001
                self._break(name, fault)

    def saved(self, memo: dict[int, object]) -> dict[str, Detector]:
        """Copies of the detectors that look at what is done, for a later `restore`.

        A detector of the user's that cannot be copied is left out; the fault is counted.
        """
        made = {name: one for name, one in self._made.items() if not self._lasts(name)}
        return self._copied(made, memo)

    def restore(self, saved: Mapping[str, Detector], memo: dict[int, object]) -> None:
        """Goes on with copies of what was saved; a detector that was not saved begins anew."""
        lasting = {name: one for name, one in self._made.items() if self._lasts(name)}
        known = {name: one for name, one in saved.items() if name not in self.broken}
        self._made = {**lasting, **self._copied(known, memo)}
        self._observers.clear()

    def adopt(self, other: DetectorSet, kind: type) -> None:
        """Takes over the detectors of another set that look at one type of evidence."""
        entries = self._registry.of(kind)
        if not any(entry.name in other._made for entry in entries):
            return
        for entry in entries:
            self._made.pop(entry.name, None)
            if entry.name in other._made and entry.name not in self.broken:
                self._made[entry.name] = other._made[entry.name]
        self._observers.clear()

    def _concerned(self, kind: EvidenceKind, evidence: object = None) -> Sequence[_Observer]:
        """Lists the detectors for this evidence; without it, for evidence without any sign."""
        found: list[_Observer] = []
        for entry in self._registry.of(kind):
            if (
                entry.signs is None
                or (entry.lasting and entry.name in self._made)
                or (evidence is not None and any(entry.signs(evidence)))
            ):
                detector = self._made.get(entry.name)
                if detector is None:
                    detector = self._make(entry, kind)
                if detector is not None:
                    found.append((entry.name, detector.observe))
        return found

    def _make(self, entry: Entry, kind: EvidenceKind) -> Detector | None:
        if entry.name in self.broken:
            return None
        try:
            made: Any = entry.make(self._settings)
        except Exception as fault:  # noqa: BLE001
            self._break(entry.name, fault)
            return None
        if not callable(getattr(made, "observe", None)):
            self._break(entry.name)
            return None
        self._made[entry.name] = made
        if entry.lasting:
            # From now on it observes everything.
            for known in tuple(self._observers):
                if known is kind or (isinstance(known, tuple) and known[0] is kind):
                    del self._observers[known]
        return made

    def _lasts(self, name: str) -> bool:
        entry = self._registry.by_name[name]
        return entry.takes in (Usage, MilestoneStatus) or entry.family in _LASTING

    def _copied(
        self, detectors: Mapping[str, Detector], memo: dict[int, object]
    ) -> dict[str, Detector]:
        copies: dict[str, Detector] = {}
        for name, detector in detectors.items():
            try:
                copies[name] = deepcopy(detector, dict(memo))
            except Exception as fault:  # noqa: BLE001, PERF203
                self._faults.caught(name, fault)
        return copies

    def _break(self, name: str, fault: Exception | None = None) -> None:
        self.broken = (*self.broken, name)
        self._made.pop(name, None)
        self._observers.clear()
        if fault is not None:
            self._faults.caught(name, fault)
