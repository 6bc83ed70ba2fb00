"""Makes decisions out of verdicts."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard import semconv
from otel_loopguard._util.text import printable
from otel_loopguard.core import Action, Decision, Detection, Diagnosis, Step
from otel_loopguard.core.decision import Annotation, Severity, outcome_of
from otel_loopguard.detectors.base import TABLE
from otel_loopguard.evidence import is_runner, signature_of
from otel_loopguard.policy import alternatives, certainty_of, diagnose, follow_ups_of, source_of
from otel_loopguard.policy.hints import Call, advice, question

if TYPE_CHECKING:
    from otel_loopguard.core.evidence import Evidence
    from otel_loopguard.policy import Diagnoser, Loop, Verdict
    from otel_loopguard.settings import Settings


_HIGHEST: Final = 1000
"""Threshold that a proposed setting names to switch a rule off: no count reaches it."""
_OF_CALLS: Final = ("repetition", "errors", "standstill")
"""Families whose detections are about the call at hand."""


class Finding(NamedTuple):
    """A verdict of a session's policy on one step."""

    verdict: Verdict
    call: int | None = None  # key of the call concerned
    tool: str = ""
    signature: str | None = None  # kind of the error behind it
    error: int | None = None  # key of the line that names that error
    # Trace and span ids of the steps that showed the calls of the loop first.
    earlier: tuple[tuple[int, int], ...] = ()
    shown: Call | None = None  # the call that showed the loop; content

    @property
    def quote(self) -> str:
        """The first line of what the call answered: content, which stays in the process."""
        return "" if self.shown is None else self.shown.quoted()


def finding_of(verdict: Verdict, step: Step, seen: Evidence | None) -> Finding:
    """A verdict with what is known of the call concerned, if one is."""
    if seen is None:
        return Finding(verdict)
    error = seen.error_shape
    about = {seen.call, seen.error_line, seen.failure, error} - {None}
    shown = Call(step, seen) if verdict.detection.family in _OF_CALLS else None
    if not seen.error or about.isdisjoint(verdict.loop.keys):
        return Finding(verdict, seen.call, seen.tool, shown=shown)
    return Finding(verdict, seen.call, seen.tool, signature_of(step), error, shown=shown)


class Decisions:
    """Makes the decisions of one guard. Thread-safe: it has no state but its settings."""

    def __init__(
        self, settings: Settings, diagnoser: Diagnoser | None = None, *, derived: bool = False
    ) -> None:
        # Ids from the step, so that replicas agree on them.
        self._derived = derived
        self._shadow = settings.mode == "shadow"
        self._key = _key_of(settings) or secrets.token_bytes(32)
        self._strategies = settings.strategies
        self._diagnoser = diagnoser

    def decide(
        self, session: str, finding: Finding, step: Step, *, index: int, time: int
    ) -> Decision:
        """The decision of one finding."""
        action, found = finding.verdict.action, finding.verdict.detection
        source = source_of(found)
        known = self._diagnosis(finding, step)
        return Decision(
            id=self._id(session, finding, step),
            session=session,
            action=action,
            detector=found.detector,
            reason=found.reason,
            severity=_severity(action, found),
            confidence=round(found.confidence, 3),
            message=found.message,
            loop=self.digest(finding.verdict.loop.id),
            count=found.count,
            threshold=found.threshold,
            period=found.period,
            step=index,
            time=time,
            trace_id=step.trace_id,
            span_id=step.span_id,
            fingerprint=None if finding.call is None else self.digest(finding.call),
            shadow=self._shadow,
            tool=finding.tool,
            source=source,
            certainty=certainty_of(source, action, found.confidence),
            follow_ups=follow_ups_of(action, found.intervention),
            intervention=found.intervention,
            advice=advice(action, found, finding.shown),
            alternatives=self._alternatives(action, finding.tool, known),
            question=question(action, found, known),
            diagnosis=known,
            earlier=finding.earlier,
        )

    def _id(self, session: str, finding: Finding, step: Step) -> str:
        if not self._derived:
            return secrets.token_hex(8)
        found = finding.verdict.detection
        told = (session, found.detector, found.reason, finding.verdict.action.value)
        place = f"{step.trace_id:x}-{step.span_id:x}"
        text = "\0".join((*told, place)).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=b"decision", digest_size=8).hexdigest()

    def _alternatives(self, action: Action, tool: str, known: Diagnosis | None) -> tuple[str, ...]:
        if not tool or action not in (Action.STEER, Action.DENY):
            return ()
        # A known remedy beats general ways for the kind of tool.
        return alternatives(tool, self._strategies, shipped=known is None)

    def _diagnosis(self, finding: Finding, step: Step) -> Diagnosis | None:
        """Diagnosis of the error in a loop; None without one."""
        known = diagnose(finding.signature, finding.shown)
        if known is not None or self._diagnoser is None:
            return known
        text = step.error_text or step.outcome
        if finding.signature is None or finding.error is None or not isinstance(text, str):
            return None
        return self._diagnoser.get(finding.error, text)

    def digest(self, key: int) -> str:
        """Keyed digest of an identity."""
        return digest_of(key, self._key)


