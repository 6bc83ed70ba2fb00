"""Every metric of the guard, as `metrics.txt` has it, and where it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, cast

from otel_loopguard import semconv
from otel_loopguard._util.bounded import UNKNOWN, CardinalityLimit
from otel_loopguard._util.tables import Row, read_table
from otel_loopguard.telemetry.events import AGENT

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Choice
    from otel_loopguard.core.admission import ResourceUse
    from otel_loopguard.resilience import ResilienceRegistry
    from otel_loopguard.sessions.active import ActiveSpan, ActiveSpans
    from otel_loopguard.sessions.registry import DecisionIndex, SessionRegistry
    from otel_loopguard.stores import Writer
    from otel_loopguard.telemetry.span_annotator import SpanAnnotator

OPERATION: Final = "db.operation.name"
SYSTEM: Final = "db.system.name"

_COMPONENT: Final = ("loopguard", "loopguard_span_exporter")
_STORE_STATES: Final = {
    "healthy": "available", "slow": "degraded", "full": "degraded", "read_only": "degraded",
    "down": "unavailable",
}  # fmt: skip

Kind = Literal["counter", "updowncounter", "gauge", "histogram"]
"""Names of instruments."""
Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""
Values = Mapping[Key, float]


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
    acceptance: Acceptance | None  # None before anybody asks, as of resources
    resources: Callable[[], Mapping[str, ResourceUse]] | None  # mean and peak use of the machine
    remedies: ResilienceRegistry | None
    writer: Writer | None
    waiting: Callable[[], int] | None = None  # open escalations; None in a replay
    agents: CardinalityLimit = CardinalityLimit(0)
    tools: CardinalityLimit = CardinalityLimit(0)


class Totals(NamedTuple):
    """Counters that parts of a guard keep themselves.

    Holds nothing that holds the guard: they are read once more when the guard is gone.
    """

    faults: InternalErrors
    acceptance: Acceptance | None
    annotator: SpanAnnotator
    writer: Writer | None


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
        zeros: For each attribute, the values that are reported as 0 before the first count, or
            the name of a set of them; empty for a metric without attributes; None: none are.
        read: Reads the present value, of a metric of what is the case now.
        total: Reads what a part of the guard counts itself, beside what is counted for metrics.
    """

    name: str
    type: Kind
    unit: str
    attributes: tuple[str, ...]
    about: str
    bounds: tuple[float, ...] = ()
    zeros: tuple[tuple[str, ...], ...] | None = None
    read: Callable[[State], Values] | None = None
    total: Callable[[Totals], Values] | None = None


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
            # The agent that a span names itself counts if no span above it names one.
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
    use: Mapping[str, ResourceUse] = {} if now.resources is None else now.resources()
    return {
        (name, statistic): getattr(use[name], statistic)
        for name in ("cpu", "memory", "io_wait")
        if name in use
        for statistic in ("mean", "peak")
    }


def _hit_rate(now: State) -> Values:
    """Share of estimates based on past calls, in percent; nothing before the first estimate."""
    estimates = Counter[str]() if now.acceptance is None else now.acceptance.estimates
    total = estimates.total()
    return {(): 100 * estimates["profile"] / total} if total else {}


def _of_asked(read: Callable[[Acceptance], Values]) -> Callable[[Totals], Values]:
    """Reads what was asked before calls; nothing before the first question."""
    return lambda kept: {} if kept.acceptance is None else read(kept.acceptance)


def _of_store(read: Callable[[Writer], Values]) -> Callable[[State | Totals], Values]:
    """Reads the writer of the store; nothing where there is none."""
    return lambda held: {} if held.writer is None else read(held.writer)


def _store_state(writer: Writer) -> Values:
    state = _STORE_STATES[writer.state]
    return {(each,): int(each == state) for each in dict.fromkeys(_STORE_STATES.values())}


def _writes(writer: Writer) -> Values:
    return {("",): writer.stored, ("dropped",): writer.dropped, ("refused",): writer.refused}


