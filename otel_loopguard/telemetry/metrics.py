"""Every metric of the guard: its type, unit, attributes, when it changes, and where it is read.

Names, units and shapes follow OpenTelemetry's rules (general/naming.md, general/metrics.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol

from otel_loopguard import semconv
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Action, Choice
from otel_loopguard.telemetry.events import AGENT, TOOL

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.admission import ResourceUse
    from otel_loopguard.resilience import ResilienceRegistry
    from otel_loopguard.sessions import SessionRegistry
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.registry import DecisionIndex
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.span_annotator import SpanAnnotator

OPERATION: Final = "db.operation.name"
SYSTEM: Final = "db.system.name"
COMPONENT: Final = "otel.component.name"
COMPONENT_TYPE: Final = "otel.component.type"

UNKNOWN: Final = "unknown"
OTHER: Final = "other"

_SUFFIXES: Final = {"s": "_seconds", "%": "_percent", "By": "_bytes"}
_DETECTOR: Final = (semconv.DETECTOR_NAME, AGENT)
_COMPONENT: Final = ("loopguard", "loopguard_span_exporter")
_STORE_STATES: Final = {
    "healthy": "available", "slow": "degraded", "full": "degraded", "read_only": "degraded",
    "down": "unavailable",
}  # fmt: skip

Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""
Values = Mapping[Key, float]


class CardinalityLimit:
    """The first `most` different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.
    """

    LONGEST: Final = 200
    """Characters of a name. Names of agents and tools are far shorter; what is longer is content
    that an instrumentation put in their place."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def get(self, name: str | None) -> str:
        """The value of an attribute for a name: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[: self.LONGEST]
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = None
        return name

    @property
    def all(self) -> tuple[str, ...]:
        """The known names, in the order of their arrival."""
        return tuple(self._known)


class Acceptance(Protocol):
    """Counts of `execution.admit`: its choices, what users answered, sources of estimates."""

    # ruff: noqa: D102
    @property
    def choices(self) -> Mapping[Choice, int]: ...
    @property
    def answers(self) -> Mapping[tuple[str, str], int]: ...
    @property
    def estimates(self) -> Counter[str]: ...


class State(NamedTuple):
    """The parts of a guard that are read when metrics are collected, on the reader's thread."""

    active: ActiveSpans
    sessions: SessionRegistry
    decisions: DecisionIndex
    annotator: SpanAnnotator
    acceptance: Acceptance
    resources: Callable[[], Mapping[str, ResourceUse]]  # mean and peak use of the machine
    remedies: ResilienceRegistry | None
    writer: Writer | None
    capacity: int  # writes that may wait for the store
    waiting: Callable[[], int] | None = None  # open escalations; None in a replay
    agents: CardinalityLimit = CardinalityLimit(0)
    tools: CardinalityLimit = CardinalityLimit(0)


class Totals(NamedTuple):
    """Counters that parts of a guard keep themselves.

    Holds nothing that holds the guard: they are read once more when the guard is gone.
    """

    faults: InternalErrors
    acceptance: Acceptance
    annotator: SpanAnnotator
    writer: Writer | None


EACH_AGENT: Final = ("each agent",)
"""In `Metric.zeros`: the agents that were seen first, and `unknown`."""
SHADOW: Final = ("shadow",)
"""In `Metric.zeros`: whether the guard is in shadow mode."""


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
        zeros: For each attribute, the values that are reported as 0 before the first count, so
            that the first count is an increase; empty for a metric without attributes.
        read: Reads the present value, of a metric of what is the case now.
        total: Reads what a part of the guard counts itself, beside what is counted for metrics.
    """

    name: str
    type: Literal["counter", "updowncounter", "gauge", "histogram"]
    unit: str
    attributes: tuple[str, ...]
    about: str
    bounds: tuple[float, ...] = ()
    zeros: tuple[tuple[str, ...], ...] | None = None
    read: Callable[[State], Values] | None = None
    total: Callable[[Totals], Values] | None = None

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus, by OpenTelemetry's usual translation."""
        name = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        return f"{name}_total" if self.type == "counter" else name


