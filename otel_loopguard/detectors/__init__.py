"""Evidence -> detection: which detectors there are, and those of one session.

Each family has a module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from otel_loopguard.core import Action, Detection, Kind, Severity, Step
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.core.progress import MilestoneStatus, Usage
from otel_loopguard.detectors import budget, errors, graph, handoffs, repetition, standstill, text
from otel_loopguard.detectors.base import BaseDetector
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings import imported

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.settings import Settings


class Detector(Protocol):
    """Answers one question about one session, one piece of evidence at a time.

    A detector belongs to one session and is called under its lock, in the order of the steps. It
    costs O(1) per step, and its memory does not grow with the session.

    Its factory (usually the class itself) may say:

    - `name`, value of `loopguard.detector.name`; by default the factory's own name;
    - `family`, the group that `switched_off` may name; by default `custom`;
    - `takes`, the type of evidence that it looks at; by default `Evidence`, a finished tool call.
      `Step` gives the bare step of any kind, with its content.
    """

    def observe(self, evidence: Any, /) -> Detection | None:
        """Takes one piece of evidence; a detection if it shows (or still shows) a loop."""
        ...

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        ...


Factory = Callable[["Settings"], Detector]
"""Makes the detector of one session."""

if TYPE_CHECKING:
    EvidenceKind = type | Kind
    """A type of evidence; of a `Step` its kind."""


DETECTORS: tuple[Factory, ...] = (
    repetition.ExactRepeat, repetition.Cycle, repetition.MadeAgain, errors.ErrorRepeat,
    standstill.Stagnation, errors.Outage, repetition.SimilarRepeat, errors.ErrorRate,
    standstill.FoundNothing, standstill.SameVerdict, standstill.Sweep, standstill.NothingNew,
    standstill.IdleCommand, errors.FailingModel, standstill.RepeatedEdit, standstill.BackToState,
    standstill.NoBetterScore, standstill.RevisedInVain, graph.NodeCycle, graph.StateConvergence,
    graph.NoProgress, graph.RapidIteration,
    graph.GraphLimit,
    handoffs.HandoffRepeat, handoffs.PairCycle, handoffs.RingCycle, handoffs.TopicCycle,
    budget.SpendingLimit, budget.OwnLimit, budget.TokenRate, budget.CheckpointAdvice,
    budget.PriceOfWaiting, budget.ContextSize, budget.MilestoneStall, budget.CannotSucceed,
    text.RefinementSpiral, text.TextRepetition, text.TalkWithoutAction, text.Apologising,
    text.Hedging, text.ScopeCreep, text.ToolShopping,
)  # fmt: skip
"""The detectors of finished steps, in the order in which they are asked; a name adds one."""
_BESIDE: Final = ("stall", "warnings")
"""Detections of the watchdog and the policy themselves."""
_Signs = Callable[[object], tuple[object, ...]]


class Entry(NamedTuple):
    """One registered detector: see `Detector` for what it says of itself."""

    name: str
    family: str
    takes: type
    make: Factory
    own: type[BaseDetector]  # users' own see everything, whatever their attributes mean
    signs: _Signs | None

    @property
    def lasts(self) -> bool:
        """True if its counts survive going back to a checkpoint: what was spent is spent."""
        return self.takes in (Usage, MilestoneStatus) or self.family in {
            "budget", "milestones", "judge",
        }  # fmt: skip


class Registry:
    """The detectors of one guard, by the evidence that they look at.

    Args:
        settings: Settings of the guard.
        shipped: The detectors that ship.

    Attributes:
        entries: Every detector that is not switched off.
        by_name: The same, by name.
        signs: For each kind of evidence, what gives the attributes that any detector waits for.

    Raises:
        LoopGuardSettingsError: `switched_off` names what there is not, or one of `detectors`
            cannot be imported or called.
    """

    def __init__(self, settings: Settings, shipped: Iterable[Factory]) -> None:
        wanted = "something that makes a detector"
        own = (imported("detectors", place, wanted) for place in settings.detectors)
        entries = [*map(_entry, (*shipped, *own))]
        _check(settings, entries)
        off = settings.switched_off
        self.entries = tuple(one for one in entries if off.isdisjoint((one.name, one.family)))
        self.by_name = {entry.name: entry for entry in self.entries}
        self.by_kind: dict[EvidenceKind, tuple[Entry, ...]] = {}
        for entry in self.entries:
            if entry.own.wanted(settings):
                for kind in entry.own.kinds if entry.takes is Step else (entry.takes,):
                    self.by_kind[kind] = (*self.of(kind), entry)
        signs = {
            kind: _getter(sign for entry in known for sign in entry.own.signs)
            for kind, known in self.by_kind.items()
        }
        self.signs = {kind: found for kind, found in signs.items() if found}

    @property
    def names(self) -> tuple[str, ...]:
        """Every value of `loopguard.detector.name` that a decision can have."""
        return (*self.by_name, *_BESIDE)

    def of(self, kind: EvidenceKind) -> tuple[Entry, ...]:
        """Detectors of one kind of evidence."""
        return self.by_kind.get(kind, ())


def _entry(make: Factory) -> Entry:
    named: Any = make
    own = make if isinstance(make, type) and issubclass(make, BaseDetector) else BaseDetector
    name = getattr(named, "name", None) or getattr(named, "__name__", type(named).__name__)
    takes = getattr(named, "takes", Evidence)
    if not isinstance(takes, type):
        raise LoopGuardSettingsError(
            f"detectors (LOOPGUARD_DETECTORS): {name} takes {takes!r:.100}, expected a class, such "
            "as Evidence or Step of otel_loopguard.core"
        )
    family = getattr(named, "family", "custom")
    return Entry(str(name), family, takes, named, own, _getter(own.signs))


def _getter(names: Iterable[str]) -> _Signs | None:
    """Gives these attributes of an object as a tuple, also where it is only one."""
    different = tuple(dict.fromkeys(names))
    return attrgetter(*different, different[0]) if different else None


def _check(settings: Settings, entries: list[Entry]) -> None:
    names = Counter(entry.name for entry in entries)
    twice = sorted(name for name in names if names[name] > 1)
    if twice:
        msg = f"detectors (LOOPGUARD_DETECTORS): there are two of the name {', '.join(twice)}"
        raise LoopGuardSettingsError(msg)
    known = {*names, *(entry.family for entry in entries), "stall", "judge"}
    unknown = sorted(settings.switched_off - known)
    if unknown:
        raise LoopGuardSettingsError(
            f"switched_off (LOOPGUARD_SWITCHED_OFF) = {', '.join(unknown)}: there is no such "
            f"detector or family, expected one of {', '.join(sorted(known))}"
        )


def _checked(seen: object, family: str) -> Detection:
    """Returns a detection that the policy can use; raises if a detector of the user's made none."""
    if not isinstance(seen, Detection):
        raise TypeError(f"expected a Detection or None, got {type(seen).__name__}")
    if not isfinite(seen.confidence + seen.count + seen.threshold + seen.weight + seen.period):
        raise ValueError(f"numbers of a Detection must be finite, got {seen!r:.500}")
    return replace(
        seen, family=family, keys=frozenset(seen.keys),
        severity=Severity(seen.severity), max_action=Action(seen.max_action),
    )  # fmt: skip


