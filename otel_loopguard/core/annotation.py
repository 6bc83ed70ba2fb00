"""What a decision adds to a span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is to be put on a span.

    Attributes:
        attributes: Attributes to add, `loopguard.*`.
        error: Description of an ERROR status for the span (deny, abort), or None to leave the
            status alone.
        links: Trace and span ids of spans to link to.
    """

    attributes: Mapping[str, str | bool | int | float]
    error: str | None = None
    links: tuple[tuple[int, int], ...] = ()
