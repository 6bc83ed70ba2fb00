"""Every `loopguard.*` name, once. Names that are only read are in their dialect.

Values, types and cardinality follow the rules for names of OpenTelemetry (general/naming.md):
lowercase, dots between namespaces, no name inside a namespace that is not ours.
"""

from __future__ import annotations

from typing import Final

DECISION_ACTION: Final = "loopguard.decision.action"
"""str, one of `core.Action`: what the agent should do."""

DECISION_ID: Final = "loopguard.decision.id"
"""str, 16 hex digits. Never on a metric."""

DECISION_REASON: Final = "loopguard.decision.reason"
"""str, short code of the rule."""

DECISION_MESSAGE: Final = "loopguard.decision.message"
"""str, a sentence with what was measured. Never on a metric."""

DECISION_SHADOW: Final = "loopguard.decision.shadow"
"""bool, true if the decision had no effect (mode `shadow`)."""

DECISION_INTERVENTION: Final = "loopguard.decision.intervention"
"""str, advised intervention (`break_cycle`, …), if the detector names one."""

OUTCOME: Final = "loopguard.outcome"
"""str, on spans of a run that was aborted: how it ended (`loop`, `budget`, …)."""

DIAGNOSIS_SIGNATURE: Final = "loopguard.diagnosis.signature"
"""str, kind of the loop's error (`not_found`, …), if known."""

DETECTOR_NAME: Final = "loopguard.detector.name"
"""str, name of the detector."""

DETECTION_SEVERITY: Final = "loopguard.detection.severity"
"""str, `warning`, `critical` or `fatal`."""

DETECTION_SCORE: Final = "loopguard.detection.score"
"""double, confidence, 0 to 1."""

DETECTION_REPEAT_COUNT: Final = "loopguard.detection.repeat_count"
"""double, number of repeats."""

DETECTION_CYCLE_LENGTH: Final = "loopguard.detection.cycle.length"
"""int, calls in one turn of the cycle; 1 for a repeat."""

EXECUTION_CHOICE: Final = "loopguard.execution.choice"
"""str, one of `core.Choice`, on metrics and log lines only: how a call is best executed."""

EXECUTION_CONFIDENCE: Final = "loopguard.execution.confidence"
"""double, on log events only: confidence of a choice or decision, 0 to 1."""

EXECUTION_ESTIMATE_MS: Final = "loopguard.execution.estimate_ms"
"""double, on log lines only: milliseconds within which nine of ten such calls end."""

EXECUTION_LOOP: Final = "loopguard.execution.loop"
"""bool, on log events only: whether the call belongs to a loop."""

EXECUTION_ALERTS: Final = "loopguard.execution.alerts"
"""str[], on log events only: scarce resources."""

EXECUTION_TOOLS: Final = "loopguard.execution.tools"
"""int, on log events only: number of different tools called."""

RULESET: Final = "loopguard.ruleset"
"""str, name and version of the rules, `default@2`."""

CALL_FINGERPRINT: Final = "loopguard.call.fingerprint"
"""str, keyed digest of tool and arguments, 16 hex digits; never the arguments."""

LOOP_ID: Final = "loopguard.loop.id"
"""str, keyed digest of the loop, 16 hex digits."""

SESSION_ID: Final = "loopguard.session.id"
"""str, if the span has no conversation or session id of its own."""

PLAN: Final = "loopguard.plan"
"""str, only read: a plan as a JSON list of tasks, on a span of an agent, workflow or planning."""

TASK: Final = "loopguard.task"
"""str, only read: id of the plan's task that a span works on."""

LIMIT_EXCEEDED: Final = "loopguard.limit.exceeded"
"""double, seconds: the limit at which the work below this span was cancelled."""

EVENT_DECISION: Final = "loopguard.decision"
"""Name of the log event and the decision span of a decision; of its span event too."""

EVENT_ESCALATION: Final = "loopguard.escalation"
"""Name of the log event of an escalation to people."""

EVENT_CYCLE: Final = "loopguard.cycle"
"""Name of the log event of a cycle of agents."""

ESCALATION_ID: Final = "loopguard.escalation.id"
"""str, 16 hex digits, on log events only; the decision's id if nothing was sent."""

ESCALATION_CAUSE: Final = "loopguard.escalation.cause"
"""str, on log events only: reason of the escalation (`pause`, `ask`, `cycle`, …)."""

ESCALATION_ANSWER: Final = "loopguard.escalation.answer"
"""str, on log events only: `continue`, `abort`, `modify_plan` or `skip_task`."""

EVENT_CONTROL: Final = "loopguard.control"
"""Name of the log event of a change of the flag not made by the policy; of its span event too."""