def _key_of(settings: Settings) -> bytes:
    return settings.digest_key.get_secret_value().encode("utf-8", "surrogatepass")[:64]


def digest_of(identity: int, key: bytes) -> str:
    """Keyed digest of an identity, 16 hex digits: it cannot be searched for an argument."""
    raw = (identity & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big")
    return hashlib.blake2b(raw, key=key, digest_size=8).hexdigest()


def is_about(decision: Decision, loop: Loop, settings: Settings) -> bool:
    """True if a decision of any process with these settings is about the loop."""
    return digest_of(loop.id, _key_of(settings)) == decision.loop


def lasting(decision: Decision, settings: Settings) -> str:
    """Returns the setting that lets through for good what a decision is about; empty without.

    A tool that runs what the agent writes is not exempted: all that the agent does may be a call
    of it. The threshold of this tool alone is raised, or the one detector is switched off.
    """
    if decision.about_limit or decision.detector == "warnings":
        return ""
    tool = printable(json.dumps(decision.tool, ensure_ascii=False))
    if decision.reason == "done_before":
        return f"once_tools without {tool}"
    if decision.tool and not is_runner(decision.tool):
        return f"exempt_tools = [{tool}]"
    detector = TABLE.get(decision.detector)
    for name in detector.tuned_by if detector is not None and decision.tool else ():
        own = getattr(settings.of(decision.tool), name, None)
        if name.endswith("_threshold") and own == decision.threshold:
            return f"tools.{tool}.{name} = {_HIGHEST}"
    return f'switched_off = "{decision.detector}"'


def annotation(decision: Decision, *, with_session: bool, status: bool = True) -> Annotation:
    """Attributes that a decision adds to a span."""
    attributes: dict[str, str | bool | int | float] = {
        semconv.DECISION_ACTION: decision.action.value,
        semconv.DECISION_MESSAGE: decision.message,
        semconv.DECISION_ID: decision.id,
        semconv.DECISION_REASON: decision.reason,
        semconv.DETECTOR_NAME: decision.detector,
        semconv.DETECTION_SEVERITY: decision.severity.value,
        semconv.DETECTION_SCORE: decision.confidence,
        semconv.DETECTION_REPEAT_COUNT: float(decision.count),
        semconv.DETECTION_CYCLE_LENGTH: decision.period,
        semconv.LOOP_ID: decision.loop,
        semconv.RULESET: semconv.RULES,
    }
    if decision.intervention is not None:
        attributes[semconv.DECISION_INTERVENTION] = decision.intervention
    if decision.diagnosis is not None:
        attributes[semconv.DIAGNOSIS_SIGNATURE] = decision.diagnosis.signature
    if decision.action is Action.ABORT and not decision.shadow:
        attributes[semconv.OUTCOME] = outcome_of(decision, None).value
    if decision.fingerprint is not None:
        attributes[semconv.CALL_FINGERPRINT] = decision.fingerprint
    if decision.shadow:
        attributes[semconv.DECISION_SHADOW] = True
    if with_session:
        attributes[semconv.SESSION_ID] = decision.session
    if decision.shadow or not status or not decision.action.stops:
        return Annotation(attributes, links=decision.earlier)
    aborts = decision.action is Action.ABORT
    attributes[semconv.ERROR_TYPE] = semconv.ERROR_ABORT if aborts else semconv.ERROR_DENY
    said = semconv.decided(decision.action, decision.message)
    return Annotation(attributes, said, decision.earlier)


def _severity(action: Action, found: Detection) -> Severity:
    if action is Action.ABORT:
        return Severity.FATAL
    return Severity.CRITICAL if action.stops else found.severity