def _by_agent(now: State, *, stalled: bool = False) -> Values:
    """Sessions with an open span, or with a stalled one, by agent; 0 for all other agents."""
    found: dict[object, str | None] = {}
    for opened in list(now.active):
        if stalled and not _is_stalled(opened):
            continue
        session = opened.session or now.sessions.of_trace(opened.view.trace_id)
        place = opened.view.trace_id if session is None else id(session)
        named = found.get(place) or opened.agent
        if not named:
            # Of a span that names an agent itself, where no span above it does.
            own = opened.view.attributes.get(AGENT)
            named = own if isinstance(own, str) else None
        found[place] = named
    counts = Counter(now.agents.get(agent) for agent in found.values())
    return {(agent,): counts[agent] for agent in {UNKNOWN, *now.agents.all, *counts}}


def _is_stalled(opened: ActiveSpan) -> bool:
    """True if the span, or the run that it begins, exceeds a limit; near one is not beyond it."""
    said = opened.said or ()
    run = opened.run
    if run is not None and run.opened is opened:
        # A run that waited for long and goes on is not idle any more.
        said = {*said, *(run.said - {"idle"} if run.busy else run.said)}
    return any(not code.endswith("_near") for code in said)


def _breakers(now: State) -> Values:
    """Breakers by tool or agent: 1 for each open one."""
    found: dict[Key, float] = {}
    for name, of, is_open in () if now.remedies is None else now.remedies.breakers.all:
        key = (now.tools.get(name), "") if of == "tool" else ("", now.agents.get(name))
        found[key] = found.get(key, 0) + is_open
    return found


def _resource_use(now: State) -> Values:
    use = now.resources()
    return {
        (name, statistic): getattr(use[name], statistic)
        for name in ("cpu", "memory", "io_wait")
        if name in use
        for statistic in ("mean", "peak")
    }


def _hit_rate(now: State) -> Values:
    """Share of estimates based on past calls, in percent; nothing before the first estimate."""
    estimates = now.acceptance.estimates
    total = estimates.total()
    return {(): 100 * estimates["profile"] / total} if total else {}


def _store_state(now: State) -> Values:
    if now.writer is None:
        return {}
    state = _STORE_STATES[now.writer.state]
    return {(each,): int(each == state) for each in dict.fromkeys(_STORE_STATES.values())}


def _writes(kept: Totals) -> Values:
    if kept.writer is None:
        return {}
    now = kept.writer.standing
    return {("",): now.stored, ("dropped",): now.dropped, ("refused",): now.refused}


def _faults(kept: Totals) -> Values:
    """Faults by place and type; their kinds are `place:type`, or one word past their bound."""
    found: dict[Key, float] = {}
    for kind, count in tuple(kept.faults.counts.items()):
        place, _, error = kind.rpartition(":")
        found[place or kind, error if place else ""] = count
    return found


_ACTIONS: Final = tuple(action.value for action in Action)

