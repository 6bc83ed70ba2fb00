"""What a dialect is: one convention by which instrumentations write spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.dialects.view import SpanView


class Dialect(Protocol):
    """Reads the spans of one convention.

    A dialect says what stands on the span. Session, agent and handoffs that are written in one of
    the usual keys are read by the `Reader`, for all dialects alike; a dialect sets them only where
    it knows better.
    """

    @property
    def name(self) -> str:
        """Name, unique among all dialects; it becomes `Step.dialect`."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Attribute keys, any of which says that a span may be of this dialect."""
        ...

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None if it is not of this dialect.

        Called for spans that have just started (few attributes, `end` None) and for ended ones.
        It must not throw for values of any type, and must not change the span.
        """
        ...
