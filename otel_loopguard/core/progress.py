"""What a session has come to, as everything that looks at it may read."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_loopguard.core.milestones import Milestones
from otel_loopguard.core.phases import Phases


@dataclass(slots=True)
class Progress:
    """Running totals of one session.

    Attributes:
        steps: Canonical steps of any kind.
        calls: Finished tool calls. Windows and fading count these, so that it does not matter how
            many other spans a framework writes in between.
        models: Model calls.
        answers: Tool outcomes that were captured.
        unseen: Tool outcomes that were not.
        news: Sum of the novelty of the answers, each 0 to 1.
        epoch: How often the world was changed, as far as can be told.
        time: End of the newest step, nanoseconds since the epoch; 0 without times.
        task: Number of the user's task, from 0.
        used: Highest share used of any budget that somebody set, 0 to 1; 0 without one (D12).
        milestones: What the application declared and reached.
        phases: Stretches of work of one agent (E14).
    """

    steps: int = 0
    calls: int = 0
    models: int = 0
    answers: int = 0
    unseen: int = 0
    news: float = 0.0
    epoch: int = 0
    time: int = 0
    task: int = 0
    used: float = 0.0
    milestones: Milestones = field(default_factory=Milestones)
    phases: Phases = field(default_factory=Phases)
