"""What a detector is, and which ones there are."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from otel_loopguard.core import Evidence
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


_PAST_THE_PANEL = ("stall", "warnings")
"""What the watch over open spans and the policy find themselves."""


class Entry(NamedTuple):
    """One registered detector.

    Attributes:
        name: Value of `loopguard.detector.name`.
        family: The group that `switched_off` may name.
        takes: The type of evidence that it looks at.
        make: Makes the detector of one session.
    """

    name: str
    family: str
    takes: type
    make: Factory


class Registry:
    """The detectors of one guard, by the type of evidence that they look at.

    Args:
        settings: Settings of the guard.
        shipped: The detectors that ship.

    Raises:
        LoopGuardSettingsError: `switched_off` names what there is not, or one of `detectors`
            cannot be imported or called.
    """

    def __init__(self, settings: Settings, shipped: Iterable[Factory]) -> None:
        own = [_imported(place) for place in settings.detectors]
        entries = [_entry(make) for make in (*shipped, *own)]
        _check_names(entries)
        _check(settings, entries)
        off = settings.switched_off
        self.entries = tuple(
            entry for entry in entries if entry.name not in off and entry.family not in off
        )
        self.families = {entry.name: entry.family for entry in self.entries}
        self._by_type: dict[type, tuple[Entry, ...]] = {}
        for entry in self.entries:
            self._by_type[entry.takes] = (*self._by_type.get(entry.takes, ()), entry)

    @property
    def names(self) -> tuple[str, ...]:
        """Every value of `loopguard.detector.name` that a decision can have."""
        return (*self.families, *_PAST_THE_PANEL)

    def of(self, kind: type) -> tuple[Entry, ...]:
        """What looks at evidence of a type."""
        return self._by_type.get(kind, ())


def _entry(make: Factory) -> Entry:
    named: Any = make
    name = str(getattr(named, "name", None) or getattr(named, "__name__", type(named).__name__))
    return Entry(name, getattr(named, "family", "custom"), getattr(named, "takes", Evidence), make)


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
