"""What detectors find and what the policy makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Action(str, Enum):
    """What the runtime should do, in order of force."""

    ALLOW = "allow"
    HINT = "hint"
    STEER = "steer"
    ASK = "ask"
    DENY = "deny"
    PAUSE = "pause"
    ABORT = "abort"

    __str__ = str.__str__

    @property
    def rank(self) -> int:
        """Place in the order: `allow` 0 to `abort` 6."""
        return _RANK[self]

    @property
    def stops(self) -> bool:
        """Whether work is held or ended: deny, pause, abort."""
        return _RANK[self] >= _RANK[Action.DENY]


_RANK = {action: rank for rank, action in enumerate(Action)}


class Severity(str, Enum):
    """How bad a detection is (D8)."""

    WARNING = "warning"
    CRITICAL = "critical"
    FATAL = "fatal"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Detection:
    """What one detector found at one step.

    Attributes:
        detector: Name of the detector.
        reason: Short code of the rule, of few values (`identical_call`, `cycle`, …).
        severity: How bad it is.
        confidence: How sure, 0 to 1.
        keys: Identities of the calls that make the loop; detections that share one are one loop.
        count: What was counted, in repeats (may be fractional: a masked-equal repeat weighs less).
        threshold: The count from which this is a detection.
        message: A sentence that says only what was measured, without content of the calls.
        period: Length of the cycle, in calls.
        max_action: The strongest action that this detection may lead to.
    """

    detector: str
    reason: str
    severity: Severity
    confidence: float
    keys: frozenset[int]
    count: float
    threshold: float
    message: str
    period: int = 1
    max_action: Action = Action.ABORT


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided about a session, and why.

    Attributes:
        id: Unique id, 16 hex digits.
        session: Key of the session.
        action: What the runtime should do.
        detector: Name of the detector behind it.
        reason: Short code of the rule.
        severity: Severity of the detection.
        confidence: 0 to 1.
        message: A sentence that says only what was measured, without content of the calls.
        loop: Keyed digest of the loop, 16 hex digits; the same loop keeps it within a session.
        count: What was counted, in repeats.
        threshold: The count from which it was a detection.
        period: Length of the cycle, in calls.
        step: Index of the step, within the session, at which it was decided.
        time: When, nanoseconds since the epoch.
        trace_id: Trace of the span concerned; 0 if there is none.
        span_id: The span concerned; 0 if there is none.
        fingerprint: Keyed digest of tool and arguments of the call concerned, or None.
        shadow: Whether it was only noted and raised no flag.
    """

    id: str
    session: str
    action: Action
    detector: str
    reason: str
    severity: Severity
    confidence: float
    message: str
    loop: str
    count: float
    threshold: float
    period: int
    step: int
    time: int
    trace_id: int = 0
    span_id: int = 0
    fingerprint: str | None = None
    shadow: bool = False