METRICS: Final = (
    Metric(
        semconv.METRIC_DECISIONS, "counter", "{decision}",
        (semconv.DECISION_ACTION, AGENT, semconv.DECISION_SHADOW),
        "Decisions, including notes (`allow`). `loopguard.decision.shadow` is set only if true.",
        zeros=(_ACTIONS, EACH_AGENT, SHADOW),
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
        zeros=(EACH_AGENT,),
    ),
    Metric(
        semconv.METRIC_LOOPS_PREVENTED, "counter", "{loop}", (AGENT,),
        "Distinct loops that were denied, paused or aborted; none in mode `shadow`.",
        zeros=(EACH_AGENT,),
    ),
    Metric(
        semconv.METRIC_WAIT_TOKENS, "counter", "{token}", (AGENT,),
        "Tokens of model calls that asked for a look at what was not ready yet.",
        zeros=(EACH_AGENT,),
    ),
    Metric(
        semconv.METRIC_SAVED_TOKENS, "counter", "{token}", (AGENT,),
        "Estimate of the tokens that stopped loops would still have used.",
        zeros=(EACH_AGENT,),
    ),
    Metric(
        semconv.METRIC_SAVED_TIME, "counter", "s", (AGENT,),
        "Estimate of the time that stopped loops would still have taken.",
        zeros=(EACH_AGENT,),
    ),
    Metric(
        semconv.METRIC_ESCALATIONS, "counter", "{escalation}", (semconv.DECISION_ACTION, AGENT),
        "Decisions that need a person: `ask`, `pause`, or the intervention `escalate_human`.",
        zeros=((Action.ASK.value, Action.PAUSE.value), (UNKNOWN,)),
    ),
    Metric(
        semconv.METRIC_ESCALATION_WAITING, "updowncounter", "{escalation}", (),
        "Escalations without an answer.",
        read=lambda now: {} if now.waiting is None else {(): now.waiting()},
    ),
    Metric(
        semconv.METRIC_CYCLES, "counter", "{cycle}", (semconv.CYCLE_STATE,),
        "Cycles of agents, by state: found, intervened, escalated, resolved.",
        zeros=(("found", "intervened", "escalated", "resolved"),),
    ),
    Metric(
        semconv.METRIC_EVENTS, "counter", "{event}", (semconv.ERROR_TYPE,),
        "Emitted log events; with `error.type` those that were lost: `queue_full`, or `failure` "
        "(the logger raised).",
        zeros=(("", "queue_full", "failure"),),
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
        zeros=((UNKNOWN,),),
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
        zeros=(),
    ),
    Metric(
        semconv.METRIC_RUN_DEGRADED_STEPS, "counter", "{step}", (),
        "Steps that were skipped or failed and got a degraded result.",
        zeros=(),
    ),
    Metric(
        semconv.METRIC_RUN_COMPACTIONS, "counter", "{compaction}", (),
        "Compactions of a context, by `control.compacted` or falling input tokens.",
        zeros=(),
    ),
    Metric(
        semconv.METRIC_RUN_MISSING_DEPENDENCIES, "counter", "{dependency}", (),
        "Degraded results that `resilience.combined` received.",
        zeros=(),
    ),
    Metric(
        semconv.METRIC_RUN_CONTEXT_TOKENS, "histogram", "{token}", (AGENT,),
        "Input tokens of a model call, where captured: the size of its context.",
        (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 200000, 500000, 1000000),
    ),
    Metric(
        semconv.METRIC_FEEDBACK, "updowncounter", "{decision}", (semconv.FEEDBACK_VERDICT,),
        "Decisions confirmed or called a false alarm; the last verdict counts.",
        read=lambda now: {
            ("confirmed",): now.decisions.feedback_counts[False],
            ("false_alarm",): now.decisions.feedback_counts[True],
        },
    ),
    Metric(
        semconv.METRIC_EXECUTION_CHOICES, "counter", "{choice}", (semconv.EXECUTION_CHOICE,),
        "Answers of `execution.admit`.",
        zeros=(tuple(choice.value for choice in Choice),),
        total=lambda kept: {
            (choice.value,): count for choice, count in kept.acceptance.choices.items()
        },
    ),
    Metric(
        semconv.METRIC_EXECUTION_ANSWERS, "updowncounter", "{answer}",
        (semconv.EXECUTION_CHOICE, semconv.EXECUTION_ANSWER),
        "Users' reactions to them; `loopguard.execution.choice` is the advised choice.",
        total=lambda kept: dict(kept.acceptance.answers),
    ),
    Metric(
        semconv.METRIC_ESTIMATES, "counter", "{estimate}", (semconv.ESTIMATE_SOURCE,),
        "Estimates used by `execution.admit`, one per tool, by source.",
        total=lambda kept: {(source,): n for source, n in kept.acceptance.estimates.items()},
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
        read=_hit_rate,
    ),
    Metric(
        semconv.METRIC_SESSION_ACTIVE, "updowncounter", "{session}", (AGENT,),
        "Sessions with an open span, including traces without a session yet.",
        read=_by_agent,
    ),
    Metric(
        semconv.METRIC_SESSION_STALLED, "updowncounter", "{session}", (AGENT,),
        "Active sessions in which something currently exceeds its limit.",
        read=lambda now: _by_agent(now, stalled=True),
    ),
    Metric(
        semconv.METRIC_SESSION_PAUSED, "updowncounter", "{session}", (),
        "Sessions whose flag is `pause`: their gates wait.",
        read=lambda now: {(): sum(one.flag.held for one in now.sessions.all)},
    ),
    Metric(
        semconv.METRIC_SESSION_KNOWN, "updowncounter", "{session}", (),
        "Sessions in memory, including idle ones.",
        read=lambda now: {(): len(now.sessions)},
    ),
    Metric(
        semconv.METRIC_SESSION_EVICTIONS, "counter", "{session}", (),
        "Sessions that were forgotten because there were `max_sessions`. Without a store no loop "
        "is found in those that go on.",
        zeros=(),
    ),
    Metric(
        semconv.METRIC_STEP_OPEN, "updowncounter", "{step}", (),
        "Open spans being watched.",
        read=lambda now: {(): len(now.active)},
    ),
    Metric(
        semconv.METRIC_BREAKER_OPEN, "updowncounter", "{breaker}", (TOOL, AGENT),
        "1 for each open breaker, by tool or agent; 0 once it closes.",
        read=_breakers,
    ),
    Metric(
        semconv.METRIC_RESOURCE_UTILIZATION, "gauge", "%",
        (semconv.RESOURCE_NAME, semconv.RESOURCE_STATISTIC),
        "Mean and peak use of the machine over the newest samples; only while `execution.admit` is "
        "used.",
        read=_resource_use,
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
        read=_store_state,
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_SIZE, "updowncounter", "{write}", (),
        "Writes waiting for the store.",
        read=lambda now: {} if now.writer is None else {(): now.writer.standing.waiting},
    ),
    Metric(
        semconv.METRIC_STORE_QUEUE_CAPACITY, "updowncounter", "{write}", (),
        "Writes that may wait: `tuning.stores.queue`.",
        read=lambda now: {} if now.writer is None else {(): now.capacity},
    ),
    Metric(
        semconv.METRIC_STORE_WRITES, "counter", "{write}", (semconv.ERROR_TYPE,),
        "Acknowledged writes; with `error.type` lost ones: `dropped` (queue full, or shutdown) or "
        "`refused` (can never be stored).",
        total=_writes,
    ),
    Metric(
        semconv.METRIC_STORE_RETRIES, "counter", "{retry}", (),
        "Repeated attempts to write.",
        total=lambda kept: {} if kept.writer is None else {(): kept.writer.standing.retries},
    ),
    Metric(
        semconv.METRIC_EXPORTER_EXPORTED, "counter", "{decision}", (semconv.ERROR_TYPE,),
        "Ended spans with a decision that `LoopGuardSpanExporter` passed on; with `error.type` "
        "lost ones: `failure` (reported by the wrapped exporter), `raised` (its exception) or "
        "`queue_full` (evicted while waiting for an exporter).",
        zeros=(("", "queue_full", "failure", "raised"),),
        total=lambda kept: {("queue_full",): kept.annotator.dropped},
    ),
    Metric(
        semconv.METRIC_EXPORTER_SPANS, "counter", "{span}", (semconv.ERROR_TYPE,),
        "All spans that `LoopGuardSpanExporter` passed on, in the same way.",
        zeros=(("", "failure", "raised"),),
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_SIZE, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Decisions waiting for their span to be exported; only once the exporter was used.",
        read=lambda now: {_COMPONENT: now.annotator.waiting} if now.annotator.written else {},
    ),
    Metric(
        semconv.METRIC_EXPORTER_QUEUE_CAPACITY, "updowncounter", "{decision}",
        (COMPONENT, COMPONENT_TYPE),
        "Longest such queue: 4096.",
        read=lambda now: {_COMPONENT: now.annotator.capacity} if now.annotator.written else {},
    ),
    Metric(
        semconv.METRIC_FAULTS, "counter", "{fault}", (semconv.FAULT_PLACE, semconv.ERROR_TYPE),
        "Suppressed exceptions of the guard's own code or of code given to it.",
        total=_faults,
    ),
)  # fmt: skip
"""All metrics."""
