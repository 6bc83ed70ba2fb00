"""The answer to a call that is about to run, and the load that it is decided under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.core.decision import Choice

if TYPE_CHECKING:
    from otel_loopguard.core.decision import Decision, FollowUp, Source


@dataclass(frozen=True, slots=True)
class Alert:
    """One resource that is past its threshold.

    Attributes:
        resource: `cpu`, `memory`, `io_wait` or `queue`.
        value: What was measured: percent, for `queue` tasks that wait.
        threshold: From where on it is an alert, in the same unit.
        critical: Whether it is past the critical threshold too.
    """

    resource: str
    value: float
    threshold: float
    critical: bool


@dataclass(frozen=True, slots=True)
class ResourcePressure:
    """The newest word on resources. None means *not known*, never *none*.

    Attributes:
        load: Share of the CPUs that is busy, 0 to 1.
        queue: Tasks that wait for a worker.
        alerts: What is past its threshold, in the order CPU, memory, I/O wait, queue.
    """

    load: float | None = None
    queue: int | None = None
    alerts: tuple[Alert, ...] = ()

    @property
    def critical(self) -> bool:
        """True if anything is past its critical threshold, so that what can wait should."""
        return any(alert.critical for alert in self.alerts)

    @property
    def scale_workers(self) -> bool:
        """True if two or more resources are short, so that more workers would help."""
        return len(self.alerts) >= 2


UNKNOWN_PRESSURE = ResourcePressure()
"""The pressure before anything was measured."""


class Vote(NamedTuple):
    """The vote of one rule.

    Attributes:
        rule: Short code of the rule (`time`, `tasks`, `complexity`, …).
        choice: What it is for.
        confidence: How sure it is, 0 to 1.
        reason: What was measured, in words.
    """

    rule: str
    choice: Choice
    confidence: float
    reason: str


class Objection(NamedTuple):
    """A refusal of a call, past all votes: an open breaker, a check that would fail.

    Attributes:
        reason: Short code (`breaker_open`, `check_failed`).
        message: A sentence that says what was measured, without content of the call.
    """

    reason: str
    message: str


class Factors(NamedTuple):
    """Everything that an execution choice was made of. Times in milliseconds.

    Attributes:
        tasks: How many calls.
        tools: Their tools, each once, in order of their names.
        parallel: Whether they are reckoned to run side by side.
        tool_ms: Time of the tools: of all of them, or of the longest chain where they run in
            parallel.
        complexity: Complexity of the tasks, 0 to 1.
        records: Records of past calls that the estimate of the tools rests on; 0: a default.
        estimates: Where the estimate of each tool comes from, as its profile says.
        switching_ms: Added for changing between tasks.
        checkpoints_ms: Added for checkpoints.
        complexity_ms: Added for the complexity.
        remembered: What the user answered before for the same tools; None without an answer.
        pressure: How busy machine and workers are.
        votes: What each rule is for.
    """

    tasks: int
    tools: tuple[str, ...]
    parallel: bool
    tool_ms: float
    complexity: float
    records: int
    estimates: Mapping[str, str]
    switching_ms: float = 0.0
    checkpoints_ms: float = 0.0
    complexity_ms: float = 0.0
    remembered: Choice | None = None
    pressure: ResourcePressure = UNKNOWN_PRESSURE
    votes: tuple[Vote, ...] = ()

    @property
    def total_ms(self) -> float:
        """All of it together: what the votes are about."""
        return self.tool_ms + self.switching_ms + self.checkpoints_ms + self.complexity_ms


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision about a call, or a batch of calls, before it runs.

    Attributes:
        id: Unique id, 16 hex digits: for `sessions.feedback`.
        choice: How to execute it.
        confidence: How sure, 0 to 1.
        estimate_ms: How long its tools will take; what is added is in `factors`. Milliseconds.
        reason: Why, in a sentence without content of the call.
        follow_ups: What a runtime does next, in this order.
        source: What it comes from; the one earlier in the order is heard.
        factors: Everything that the estimate and the votes were made of.
        session: Key of the session; None where none is known.
        user: Whose preferences counted; empty for nobody's in particular.
        decision: The decision about a loop that speaks against it, if one does.
        objection: Short code of what else speaks against it; None if nothing does.
        channels: Where to tell of its end, as the user prefers; empty for nowhere.
        warnings: What failed before with calls of this kind, a sentence each; no content. The call
            may be made all the same.
    """

    id: str
    choice: Choice
    confidence: float
    estimate_ms: float
    reason: str
    follow_ups: tuple[FollowUp, ...]
    source: Source
    factors: Factors
    session: str | None = None
    user: str = ""
    decision: Decision | None = None
    objection: str | None = None
    channels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def runs(self) -> bool:
        """True if the call may start without asking anybody: now, or in the background."""
        return self.choice in (Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND)

    @property
    def scale_workers(self) -> bool:
        """True if two or more resources are short, so that more workers would help."""
        return self.factors.pressure.scale_workers


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Counts of how the answers about calls were taken.

    Attributes:
        choices: Admissions by choice.
        answered: Those that somebody answered.
        overridden: Those answered with another choice than was given; an answer to a
            `prompt_user` overrides nothing.
        background_answered: Answered admissions that chose the background.
        background_accepted: Those of them that stayed there.
    """

    choices: Mapping[str, int]
    answered: int = 0
    overridden: int = 0
    background_answered: int = 0
    background_accepted: int = 0

    @property
    def override_rate(self) -> float | None:
        """Share of the answered admissions that were overridden; None without any."""
        return self.overridden / self.answered if self.answered else None

    @property
    def background_acceptance_rate(self) -> float | None:
        """Share of the answered `auto_background` that stayed there; None without any."""
        told = self.background_answered
        return self.background_accepted / told if told else None


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """The use of one resource, over the samples that are kept.

    Attributes:
        mean: Mean of the samples that have it, in the unit of `Reading`.
        peak: The highest of them.
        samples: How many have it.
    """

    mean: float
    peak: float
    samples: int
