"""The extractors of one session: steps in, evidence out, by the kind of step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Kind, Progress, Step
    from otel_loopguard.settings import Settings


class Extractor(Protocol):
    """Turns the steps of one session into evidence of one type, in O(1) memory.

    One whose class says `needs_milestones = True` is asked only where there are some, or a plan.
    """

    def extract(self, step: Step) -> object | None:
        """Evidence of one finished step; None where there is none."""
        ...


Factory = Callable[["Settings", "Progress"], Extractor]
"""Makes the extractor of one session."""

_Asked = dict["Kind", tuple[Extractor, ...]]


class Extractors:
    """The extractors of one session; each is made for the first step that it looks at."""

    __slots__ = ("_asked", "_made", "_progress", "_registered", "_settings")

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
        self._asked: tuple[_Asked, _Asked] = {}, {}

    def __getstate__(self) -> tuple[object, ...]:
        # What is registered is set again by `register`.
        return self._made, self._progress, self._settings

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._made, self._progress, self._settings = state
        self._registered, self._asked = {}, ({}, {})

    def register(self, registered: dict[Kind, tuple[Factory, ...]]) -> None:
        """Sets which factories look at which kind of step."""
        self._registered = registered

    def get(self, step: Step) -> tuple[Extractor, ...]:
        """The extractors that look at a step."""
        planned = step.tasks is not None or self._progress.milestones.changes > 0
        asked = self._asked[planned]
        extractors = asked.get(step.kind)
        if extractors is None:
            found: list[Extractor] = []
            for factory in self._registered.get(step.kind, ()):
                if planned or not getattr(factory, "needs_milestones", False):
                    if factory not in self._made:
                        self._made[factory] = factory(self._settings, self._progress)
                    found.append(self._made[factory])
            extractors = asked[step.kind] = tuple(found)
        return extractors

    def made(self, factory: Factory) -> Extractor:
        """The extractor of a factory; a new one where no step was looked at yet."""
        return self._made.get(factory) or factory(self._settings, self._progress)

    def saved(self, memo: dict[int, object], but: Collection[Factory]) -> dict[Factory, Extractor]:
        """Copies of what was made, for a later `restore`."""
        return deepcopy({key: made for key, made in self._made.items() if key not in but}, memo)

    def restore(
        self, saved: Mapping[Factory, Extractor], memo: dict[int, object], but: Collection[Factory]
    ) -> None:
        """Goes on with copies of what was saved; what was not saved begins again."""
        kept = {key: made for key, made in self._made.items() if key in but}
        self._made = {**deepcopy(dict(saved), memo), **kept}
        self._asked = {}, {}
