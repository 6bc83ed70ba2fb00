"""A span as dialects see it, live or recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Status = Literal["unset", "ok", "error"]


class SpanView(Protocol):
    """Read-only face of a span. Live spans and recorded ones both have it.

    Attribute values may be anything: text, numbers, lists, maps, JSON text of a map, cut text,
    lone surrogates, NaN. A dialect reads what it understands and never throws for what it does not.
    """

    @property
    def name(self) -> str:
        """Name of the span, as it is now."""
        ...

    @property
    def scope(self) -> str:
        """Name of the instrumentation scope; empty if there is none."""
        ...

    @property
    def kind(self) -> str:
        """`INTERNAL`, `SERVER`, `CLIENT`, `PRODUCER` or `CONSUMER`."""
        ...

    @property
    def trace_id(self) -> int:
        """Trace id."""
        ...

    @property
    def span_id(self) -> int:
        """Span id."""
        ...

    @property
    def parent_id(self) -> int | None:
        """Span id of the parent; None for a root."""
        ...

    @property
    def start(self) -> int:
        """Start, nanoseconds since the epoch."""
        ...

    @property
    def end(self) -> int | None:
        """End, nanoseconds since the epoch; None while open."""
        ...

    @property
    def attributes(self) -> Mapping[str, object]:
        """Attributes as they are now."""
        ...

    @property
    def start_attributes(self) -> Mapping[str, object] | None:
        """Attributes as another processor has not yet changed them; None if they are the same.

        logfire scrubs attribute values before other processors see the ended span; the live span
        still has them.
        """
        ...

    @property
    def events(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        """Name and attributes of each event."""
        ...

    @property
    def status(self) -> Status:
        """Status code."""
        ...

    @property
    def description(self) -> str | None:
        """Description of the status."""
        ...


@dataclass(slots=True)
class RecordedSpan:
    """A span from a recording. Has the face of `SpanView`; see there for the fields."""

    name: str = ""
    scope: str = ""
    kind: str = "INTERNAL"
    trace_id: int = 0
    span_id: int = 0
    parent_id: int | None = None
    start: int = 0
    end: int | None = None
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])
    start_attributes: Mapping[str, object] | None = None
    events: Sequence[tuple[str, Mapping[str, object]]] = ()
    status: Status = "unset"
    description: str | None = None

    def started(self) -> RecordedSpan:
        """As it was at its start: without its outcome, which nothing had said by then.

        Attributes set at the start cannot be told from later ones.
        """
        # By place: `dataclasses.replace` takes three times as long.
        return RecordedSpan(
            self.name, self.scope, self.kind, self.trace_id, self.span_id, self.parent_id,
            self.start, None, self.attributes, self.start_attributes,
        )  # fmt: skip
