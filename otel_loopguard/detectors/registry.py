"""What a detector is, and which ones there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Evidence, Kind, Step
from otel_loopguard.detectors.base import BaseDetector
from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
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


_BESIDE: Final = ("stall", "warnings")
"""What the watch over open spans and the policy find themselves."""


class Entry(NamedTuple):
    """One registered detector: see `Detector` and `BaseDetector` for what it says of itself."""

    name: str
    family: str
    takes: type
    make: Factory
    kinds: tuple[Kind, ...]
    signs: Callable[[object], tuple[object, ...]] | None
    lasting: bool
    wanted: Callable[[Settings], bool]


class Registry:
    """The detectors of one guard, by the evidence that they look at.

    Args:
        settings: Settings of the guard.
        shipped: The detectors that ship.

    Attributes:
        entries: Every detector that is not switched off.
        by_name: The same, by name.
        families: Their families, by name.
        signs: For each kind of evidence, what gives the attributes that any detector waits for.

    Raises:
        LoopGuardSettingsError: `switched_off` names what there is not, or one of `detectors`
            cannot be imported or called.
    """

    def __init__(self, settings: Settings, shipped: Iterable[Factory]) -> None:
        factories: list[Any] = [*shipped, *map(_imported, settings.detectors)]
        entries = [_entry(make) for make in factories]
        _check_names(entries)
        _check(settings, entries)
        off = settings.switched_off
        self.entries = tuple(
            entry for entry in entries if entry.name not in off and entry.family not in off
        )
        self.by_name = {entry.name: entry for entry in self.entries}
        self.families = {entry.name: entry.family for entry in self.entries}
        self._by_kind: dict[EvidenceKind, tuple[Entry, ...]] = {}
        signs: dict[EvidenceKind, tuple[str, ...]] = {}
        for entry in self.entries:
            if not entry.wanted(settings):
                continue
            for kind in entry.kinds if entry.takes is Step else (entry.takes,):
                self._by_kind[kind] = (*self.of(kind), entry)
                signs[kind] = (*signs.get(kind, ()), *_own(entry.make).signs)
        self.signs = {kind: found for kind in signs if (found := _getter(signs[kind]))}

    @property
    def names(self) -> tuple[str, ...]:
        """Every value of `loopguard.detector.name` that a decision can have."""
        return (*self.families, *_BESIDE)

    def of(self, kind: EvidenceKind) -> tuple[Entry, ...]:
        """What looks at evidence of a kind."""
        return self._by_kind.get(kind, ())


def _entry(make: Factory) -> Entry:
    named: Any = make
    own = _own(make)
    return Entry(
        str(getattr(named, "name", None) or getattr(named, "__name__", type(named).__name__)),
        getattr(named, "family", "custom"), getattr(named, "takes", Evidence), make,
        own.kinds, _getter(own.signs), own.lasting, own.wanted,
    )  # fmt: skip


def _own(make: Factory) -> type[BaseDetector]:
    """What a detector says of itself; users' own see everything, whatever their attributes mean."""
    if isinstance(make, type) and issubclass(make, BaseDetector):
        return make
    return BaseDetector


def _getter(names: Iterable[str]) -> Callable[[object], tuple[object, ...]] | None:
    """Gives these attributes of an object as a tuple, also where it is only one."""
    different = tuple(dict.fromkeys(names))
    return attrgetter(*different, different[0]) if different else None


def _check_names(entries: list[Entry]) -> None:
    names = [entry.name for entry in entries]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        msg = f"detectors (LOOPGUARD_DETECTORS): there are two of the name {', '.join(twice)}"
        raise LoopGuardSettingsError(msg)


def _check(settings: Settings, entries: list[Entry]) -> None:
    known = (
        {entry.name for entry in entries} | {entry.family for entry in entries} | {"stall", "judge"}
    )
    unknown = sorted(settings.switched_off - known)
    if unknown:
        msg = (
            f"switched_off (LOOPGUARD_SWITCHED_OFF) = {', '.join(unknown)}: there is no such "
            f"detector or family, expected of {', '.join(sorted(known))}"
        )
        raise LoopGuardSettingsError(msg)


def _imported(place: str) -> Factory:
    """The factory that a setting names, as `module:name`."""
    module, _, name = place.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise LoopGuardSettingsError(_refused(place, f"cannot be imported: {error}")) from None
    if not callable(found):
        raise LoopGuardSettingsError(_refused(place, "expected something that makes a detector"))
    return cast("Factory", found)


def _refused(place: str, why: str) -> str:
    return f"detectors (LOOPGUARD_DETECTORS) = {place!r}: {why}"
