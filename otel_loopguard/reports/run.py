"""The metrics of a run, for whoever orchestrates it (E14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from otel_loopguard.core import Phase

Happening = Literal["retries", "degraded", "compactions", "missing_dependencies"]
"""What is counted of a run, by the field of `RunMetrics`."""


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """How a session ran, as whoever orchestrates it asks. It has no content of calls.

    Source: FEATURES E14.

    Attributes:
        phases: Stretches of work of one agent, one after the other: name of the agent and seconds.
            The newest 48, oldest first; one that goes on is the last.
        retries: Further tries that `control.retrying` and `control.verified` made.
        degraded: Steps that were skipped or failed and got a degraded result.
        compactions: How often the context was compacted, as the application said or as the input
            tokens showed.
        missing_dependencies: Degraded results among those that `control.combined` took.
        context_tokens: Input tokens of the newest model call that says them; None if none does.
        peak_context_tokens: The most input tokens of one model call; None if none says them.
    """

    phases: tuple[Phase, ...] = ()
    retries: int = 0
    degraded: int = 0
    compactions: int = 0
    missing_dependencies: int = 0
    context_tokens: int | None = None
    peak_context_tokens: int | None = None