CONTROL_BY: Final = "loopguard.control.by"
"""str, who changed the flag: name of a person, `application`, `time limit`. Never on a metric."""

CYCLE_STATE: Final = "loopguard.cycle.state"
"""str, `found`, `intervened`, `escalated` or `resolved`."""

CYCLE_ID: Final = "loopguard.cycle.id"
"""int, number of the cycle within its session, on log events only."""

CYCLE_PATTERNS: Final = "loopguard.cycle.patterns"
"""str[], rules that found the cycle, on log events only."""

CYCLE_AGENTS: Final = "loopguard.cycle.agents"
"""str[], names of the agents of the cycle, on log events only."""

CYCLE_TOPIC: Final = "loopguard.cycle.topic"
"""str, 16 hex digits, on log events only: keyed digest of what was handed on."""

CYCLE_DURATION: Final = "loopguard.cycle.duration"
"""double, seconds from the exchange that began the cycle to the newest, on log events only."""

CYCLE_COUNT: Final = "loopguard.cycle.count"
"""double, exchanges of the cycle, on log events only."""

CYCLE_OUTCOME: Final = "loopguard.cycle.outcome"
"""str, on log events only: the advised intervention, or how the cycle ended."""

BAGGAGE_SESSION: Final = "loopguard.session"
"""Baggage entry: session key of at most 48 bytes, longer ones as a digest."""

BAGGAGE_CONTROL: Final = EVENT_CONTROL
"""Baggage entry: action, time and signature, 31 bytes."""

STEP_KIND: Final = "loopguard.step.kind"
"""str, one of `core.Kind`, on metrics only."""

CALL_OUTCOME: Final = "loopguard.call.outcome"
"""str, `success` or `failure`, on metrics only."""

FEEDBACK_VERDICT: Final = "loopguard.feedback.verdict"
"""str, `confirmed` or `false_alarm`, on metrics only."""

EXECUTION_ANSWER: Final = "loopguard.execution.answer"
"""str, `accepted` or `overridden`, on metrics only."""

ESTIMATE_SOURCE: Final = "loopguard.estimate.source"
"""str, basis of an estimate: `profile`, `default`, `unknown`, `given`; on metrics."""

RESOURCE_NAME: Final = "loopguard.resource.name"
"""str, `cpu`, `memory` or `io_wait`, on metrics only."""

RESOURCE_STATISTIC: Final = "loopguard.resource.statistic"
"""str, `mean` or `peak`, on metrics only."""

STORE_STATE: Final = "loopguard.store.state"
"""str, `available`, `degraded` or `unavailable`, on metrics only."""

FAULT_PLACE: Final = "loopguard.fault.place"
"""str, where an exception was suppressed, on metrics only; at most 256 values."""

VERDICT_BACKEND: Final = "loopguard.verdict.backend"
"""str, `phoenix`, `langfuse`, `langsmith` or `mlflow`, on metrics only."""

SERVER_CHECK: Final = "loopguard.server.check"
"""str, check of `/readyz`: `judging`, `queue`, `store`, `next_hop`, `running`; on metrics only."""

SERVER_LEASE: Final = "loopguard.server.lease"
"""str, what became of a lease: `taken`, `taken_over` or `lost`, on metrics only."""

SERVER_SIGNAL: Final = "loopguard.server.signal"
"""str, `traces`, `logs` or `metrics`, on metrics only."""

VERDICT_ID: Final = "loopguard.verdict.id"
"""str, 32 hex digits, in MLflow only: id of a verdict, by which it is found again."""

ERROR_TYPE: Final = "error.type"
"""OpenTelemetry's own; set on a span that a deny or abort turns to ERROR, unless it has one."""

ERROR_ABORT: Final = "loopguard_abort"
"""Value of `error.type` for an abort."""

ERROR_DENY: Final = "loopguard_deny"
"""Value of `error.type` for a deny or a pause."""

RULES: Final = "default@2"
"""Value of `loopguard.ruleset` for the built-in rules."""

# Metrics. Unit, attributes and meaning of each are in `telemetry/metrics.txt`, those of `serve` in
# `server/metrics.txt`.

