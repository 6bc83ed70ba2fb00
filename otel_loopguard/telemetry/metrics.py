"""Every metric of the guard: its type, unit, attributes, when it changes; and what is counted.

Names, units and shapes follow OpenTelemetry's rules (general/naming.md, general/metrics.md). Counts
are plain tables of bounded size; nothing of an SDK runs in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from otel_loopguard import semconv
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Kind

if TYPE_CHECKING:
    from otel_loopguard.core import Step

AGENT: Final = "gen_ai.agent.name"
TOOL: Final = "gen_ai.tool.name"
OPERATION: Final = "db.operation.name"
SYSTEM: Final = "db.system.name"
COMPONENT: Final = "otel.component.name"
COMPONENT_TYPE: Final = "otel.component.type"

_SUFFIXES: Final = {"s": "_seconds", "%": "_percent", "By": "_bytes"}
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
        (semconv.DECISION_ACTION, AGENT, semconv.DECISION_SHADOW),
        "Decisions, including notes (`allow`). `loopguard.decision.shadow` is set only if true.",
    ),
    Metric(
        semconv.METRIC_DETECTOR_DECISIONS, "counter", "{decision}",
        (semconv.DECISION_ACTION, *_DETECTOR, semconv.DECISION_SHADOW),
        "The same by detector. A series begins with its first decision, at 1 and not at 0.",
    ),
    Metric(
        semconv.METRIC_DETECTIONS, "counter", "{detection}", _DETECTOR,
        "Detections, whether or not a decision followed.",
    ),
    Metric(
        semconv.METRIC_LOOPS_DETECTED, "counter", "{loop}", (AGENT,),
        "Distinct loops that led to a hint or more; each counts once per session.",
    ),
    Metric(
        semconv.METRIC_LOOPS_PREVENTED, "counter", "{loop}", (AGENT,),
        "Distinct loops that were denied, paused or aborted; none in mode `shadow`.",
    ),
    Metric(
        semconv.METRIC_WAIT_TOKENS, "counter", "{token}", (AGENT,),
        "Tokens of model calls that asked for a look at what was not ready yet.",
    ),
    Metric(
        semconv.METRIC_SAVED_TOKENS, "counter", "{token}", (AGENT,),
        "Estimate of the tokens that stopped loops would still have used.",
    ),
    Metric(
        semconv.METRIC_SAVED_TIME, "counter", "s", (AGENT,),
        "Estimate of the time that stopped loops would still have taken.",
    ),
    Metric(
        semconv.METRIC_ESCALATIONS, "counter", "{escalation}", (semconv.DECISION_ACTION, AGENT),
        "Decisions that need a person: `ask`, `pause`, or the intervention `escalate_human`.",
    ),
    Metric(
        semconv.METRIC_ESCALATION_WAITING, "updowncounter", "{escalation}", (),
        "Escalations without an answer.",
    ),
    Metric(
        semconv.METRIC_CYCLES, "counter", "{cycle}", (semconv.CYCLE_STATE,),
        "Cycles of agents, by state: found, intervened, escalated, resolved.",
    ),
    Metric(
        semconv.METRIC_EVENTS, "counter", "{event}", (semconv.ERROR_TYPE,),
        "Emitted log events; with `error.type` those that were lost: `queue_full`, or `failure` "
        "(the logger raised).",
    ),
    Metric(
        semconv.METRIC_VERDICTS, "counter", "{verdict}",
        (semconv.VERDICT_BACKEND, semconv.ERROR_TYPE),
        "Verdicts written to a backend of the setting `verdicts`; with `error.type` those that "
        "were lost: `queue_full`, or `failure` (refused, or no attempt left).",
    ),
    Metric(
        semconv.METRIC_STEPS, "counter", "{step}", (semconv.STEP_KIND, AGENT),
        "Steps read from spans, each counted once.",
    ),
    Metric(
        semconv.METRIC_TOOL_CALLS, "counter", "{call}", (TOOL, semconv.CALL_OUTCOME),
        "Finished tool calls.",
    ),
    Metric(
        semconv.METRIC_TOOL_RECOVERIES, "counter", "{recovery}", (TOOL,),
        "Successes of a tool whose previous call in the session had failed.",
    ),
    Metric(
        semconv.METRIC_STRATEGY_SWITCHES, "counter", "{switch}", (AGENT,),
        "Changes to another tool after a failure or an alert.",
    ),
    Metric(
        semconv.METRIC_RUN_PHASE_DURATION, "histogram", "s", (AGENT,),
        "Duration of a phase, a stretch of work of one agent, when it ends: from its first start "
        "to its last end. Needs times on spans.",
        (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200),
    ),
    Metric(
        semconv.METRIC_RUN_RETRIES, "counter", "{retry}", (),
        "Further tries by `resilience.retrying` and `resilience.verified`.",
    ),
    Metric(
        semconv.METRIC_RUN_DEGRADED_STEPS, "counter", "{step}", (),
        "Steps that were skipped or failed and got a degraded result.",
    ),
    Metric(
        semconv.METRIC_RUN_COMPACTIONS, "counter", "{compaction}", (),
        "Compactions of a context, by `control.compacted` or falling input tokens.",
    ),
    Metric(
        semconv.METRIC_RUN_MISSING_DEPENDENCIES, "counter", "{dependency}", (),
        "Degraded results that `resilience.combined` received.",
    ),
    Metric(
        semconv.METRIC_RUN_CONTEXT_TOKENS, "histogram", "{token}", (AGENT,),
        "Input tokens of a model call, where captured: the size of its context.",
        (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 200000, 500000, 1000000),
    ),
    Metric(
        semconv.METRIC_FEEDBACK, "updowncounter", "{decision}", (semconv.FEEDBACK_VERDICT,),
        "Decisions confirmed or called a false alarm; the last verdict counts.",
    ),
    Metric(
        semconv.METRIC_EXECUTION_CHOICES, "counter", "{choice}", (semconv.EXECUTION_CHOICE,),
        "Answers of `execution.admit`.",
    ),
    Metric(
        semconv.METRIC_EXECUTION_ANSWERS, "updowncounter", "{answer}",
        (semconv.EXECUTION_CHOICE, semconv.EXECUTION_ANSWER),
        "Users' reactions to them; `loopguard.execution.choice` is the advised choice.",
    ),
    Metric(
        semconv.METRIC_ESTIMATES, "counter", "{estimate}", (semconv.ESTIMATE_SOURCE,),
        "Estimates used by `execution.admit`, one per tool, by source.",
    ),
    Metric(
        semconv.METRIC_ESTIMATE_ERROR, "histogram", "%", (),
        "Difference between estimate and duration of a successful call, in percent of the "
        "duration, at most 1000; of each tool the newest 24 calls since the last reading. "
        "Estimates cover nine of ten calls, so most calls are faster.",
        (5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000),
    ),
    Metric(
        semconv.METRIC_PROFILE_HIT_RATE, "gauge", "%", (),
        "Share of estimates based on past calls (`profile`), since the start.",
    ),
    Metric(
        semconv.METRIC_SESSION_ACTIVE, "updowncounter", "{session}", (AGENT,),
        "Sessions with an open span, including traces without a session yet.",
    ),
    Metric(
        semconv.METRIC_SESSION_STALLED, "updowncounter", "{session}", (AGENT,),
        "Active sessions in which something currently exceeds its limit.",
    ),
    Metric(
        semconv.METRIC_SESSION_PAUSED, "updowncounter", "{session}", (),
        "Sessions whose flag is `pause`: their gates wait.",
    ),
    Metric(
        semconv.METRIC_SESSION_KNOWN, "updowncounter", "{session}", (),
        "Sessions in memory, including idle ones.",
    ),
    Metric(
        semconv.METRIC_SESSION_EVICTIONS, "counter", "{session}", (),
        "Sessions that were forgotten because there were `max_sessions`. Without a store no loop "
        "is found in those that go on.",
    ),
    Metric(
        semconv.METRIC_STEP_OPEN, "updowncounter", "{step}", (),
        "Open spans being watched.",
    ),
    Metric(
        semconv.METRIC_BREAKER_OPEN, "updowncounter", "{breaker}", (TOOL, AGENT),
        "1 for each open breaker, by tool or agent; 0 once it closes.",
    ),
    Metric(
        semconv.METRIC_RESOURCE_UTILIZATION, "gauge", "%",
        (semconv.RESOURCE_NAME, semconv.RESOURCE_STATISTIC),
        "Mean and peak use of the machine over the newest samples; only while `execution.admit` is "
        "used.",
    ),
    Metric(
        semconv.METRIC_EVALUATION_DURATION, "histogram", "s", (),
        "Time the guard takes to read and judge an ended span, on whichever thread. Sampled.",
        (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1),
    ),
    Metric(
        semconv.METRIC_STORE_OPERATION_DURATION, "histogram", "s",
        (SYSTEM, OPERATION, semconv.ERROR_TYPE),
        "Duration of a store operation, answered or failed.",
        (5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
    ),
    Metric(
        semconv.METRIC_STORE_STATUS, "updowncounter", "{store}", (semconv.STORE_STATE,),
        "1 for the current state of the store, 0 for the others; only with a store.",
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_SIZE, "updowncounter", "{write}", (),
        "Writes waiting for the store.",
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_CAPACITY, "updowncounter", "{write}", (),
        "Writes that may wait: `tuning.stores.queue`.",
    ),
    Metric(
        semconv.METRIC_STORE_WRITES, "counter", "{write}", (semconv.ERROR_TYPE,),
        "Acknowledged writes; with `error.type` lost ones: `dropped` (queue full, or shutdown) or "
        "`refused` (can never be stored).",
    ),
    Metric(
        semconv.METRIC_STORE_RETRIES, "counter", "{retry}", (),
        "Repeated attempts to write.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_EXPORTED, "counter", "{decision}", (semconv.ERROR_TYPE,),
        "Ended spans with a decision that `LoopGuardSpanExporter` passed on; with `error.type` "
        "lost ones: `failure` (reported by the wrapped exporter), `raised` (its exception) or "
        "`queue_full` (evicted while waiting for an exporter).",
    ),
    Metric(
        semconv.METRIC_EXPORTER_SPANS, "counter", "{span}", (semconv.ERROR_TYPE,),
        "All spans that `LoopGuardSpanExporter` passed on, in the same way.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_SIZE, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Decisions waiting for their span to be exported; only once the exporter was used.",
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_CAPACITY, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Longest such queue: 4096.",
    ),
    Metric(
        semconv.METRIC_FAULTS, "counter", "{fault}", (semconv.FAULT_PLACE, semconv.ERROR_TYPE),
        "Suppressed exceptions of the guard's own code or of code given to it.",
    ),
)  # fmt: skip
"""All metrics."""


UNKNOWN: Final = "unknown"
OTHER: Final = "other"
_MAX_NAME: Final = 200
_MAX_KEYS: Final = 1800
"""Different attributes of one metric; the SDK gives up its own order past 2000."""
_TOOL: Final = Kind.TOOL
_OF_STEPS: Final = (semconv.METRIC_STEPS, semconv.METRIC_TOOL_CALLS)

Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""
Values = Mapping[Key, float]
_Kind = tuple[Kind, str, str, bool]
"""Kind, agent, tool and failure of steps that are counted together."""


class CardinalityLimit:
    """The first so many different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def get(self, name: str | None) -> str:
        """A name as it goes on a metric: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[:_MAX_NAME]
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = None
        return name

    @property
    def all(self) -> tuple[str, ...]:
        """The names that are known, in the order in which they came."""
        return tuple(self._known)


class Counts:
    """Counts of one guard, or of guards that are gone. Thread-safe.

    Past 1800 different attributes of a metric, what is new is counted as `other` throughout.

    Args:
        agents: Names of agents on metrics of steps.
        tools: Names of tools on them.
    """

    def __init__(
        self, agents: CardinalityLimit | None = None, tools: CardinalityLimit | None = None
    ) -> None:
        self._agents = agents or CardinalityLimit(0)
        self._tools = tools or CardinalityLimit(0)
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted is the parent's."""
        # Re-entrant: a finalizer may end a span, and be counted, while it is held.
        self._lock = new_lock()
        self._counts: dict[str, dict[Key, float]] = {}
        # As many different ones as there are names of agents and tools on metrics.
        self._steps: dict[_Kind, list[int]] = {}
        # The same, by all that the newest steps said: a step finds its count at once.
        self._found: dict[_Kind, list[int]] = {}

    def step(self, step: Step, agent: str | None) -> None:
        """Counts a step of an agent."""
        kind, name = step.kind, step.name or ""
        said = (kind, (agent or "")[:_MAX_NAME], name[:_MAX_NAME], step.error)
        with self._lock:
            count = self._found.get(said) or self._find(said)
            count[0] += 1

    def _find(self, said: _Kind) -> list[int]:
        """The count of steps of which this is said. The lock is held."""
        kind, agent, name, error = said
        tool = self._tools.get(name) if kind is _TOOL else ""
        count = self._steps.setdefault((kind, self._agents.get(agent), tool, error), [0])
        if len(self._found) >= _MAX_KEYS:
            self._found.clear()
        self._found[said] = count
        return count

    def add(self, metric: str, key: Key, amount: float = 1) -> None:
        """Counts."""
        with self._lock:
            counts = self._counts.get(metric)
            if counts is None:
                counts = self._counts[metric] = {}
            if key not in counts and len(counts) >= _MAX_KEYS:
                key = tuple(OTHER if value else value for value in key)
            counts[key] = counts.get(key, 0) + amount

    def get(self, metric: str) -> Values:
        """What was counted of a metric, as it is now."""
        with self._lock:
            found: dict[Key, float] = dict(self._counts.get(metric, {}))
            steps = self._steps if metric in _OF_STEPS else {}
            counted = [(key, count) for key, (count,) in steps.items()]
        for (kind, agent, tool, error), count in counted:
            key = (kind.value, agent)
            if metric == semconv.METRIC_TOOL_CALLS:
                if kind is not _TOOL:
                    continue
                key = (tool, "failure" if error else "success")
            found[key] = found.get(key, 0) + count
        return found
