"""Step -> evidence: canonical and masked forms, error classes, effects, epochs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Protocol

from otel_loopguard.core import Kind
from otel_loopguard.evidence.calls import agent_key
from otel_loopguard.evidence.effects import is_runner
from otel_loopguard.evidence.errors import error_class, signature_of
from otel_loopguard.evidence.handoffs import GraphExtractor, HandoffExtractor
from otel_loopguard.evidence.model_text import ModelTextExtractor
from otel_loopguard.evidence.normalize import as_data, parsed
from otel_loopguard.evidence.outcomes import prepare
from otel_loopguard.evidence.plans import PlanExtractor, PlanTracker
from otel_loopguard.evidence.tool_calls import NEWS, Rounds, ToolCallExtractor
from otel_loopguard.evidence.usage import MilestoneExtractor, ModelAttemptExtractor, UsageExtractor

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.core.progress import Progress
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

_MODEL_CALL: tuple[Factory, ...] = (
    ToolCallExtractor, ModelAttemptExtractor, HandoffExtractor, ModelTextExtractor, PlanExtractor,
)  # fmt: skip
_FIRST: dict[Kind, tuple[Factory, ...]] = {
    Kind.TOOL: (ToolCallExtractor, PlanExtractor, GraphExtractor),
    Kind.MODEL: (*_MODEL_CALL, GraphExtractor),
    Kind.HANDOFF: (HandoffExtractor, ModelTextExtractor, GraphExtractor),
    Kind.AGENT: (ToolCallExtractor, HandoffExtractor, ModelTextExtractor, GraphExtractor),
    **dict.fromkeys((Kind.NODE, Kind.WORKFLOW, Kind.OTHER), (GraphExtractor,)),
}

EXTRACTORS: dict[Kind, tuple[Factory, ...]] = {
    kind: (*_FIRST.get(kind, ()), UsageExtractor, PlanTracker, MilestoneExtractor) for kind in Kind
}
"""Extractors by kind of step, in the order they run; some read what earlier ones found."""


class Extractors:
    """The extractors of one session; each is made for the first step that it looks at."""

    __slots__ = ("_asked", "_made", "_progress", "_settings")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings, self._progress = settings, progress
        self._made: dict[Factory, Extractor] = {}
        self._asked: dict[tuple[Kind, bool], list[Extractor]] = {}

    def get(self, step: Step) -> Sequence[Extractor]:
        """The extractors that look at a step."""
        place = step.kind, step.tasks is not None or self._progress.milestones.changes > 0
        asked = self._asked.get(place)
        if asked is None:
            # No tuple of a generator: where another thread asks for all objects of the process, and
            # so holds it half made, that raises SystemError.
            asked = self._asked[place] = [
                self.made(factory)
                for factory in EXTRACTORS.get(step.kind, ())
                if place[1] or not getattr(factory, "needs_milestones", False)
            ]
        return asked

    def made(self, factory: Factory) -> Extractor:
        """The extractor of a factory."""
        if factory not in self._made:
            self._made[factory] = factory(self._settings, self._progress)
        return self._made[factory]

    def saved(self, memo: dict[int, object], but: Collection[Factory]) -> dict[Factory, Extractor]:
        """Copies of what was made, for a later `restore`."""
        return deepcopy({key: made for key, made in self._made.items() if key not in but}, memo)

    def restore(
        self, saved: Mapping[Factory, Extractor], memo: dict[int, object], but: Collection[Factory]
    ) -> None:
        """Goes on with copies of what was saved; what was not saved begins again."""
        kept = {key: made for key, made in self._made.items() if key in but}
        self._made = {**deepcopy(dict(saved), memo), **kept}
        self._asked = {}


__all__ = [
    "EXTRACTORS", "NEWS", "Extractor", "Extractors", "Factory", "MilestoneExtractor", "Rounds",
    "ToolCallExtractor", "UsageExtractor", "agent_key", "as_data", "error_class", "is_runner",
    "parsed", "prepare", "signature_of",
]  # fmt: skip