METRIC_DECISIONS: Final = "loopguard.decisions"
METRIC_DETECTOR_DECISIONS: Final = "loopguard.detector.decisions"
METRIC_DETECTIONS: Final = "loopguard.detections"
METRIC_LOOPS_DETECTED: Final = "loopguard.loops.detected"
METRIC_LOOPS_PREVENTED: Final = "loopguard.loops.prevented"
METRIC_WAIT_TOKENS: Final = "loopguard.wait.tokens"
METRIC_SAVED_TOKENS: Final = "loopguard.saved.tokens"
METRIC_SAVED_TIME: Final = "loopguard.saved.time"
METRIC_ESCALATIONS: Final = "loopguard.escalations"
METRIC_ESCALATION_WAITING: Final = "loopguard.escalation.waiting"
METRIC_CYCLES: Final = "loopguard.cycles"
METRIC_EVENTS: Final = "loopguard.events"
METRIC_VERDICTS: Final = "loopguard.verdicts"
METRIC_STEPS: Final = "loopguard.steps"
METRIC_TOOL_CALLS: Final = "loopguard.tool.calls"
METRIC_TOOL_RECOVERIES: Final = "loopguard.tool.recoveries"
METRIC_STRATEGY_SWITCHES: Final = "loopguard.strategy.switches"
METRIC_RUN_PHASE_DURATION: Final = "loopguard.run.phase.duration"
METRIC_RUN_RETRIES: Final = "loopguard.run.retries"
METRIC_RUN_DEGRADED_STEPS: Final = "loopguard.run.degraded_steps"
METRIC_RUN_COMPACTIONS: Final = "loopguard.run.compactions"
METRIC_RUN_MISSING_DEPENDENCIES: Final = "loopguard.run.missing_dependencies"
METRIC_RUN_CONTEXT_TOKENS: Final = "loopguard.run.context.tokens"
METRIC_FEEDBACK: Final = "loopguard.feedback"
METRIC_EXECUTION_CHOICES: Final = "loopguard.execution.choices"
METRIC_EXECUTION_ANSWERS: Final = "loopguard.execution.answers"
METRIC_ESTIMATES: Final = "loopguard.estimates"
METRIC_ESTIMATE_ERROR: Final = "loopguard.estimate.error"
METRIC_PROFILE_HIT_RATE: Final = "loopguard.profile.hit_rate"
METRIC_SESSION_ACTIVE: Final = "loopguard.session.active"
METRIC_SESSION_STALLED: Final = "loopguard.session.stalled"
METRIC_SESSION_PAUSED: Final = "loopguard.session.paused"
METRIC_SESSION_KNOWN: Final = "loopguard.session.known"
METRIC_SESSION_EVICTIONS: Final = "loopguard.session.evictions"
METRIC_STEP_OPEN: Final = "loopguard.step.open"
METRIC_BREAKER_OPEN: Final = "loopguard.breaker.open"
METRIC_RESOURCE_UTILIZATION: Final = "loopguard.resource.utilization"
METRIC_EVALUATION_DURATION: Final = "loopguard.evaluation.duration"
METRIC_STORE_OPERATION_DURATION: Final = "loopguard.store.operation.duration"
METRIC_STORE_STATUS: Final = "loopguard.store.status"
METRIC_STORE_QUEUE_SIZE: Final = "loopguard.store.queue.size"
METRIC_STORE_QUEUE_CAPACITY: Final = "loopguard.store.queue.capacity"
METRIC_STORE_WRITES: Final = "loopguard.store.writes"
METRIC_STORE_RETRIES: Final = "loopguard.store.retries"
METRIC_EXPORTER_EXPORTED: Final = "loopguard.exporter.exported"
METRIC_EXPORTER_SPANS: Final = "loopguard.exporter.spans"
METRIC_EXPORTER_QUEUE_SIZE: Final = "loopguard.exporter.queue.size"
METRIC_EXPORTER_QUEUE_CAPACITY: Final = "loopguard.exporter.queue.capacity"
METRIC_FAULTS: Final = "loopguard.faults"
METRIC_SERVER_REQUEST_DURATION: Final = "loopguard.server.request.duration"
METRIC_SERVER_REFUSALS: Final = "loopguard.server.refusals"
METRIC_SERVER_HELD_USAGE: Final = "loopguard.server.held.usage"
METRIC_SERVER_HELD_LIMIT: Final = "loopguard.server.held.limit"
METRIC_SERVER_JUDGING_DELAY: Final = "loopguard.server.judging.delay"
METRIC_SERVER_JUDGING_QUEUE_SIZE: Final = "loopguard.server.judging.queue.size"
METRIC_SERVER_JUDGING_QUEUE_CAPACITY: Final = "loopguard.server.judging.queue.capacity"
METRIC_SERVER_FORWARD_DURATION: Final = "loopguard.server.forward.duration"
METRIC_SERVER_FORWARD_QUEUE_SIZE: Final = "loopguard.server.forward.queue.size"
METRIC_SERVER_FORWARD_QUEUE_CAPACITY: Final = "loopguard.server.forward.queue.capacity"
METRIC_SERVER_LEASES: Final = "loopguard.server.leases"
METRIC_SERVER_READY: Final = "loopguard.server.ready"


def decided(action: object, message: object) -> str:
    """Description of the status of a span that a deny, pause or abort turns to ERROR."""
    return f"loopguard {action}: {message}"