_Observer = tuple[str, "Callable[[Any], Detection | None]"]
"""Name and `observe` of a detector."""


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
        signed: object = kind
        if signs is not None and any(shown := signs(evidence)):
            signed = kind, *map(bool, shown)
        observers = self._observers.get(signed)
        if observers is None:
            given = None if signed is kind else evidence
            observers = self._observers[signed] = self._concerned(kind, given)
        for name, observe in observers:
            try:
                seen: object = observe(evidence)
                if seen is not None:
                    found.append(_checked(seen, self._registry.by_name[name].family))
            except Exception as fault:  # noqa: BLE001, PERF203
                self._break(name, fault)
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
        known = self._registry.by_name
        return self._copied(
            {at: one for at, one in self._made.items() if not known[at].lasts}, memo
        )

    def restore(self, saved: Mapping[str, Detector], memo: dict[int, object]) -> None:
        """Goes on with copies of what was saved; a detector that was not saved begins anew."""
        registered = self._registry.by_name
        lasting = {name: one for name, one in self._made.items() if registered[name].lasts}
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
                or (entry.own.lasting and entry.name in self._made)
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
        if entry.own.lasting:
            # From now on it observes everything.
            for known in tuple(self._observers):
                if known is kind or (isinstance(known, tuple) and known[0] is kind):
                    del self._observers[known]
        return made

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
        if fault is not None:
            self._faults.caught(name, fault)
        # What the process lacks for a moment is no fault of the detector: it begins anew.
        if not isinstance(fault, (MemoryError, RecursionError)):
            self.broken = (*self.broken, name)
        self._made.pop(name, None)
        self._observers.clear()
