"""Every `loopguard.*` name, once. Names that we only read stand in their dialect.

Values, types and cardinality follow the rules for names of OpenTelemetry (general/naming.md):
lowercase, dots between namespaces, no name inside a namespace that is not ours.
"""

from __future__ import annotations

from typing import Final

DECISION_ACTION: Final = "loopguard.decision.action"
"""str, one of `core.Action`: what the runtime should do."""

DECISION_ID: Final = "loopguard.decision.id"
"""str, 16 hex digits. Never on a metric."""

DECISION_REASON: Final = "loopguard.decision.reason"
"""str, short code of the rule."""

DECISION_MESSAGE: Final = "loopguard.decision.message"
"""str, a sentence that says what was measured. Never on a metric."""

DECISION_SHADOW: Final = "loopguard.decision.shadow"
"""bool, true where the decision was only noted (mode `shadow`)."""

DECISION_INTERVENTION: Final = "loopguard.decision.intervention"
"""str, what is to be done about the loop (`break_cycle`, …); only where the detector says so."""

DIAGNOSIS_SIGNATURE: Final = "loopguard.diagnosis.signature"
"""str, kind of the error that the loop is about (`not_found`, …); only where one is known."""

DETECTOR_NAME: Final = "loopguard.detector.name"
"""str, name of the detector."""

DETECTION_SEVERITY: Final = "loopguard.detection.severity"
"""str, `warning`, `critical` or `fatal`."""

DETECTION_SCORE: Final = "loopguard.detection.score"
"""double, 0 to 1: how sure."""

DETECTION_REPEAT_COUNT: Final = "loopguard.detection.repeat_count"
"""double, what was counted, in repeats."""

DETECTION_CYCLE_LENGTH: Final = "loopguard.detection.cycle.length"
"""int, calls in one turn of the cycle; 1 for a repeat."""

EXECUTION_CHOICE: Final = "loopguard.execution.choice"
"""str, one of `core.Choice`: how the call is best executed; only where its tool has a profile."""

EXECUTION_CONFIDENCE: Final = "loopguard.execution.confidence"
"""double, 0 to 1: how sure that choice is."""

EXECUTION_ESTIMATE_MS: Final = "loopguard.execution.estimate_ms"
"""double, milliseconds that nine of ten such calls stay within."""

EXECUTION_LOOP: Final = "loopguard.execution.loop"
"""bool, on log records only: whether a loop speaks against the call."""

EXECUTION_ALERTS: Final = "loopguard.execution.alerts"
"""str[], on log records only: resources that are short."""

EXECUTION_TOOLS: Final = "loopguard.execution.tools"
"""int, on log records only: how many different tools are called."""

RULESET: Final = "loopguard.ruleset"
"""str, name and version of the rules, `default@2`."""

CALL_FINGERPRINT: Final = "loopguard.call.fingerprint"
"""str, keyed digest of tool and arguments, 16 hex digits; never the arguments."""

LOOP_ID: Final = "loopguard.loop.id"
"""str, keyed digest of the loop, 16 hex digits."""

SESSION_ID: Final = "loopguard.session.id"
"""str, only where the span has no conversation or session id of its own."""

PLAN: Final = "loopguard.plan"
"""str, read: a plan as JSON, a list of tasks; on a span of an agent, a workflow or planning."""

TASK: Final = "loopguard.task"
"""str, read: id of the task of a plan that a span is the work of."""

LIMIT_EXCEEDED: Final = "loopguard.limit.exceeded"
"""double, seconds: the limit at which what ran below this span was cancelled."""

EVENT_DECISION: Final = "loopguard.decision"
"""Name of the span event of a decision."""

ERROR_TYPE: Final = "error.type"
"""OpenTelemetry's own; set on a span that a deny or an abort turns to ERROR, if it has none."""

ERROR_ABORT: Final = "loopguard_abort"
"""Value of `error.type` for an abort."""

ERROR_DENY: Final = "loopguard_deny"
"""Value of `error.type` for a deny or a pause."""

RULES: Final = "default@2"
"""Value of `loopguard.ruleset` for the rules that ship."""
