"""Makes decisions out of verdicts, and says what they add to spans."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard.core import Action, Annotation, Decision, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.policy import Verdict
    from otel_loopguard.settings import Settings


class Decisions:
    """Makes the decisions of one guard. Thread-safe: it has no state but its settings."""

    def __init__(self, settings: Settings) -> None:
        self._shadow = settings.mode == "shadow"
        self._key = settings.digest_key.encode()[:64] or secrets.token_bytes(32)

    def decide(  # noqa: PLR0913
        self, session: str, verdict: Verdict, *, step: int, time: int, trace_id: int = 0,
        span_id: int = 0, call: int | None = None,
    ) -> Decision:  # fmt: skip
        """The decision of one verdict.

        Args:
            session: Key of the session.
            verdict: What the ladder says.
            step: Index of the step within its session.
            time: When, nanoseconds since the epoch.
            trace_id: Trace of the span concerned.
            span_id: The span concerned.
            call: Key of the call concerned.
        """
        found = verdict.detection
        return Decision(
            id=secrets.token_hex(8),
            session=session,
            action=verdict.action,
            detector=found.detector,
            reason=found.reason,
            severity=_severity(verdict.action, found),
            confidence=round(found.confidence, 3),
            message=found.message,
            loop=self._digest(verdict.loop.id),
            count=found.count,
            threshold=found.threshold,
            period=found.period,
            step=step,
            time=time,
            trace_id=trace_id,
            span_id=span_id,
            fingerprint=None if call is None else self._digest(call),
            shadow=self._shadow,
        )

    def _digest(self, key: int) -> str:
        """Keyed digest of an identity, 16 hex digits: it cannot be searched for an argument."""
        raw = (key & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")
        return hashlib.blake2b(raw, key=self._key, digest_size=8).hexdigest()


def annotation(decision: Decision, *, with_session: bool, status: bool = True) -> Annotation:
    """What a decision adds to a span.

    Args:
        decision: The decision.
        with_session: Whether the span has no session id of its own, so that ours is added.
        status: Whether a deny or an abort turns it to ERROR. Not where the span only starts: its
            call may go well, and our status would be read back as a failure of the tool.
    """
    attributes: dict[str, str | bool | int | float] = {
        semconv.DECISION_ACTION: decision.action.value,
        semconv.DECISION_ID: decision.id,
        semconv.DECISION_REASON: decision.reason,
        semconv.DECISION_MESSAGE: decision.message,
        semconv.DETECTOR_NAME: decision.detector,
        semconv.DETECTION_SEVERITY: decision.severity.value,
        semconv.DETECTION_SCORE: decision.confidence,
        semconv.DETECTION_REPEAT_COUNT: float(decision.count),
        semconv.DETECTION_CYCLE_LENGTH: decision.period,
        semconv.LOOP_ID: decision.loop,
        semconv.RULESET: semconv.RULES,
    }
    if decision.fingerprint is not None:
        attributes[semconv.CALL_FINGERPRINT] = decision.fingerprint
    if decision.shadow:
        attributes[semconv.DECISION_SHADOW] = True
    if with_session:
        attributes[semconv.SESSION_ID] = decision.session
    if decision.shadow or not status or not decision.action.stops:
        return Annotation(attributes)
    aborts = decision.action is Action.ABORT
    attributes[semconv.ERROR_TYPE] = semconv.ERROR_ABORT if aborts else semconv.ERROR_DENY
    return Annotation(attributes, f"loopguard {decision.action}: {decision.message}")


def hint(decision: Decision) -> str:
    """What to tell the model about a decision: what was measured, and what follows."""
    follows = {
        Action.HINT: "Do not repeat it unchanged: use what you have, try another way, or say what "
        "is missing.",
        Action.DENY: "Further calls of this kind are refused: try another way, or finish with what "
        "you have.",
        Action.ABORT: "The run is stopped.",
    }
    return (
        f"{decision.message[:1].upper()}{decision.message[1:]}. {follows.get(decision.action, '')}"
    )


def _severity(action: Action, found: Detection) -> Severity:
    if action is Action.ABORT:
        return Severity.FATAL
    return Severity.CRITICAL if action.stops else found.severity
