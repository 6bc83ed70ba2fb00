"""The extractors of one session: steps in, evidence out, by the kind of step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Kind, Progress, Step
    from otel_loopguard.settings import Settings


class Extractor(Protocol):
    """Turns the steps of one session into evidence of one type, in O(1) memory."""

    def see(self, step: Step) -> object | None:
        """Evidence of one finished step; None where it says nothing."""
        ...


Factory = Callable[["Settings", "Progress"], Extractor]
"""Makes the sense of one session."""


class Extractors:
    """The senses of one session; each is made when the first step that it looks at comes."""

    __slots__ = ("_by_kind", "_made", "_progress", "_registered", "_settings")

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        registered: dict[Kind, tuple[Factory, ...]],
    ) -> None:
        self._settings = settings
        self._progress = progress
        self._registered = registered
        self._made: dict[Factory, Extractor] = {}
        self._by_kind: dict[Kind, tuple[Extractor, ...]] = {}

    def __getstate__(self) -> tuple[object, ...]:
        # What is registered is told again by who takes it back.
        return self._made, self._by_kind, self._progress, self._settings

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._made, self._by_kind, self._progress, self._settings = state
        self._registered = {}

    def register(self, registered: dict[Kind, tuple[Factory, ...]]) -> None:
        """Says anew which factories look at which kind of step."""
        self._registered = registered

    def of(self, kind: Kind) -> tuple[Extractor, ...]:
        """What looks at steps of a kind."""
        senses = self._by_kind.get(kind)
        if senses is None:
            senses = tuple(self._sense(factory) for factory in self._registered.get(kind, ()))
            self._by_kind[kind] = senses
        return senses

    def _sense(self, factory: Factory) -> Extractor:
        if factory not in self._made:
            self._made[factory] = factory(self._settings, self._progress)
        return self._made[factory]

    def saved(self, memo: dict[int, object], but: Collection[Factory]) -> dict[Factory, Extractor]:
        """Copies of what was made, for a later `restore` (C19)."""
        kept = {factory: sense for factory, sense in self._made.items() if factory not in but}
        return deepcopy(kept, memo)

    def restore(
        self, saved: Mapping[Factory, Extractor], memo: dict[int, object], but: Collection[Factory]
    ) -> None:
        """Goes on with copies of what was saved; what was not saved begins anew."""
        kept = {factory: sense for factory, sense in self._made.items() if factory in but}
        self._made = {**deepcopy(dict(saved), memo), **kept}
        self._by_kind = {}