def _faults(kept: Totals) -> Values:
    """Faults by place and type; their kinds are `place:type`, or one word past their bound."""
    found: dict[Key, float] = {}
    for kind, count in tuple(kept.faults.counts.items()):
        place, _, error = kind.rpartition(":")
        found[place or kind, error if place else ""] = count
    return found


_READ: Final[Mapping[str, Callable[[State], Values]]] = {
    semconv.METRIC_ESCALATION_WAITING: (
        lambda now: {} if now.waiting is None else {(): now.waiting()}
    ),
    semconv.METRIC_FEEDBACK: lambda now: {
        ("confirmed",): now.decisions.feedback_counts[False],
        ("false_alarm",): now.decisions.feedback_counts[True],
    },
    semconv.METRIC_PROFILE_HIT_RATE: _hit_rate,
    semconv.METRIC_SESSION_ACTIVE: _by_agent,
    semconv.METRIC_SESSION_STALLED: lambda now: _by_agent(now, stalled=True),
    semconv.METRIC_SESSION_PAUSED: lambda now: {(): sum(one.flag.held for one in now.sessions.all)},
    semconv.METRIC_SESSION_KNOWN: lambda now: {(): len(now.sessions)},
    semconv.METRIC_STEP_OPEN: lambda now: {(): len(now.active)},
    semconv.METRIC_BREAKER_OPEN: _breakers,
    semconv.METRIC_RESOURCE_UTILIZATION: _resource_use,
    semconv.METRIC_STORE_STATUS: _of_store(_store_state),
    semconv.METRIC_STORE_QUEUE_SIZE: _of_store(lambda writer: {(): writer.waiting}),
    semconv.METRIC_STORE_QUEUE_CAPACITY: _of_store(lambda writer: {(): writer.capacity}),
    semconv.METRIC_EXPORTER_QUEUE_SIZE: (
        lambda now: {_COMPONENT: now.annotator.waiting} if now.annotator.written else {}
    ),
    semconv.METRIC_EXPORTER_QUEUE_CAPACITY: (
        lambda now: {_COMPONENT: now.annotator.capacity} if now.annotator.written else {}
    ),
}
_TOTAL: Final[Mapping[str, Callable[[Totals], Values]]] = {
    semconv.METRIC_EXECUTION_CHOICES: _of_asked(
        lambda asked: {(choice.value,): count for choice, count in asked.choices.items()}
    ),
    semconv.METRIC_EXECUTION_ANSWERS: _of_asked(lambda asked: dict(asked.answers)),
    semconv.METRIC_ESTIMATES: _of_asked(
        lambda asked: {(source,): count for source, count in asked.estimates.items()}
    ),
    semconv.METRIC_STORE_WRITES: _of_store(_writes),
    semconv.METRIC_STORE_RETRIES: _of_store(lambda writer: {(): writer.retries}),
    semconv.METRIC_EXPORTER_EXPORTED: lambda kept: {("queue_full",): kept.annotator.dropped},
    semconv.METRIC_FAULTS: _faults,
}


def metric_of(row: Row) -> Metric:
    """The metric of a row: instrument and unit, then `By`, `Buckets`, `Zeros` and `About`."""
    said = row.labelled("By", "Buckets", "Zeros", "About")
    kind, unit = cast("tuple[Kind, str]", said[""].split())
    zeros = (each.replace("-", "").split("|") for each in said.get("Zeros", "").split())
    return Metric(
        row.name,
        kind,
        unit,
        tuple(said.get("By", "").split()),
        said["About"],
        tuple(map(float, said.get("Buckets", "").split())),
        tuple(map(tuple, zeros)) if "Zeros" in said else None,
        _READ.get(row.name),
        _TOTAL.get(row.name),
    )


METRICS: Final = tuple(map(metric_of, read_table(__name__, "metrics.txt")))
"""All metrics."""
