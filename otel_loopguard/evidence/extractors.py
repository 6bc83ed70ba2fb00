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

    def extract(self, step: Step) -> object | None:
        """Evidence of one finished step; None where there is none."""
        ...


Factory = Callable[["Settings", "Progress"], Extractor]
"""Makes the extractor of one session."""


class Extractors:
    """The extractors of one session; each is made for the first step that it looks at."""

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
        # What is registered is set again by `register`.
        return self._made, self._by_kind, self._progress, self._settings

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._made, self._by_kind, self._progress, self._settings = state
        self._registered = {}

    def register(self, registered: dict[Kind, tuple[Factory, ...]]) -> None:
        """Sets which factories look at which kind of step."""
        self._registered = registered

    def get(self, kind: Kind) -> tuple[Extractor, ...]:
        """The extractors that look at steps of a kind."""
        extractors = self._by_kind.get(kind)
        if extractors is None:
            for factory in self._registered.get(kind, ()):
                if factory not in self._made:
                    self._made[factory] = factory(self._settings, self._progress)
            extractors = tuple(self._made[factory] for factory in self._registered.get(kind, ()))
            self._by_kind[kind] = extractors
        return extractors

    def saved(self, memo: dict[int, object], but: Collection[Factory]) -> dict[Factory, Extractor]:
        """Copies of what was made, for a later `restore`."""
        return deepcopy({key: made for key, made in self._made.items() if key not in but}, memo)

    def restore(
        self, saved: Mapping[Factory, Extractor], memo: dict[int, object], but: Collection[Factory]
    ) -> None:
        """Goes on with copies of what was saved; what was not saved begins again."""
        kept = {key: made for key, made in self._made.items() if key in but}
        self._made = {**deepcopy(dict(saved), memo), **kept}
        self._by_kind = {}
