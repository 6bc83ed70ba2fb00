"""Every metric of the guard: its type, unit, attributes, and when it changes.

Names, units and shapes follow OpenTelemetry's rules (general/naming.md, general/metrics.md).

Source: FEATURES A10, C15, E14, O3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from otel_loopguard import semconv

AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"
OPERATION: Final = "db.operation.name"
SYSTEM: Final = "db.system.name"
COMPONENT: Final = "otel.component.name"
COMPONENT_TYPE: Final = "otel.component.type"

_SUFFIXES: Final = {"s": "_seconds", "%": "_percent"}
_DETECTOR: Final = (semconv.DETECTOR_NAME, AGENT)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name.
        type: `counter` only goes up; `updowncounter` is added up over processes; `gauge` is not;
            `histogram`.
        unit: Its unit, in UCUM.
        attributes: Names of its attributes.
        about: When it changes, and what it means.
        bounds: Upper bounds of the buckets of a histogram.
    """

    name: str
    type: Literal["counter", "updowncounter", "gauge", "histogram"]
    unit: str
    attributes: tuple[str, ...]
    about: str
    bounds: tuple[float, ...] = ()

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus, by OpenTelemetry's usual translation."""
        name = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        return f"{name}_total" if self.type == "counter" else name


METRICS: Final = (
    Metric(
        semconv.METRIC_DECISIONS, "counter", "{decision}",
        (semconv.DECISION_ACTION, *_DETECTOR, semconv.DECISION_SHADOW),
        "Decisions, notes (`allow`) included. `loopguard.decision.shadow` only where it is true.",
    ),
    Metric(
        semconv.METRIC_DETECTIONS, "counter", "{detection}", _DETECTOR,
        "What detectors found, whether or not a decision followed.",
    ),
    Metric(
        semconv.METRIC_LOOPS_DETECTED, "counter", "{loop}", _DETECTOR,
        "Different loops that a hint or more was given for; each counts once in its session.",
    ),
    Metric(
        semconv.METRIC_LOOPS_PREVENTED, "counter", "{loop}", _DETECTOR,
        "Those that were denied, paused or aborted; never in mode `shadow`.",
    ),
    Metric(
        semconv.METRIC_SAVED_TOKENS, "counter", "{token}", _DETECTOR,
        "Estimate: tokens that the rest of a stopped loop would have taken.",
    ),
    Metric(
        semconv.METRIC_SAVED_TIME, "counter", "s", _DETECTOR,
        "Estimate: time that the rest of a stopped loop would have taken.",
    ),
    Metric(
        semconv.METRIC_ESCALATIONS, "counter", "{escalation}", (semconv.DECISION_ACTION, AGENT),
        "Decisions that call for a person: `ask`, `pause`, or the intervention `escalate_human`.",
    ),
    Metric(
        semconv.METRIC_ESCALATION_WAITING, "updowncounter", "{escalation}", (),
        "What is before people now and has no answer yet.",
    ),
    Metric(
        semconv.METRIC_CYCLES, "counter", "{cycle}", (semconv.CYCLE_STATE,),
        "Cycles of agents, as they were found, intervened in, put before people, or over.",
    ),
    Metric(
        semconv.METRIC_EVENTS, "counter", "{event}", (semconv.ERROR_TYPE,),
        "Log events that were emitted; with `error.type` those that were not: `queue_full`, or "
        "`failure` (the logger threw).",
    ),
    Metric(
        semconv.METRIC_STEPS, "counter", "{step}", (semconv.STEP_KIND, AGENT),
        "Canonical steps: what was read off spans, each once.",
    ),
    Metric(
        semconv.METRIC_TOOL_CALLS, "counter", "{call}", (TOOL, semconv.CALL_OUTCOME),
        "Finished tool calls.",
    ),
    Metric(
        semconv.METRIC_TOOL_RECOVERIES, "counter", "{recovery}", (TOOL,),
        "Successes of a tool whose call before, in the same session, had failed.",
    ),
    Metric(
        semconv.METRIC_STRATEGY_SWITCHES, "counter", "{switch}", (AGENT,),
        "Changes to another tool after a failure or an alert.",
    ),
    Metric(
        semconv.METRIC_RUN_PHASE_DURATION, "histogram", "s", (AGENT,),
        "A phase of a run is over, a stretch of work of one agent: from the start of its first "
        "step to the newest end in it. Not without times.",
        (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200),
    ),
    Metric(
        semconv.METRIC_RUN_RETRIES, "counter", "{retry}", (),
        "Further tries that `resilience.retrying` and `resilience.verified` make.",
    ),
    Metric(
        semconv.METRIC_RUN_DEGRADED_STEPS, "counter", "{step}", (),
        "Steps that were skipped or failed and got a degraded result.",
    ),
    Metric(
        semconv.METRIC_RUN_COMPACTIONS, "counter", "{compaction}", (),
        "Compactions of a context, told by `control.compacted` or by the input tokens.",
    ),
    Metric(
        semconv.METRIC_RUN_MISSING_DEPENDENCIES, "counter", "{dependency}", (),
        "Degraded results among those that `resilience.combined` took.",
    ),
    Metric(
        semconv.METRIC_RUN_CONTEXT_TOKENS, "histogram", "{token}", (AGENT,),
        "Input tokens of a model call that says them: the size of its context.",
        (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 200000, 500000, 1000000),
    ),
    Metric(
        semconv.METRIC_FEEDBACK, "updowncounter", "{decision}", (semconv.FEEDBACK_VERDICT,),
        "Decisions that people called right or a false alarm; who speaks last is right.",
    ),
    Metric(
        semconv.METRIC_EXECUTION_CHOICES, "counter", "{choice}", (semconv.EXECUTION_CHOICE,),
        "Answers of `execution.admit`.",
    ),
    Metric(
        semconv.METRIC_EXECUTION_ANSWERS, "updowncounter", "{answer}",
        (semconv.EXECUTION_CHOICE, semconv.EXECUTION_ANSWER),
        "How users took them; `loopguard.execution.choice` is what was advised.",
    ),
    Metric(
        semconv.METRIC_ESTIMATES, "counter", "{estimate}", (semconv.ESTIMATE_SOURCE,),
        "Estimates that `execution.admit` used, one for each tool, by what they rest on.",
    ),
    Metric(
        semconv.METRIC_ESTIMATE_ERROR, "histogram", "%", (),
        "A call of a tool with a profile succeeded: how far its estimate was from what it took, in "
        "percent of that, at most 1000. Sampled. The estimate is what nine of ten calls stay "
        "within, so most calls are below it.",
        (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000),
    ),
    Metric(
        semconv.METRIC_PROFILE_HIT_RATE, "gauge", "%", (),
        "Share of those estimates that rest on past calls (`profile`, `blend`), since the start.",
    ),
    Metric(
        semconv.METRIC_SESSION_ACTIVE, "updowncounter", "{session}", (AGENT,),
        "Sessions, or traces of no session yet, with an open span.",
    ),
    Metric(
        semconv.METRIC_SESSION_STALLED, "updowncounter", "{session}", (AGENT,),
        "Those of them in which something runs past its limit now.",
    ),
    Metric(
        semconv.METRIC_SESSION_PAUSED, "updowncounter", "{session}", (),
        "Sessions whose flag says `pause`: their gates wait.",
    ),
    Metric(
        semconv.METRIC_SESSION_KNOWN, "updowncounter", "{session}", (),
        "Sessions in memory, idle ones too.",
    ),
    Metric(
        semconv.METRIC_STEP_OPEN, "updowncounter", "{step}", (),
        "Open spans that are watched.",
    ),
    Metric(
        semconv.METRIC_BREAKER_OPEN, "updowncounter", "{breaker}", (TOOL, AGENT),
        "1 for each breaker that is open, by its tool or its agent; 0 once it is not.",
    ),
    Metric(
        semconv.METRIC_RESOURCE_UTILIZATION, "gauge", "%",
        (semconv.RESOURCE_NAME, semconv.RESOURCE_STATISTIC),
        "Mean and peak use of the machine over the newest samples; only while `execution.admit` is "
        "used, which is what they are taken for.",
    ),
    Metric(
        semconv.METRIC_EVALUATION_DURATION, "histogram", "s", (),
        "What the guard took for an ended span, on the agent's thread. Sampled.",
        (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1),
    ),
    Metric(
        semconv.METRIC_STORE_OPERATION_DURATION, "histogram", "s",
        (SYSTEM, OPERATION, semconv.ERROR_TYPE),
        "A call of the store was answered, or failed.",
        (5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    ),
    Metric(
        semconv.METRIC_STORE_STATUS, "updowncounter", "{store}", (semconv.STORE_STATE,),
        "1 for the state that the store is in, 0 for the others; only where there is a store.",
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_SIZE, "updowncounter", "{write}", (),
        "Writes that wait for the store.",
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_CAPACITY, "updowncounter", "{write}", (),
        "Writes that may wait: `tuning.stores.queue`.",
    ),
    Metric(
        semconv.METRIC_STORE_WRITES, "counter", "{write}", (semconv.ERROR_TYPE,),
        "Writes that the store acknowledged; with `error.type` those that are lost: `dropped` (no "
        "room, or no time at the end), `refused` (they can never be stored).",
    ),
    Metric(
        semconv.METRIC_STORE_RETRIES, "counter", "{retry}", (),
        "Attempts that had to be made again.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_EXPORTED, "counter", "{decision}", (semconv.ERROR_TYPE,),
        "Ended spans with a decision that `LoopGuardSpanExporter` handed on; with `error.type` "
        "those that are lost: `failure` (the exporter behind it said so), `raised` (it threw), or "
        "`queue_full` (they waited for an exporter, and others came).",
    ),
    Metric(
        semconv.METRIC_EXPORTER_SPANS, "counter", "{span}", (semconv.ERROR_TYPE,),
        "All spans that it handed on, in the same way.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_SIZE, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Decisions that wait for their span to be exported; only once such an exporter has worked.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_CAPACITY, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Decisions that may wait: 4096.",
    ),
    Metric(
        semconv.METRIC_FAULTS, "counter", "{fault}", (semconv.FAULT_PLACE, semconv.ERROR_TYPE),
        "Exceptions of the guard's own code, or of code that was given to it, that were swallowed.",
    ),
)  # fmt: skip
"""All metrics, in the order in which people ask for them."""
