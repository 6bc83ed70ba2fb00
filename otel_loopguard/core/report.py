"""Reports of sessions, and escalations to people with the possible answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from otel_loopguard._util.text import StrEnum, printable, truncate

if TYPE_CHECKING:
    from otel_loopguard.core.admission import Acceptance
    from otel_loopguard.core.decision import Action, Decision, Severity
    from otel_loopguard.core.progress import Phase


@dataclass(frozen=True, slots=True)
class AgentCycle:
    """One cycle of agents, as it stands.

    Attributes:
        id: Its number within the session, from 1.
        patterns: The rules that saw it (`pair_cycle`, `agent_cycle`, …), in the order in which they
            did.
        count: What was counted, the highest so far.
        found: Number of the step, within the session, at which it was found.
        last: Number of the step at which it was seen last.
        intervention: What was last called for: `break_cycle`, `inject_context` or `escalate_human`;
            None until something was.
        escalated: Whether it was put before a human.
        resolution: How it ended: `faded`, `user_turn`, `cleared` or `restored`; None while it goes
            on.
        agents: Names of its agents, sorted; the first 64.
        topic: Digest of the words that were handed on when it was found, with `digest_key`; None if
            there were none.
        severity: The highest so far.
        seconds: From the exchange that began it to the one that was seen last; 0 without times.
    """

    id: int
    patterns: tuple[str, ...]
    count: float
    found: int
    last: int
    intervention: str | None
    escalated: bool
    resolution: str | None
    agents: tuple[str, ...]
    topic: str | None
    severity: Severity
    seconds: float


Happening = Literal["retries", "degraded", "compactions", "missing_dependencies"]
"""Counters of a run, by the field of `RunMetrics`."""


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """The course of a session, for its orchestrator. It has no content of calls.

    Attributes:
        phases: Stretches of work of one agent, one after the other: name of the agent and seconds.
            The newest 48, oldest first; one that goes on is the last.
        retries: Further tries that `resilience.retrying` and `resilience.verified` made.
        degraded: Steps that were skipped or failed and got a degraded result.
        compactions: How often the context was compacted, as the application said or as the input
            tokens showed.
        looks: Looks again at what was not ready yet, and waits.
        look_tokens: Tokens of the model calls that asked for them; 0 where no span says them.
        look_cost: What these cost, in USD, as far as spans say it.
        missing_dependencies: Degraded results among those that `resilience.combined` took.
        context_tokens: Input tokens of the newest model call that says them; None if none does.
        peak_context_tokens: The most input tokens of one model call; None if none says them.
    """

    phases: tuple[Phase, ...] = ()
    retries: int = 0
    degraded: int = 0
    compactions: int = 0
    missing_dependencies: int = 0
    looks: int = 0
    look_tokens: int = 0
    look_cost: float = 0.0
    context_tokens: int | None = None
    peak_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolReport:
    """The use of one tool.

    Attributes:
        name: Its name.
        calls: Finished calls.
        errors: Those that failed.
    """

    name: str
    calls: int
    errors: int

    @property
    def error_rate(self) -> float:
        """Share of the calls that failed, 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0


@dataclass(frozen=True, slots=True)
class Report:
    """Counts and decisions of a session. It has no content of calls.

    `str()` has most of it as lines for people.

    Attributes:
        session: Key of the session.
        action: What its flag says now.
        should_stop: Whether the flag says pause or abort; in shadow mode, whether any decision did.
        highest_severity: The worst severity of all alerts; None without any.
        steps: Canonical steps of any kind.
        actions: Finished tool calls.
        successes: Those that did not fail.
        failures: Those that failed.
        recovered: Successes of a tool whose call before had failed.
        strategy_switches: Changes to another tool after a failure or an alert.
        escalations: Decisions that call for a person (`ask`, `pause`, `escalate_human`).
        model_calls: Model calls.
        changes: How often the world was changed, as far as can be told.
        milestones: Percent of the declared milestones that are done, 0 to 100; None if none was
            declared.
        news: Mean novelty of the tools' answers, 0 to 1; None if none was looked at.
        loops_detected: Different loops that a hint or more was given for.
        loops_prevented: Those that were denied, paused or aborted; 0 in shadow mode.
        alert_count: Decisions that are a hint or more.
        alerts: The newest of them, at most 10.
        alerts_by_type: Alerts by detector.
        notes_by_type: What was only noted on the trace (`allow`), by detector.
        cycles: Lengths of the cycles found, in calls, in the order of their discovery.
        tools: The most used tools, at most 10, by calls.
        tokens: Input and output tokens of model calls; None if no call said it.
        mean_interval_s: Mean seconds between the starts of tool calls; None without times.
        duration_s: Seconds from the first start to the last end; None without times.
        lacks: Tool calls that lacked something, by what it was: `args`, `outcome`.
        switched_off: Detectors that failed and were switched off in this session.
        confirmed: Decisions that feedback confirmed.
        false_alarms: Decisions that feedback called a false alarm.
        execution: How often the runtime asked before a call, and how the answers were taken; None
            if it did not.
        run: Phases, retries and the like, for whoever orchestrates.
    """

    session: str
    action: Action
    should_stop: bool
    highest_severity: Severity | None
    steps: int
    actions: int
    successes: int
    failures: int
    recovered: int
    strategy_switches: int
    escalations: int
    model_calls: int
    changes: int
    milestones: float | None
    news: float | None
    loops_detected: int
    loops_prevented: int
    alert_count: int
    alerts: tuple[Decision, ...]
    alerts_by_type: Mapping[str, int]
    notes_by_type: Mapping[str, int]
    cycles: tuple[int, ...]
    tools: tuple[ToolReport, ...]
    tokens: int | None
    mean_interval_s: float | None
    duration_s: float | None
    lacks: Mapping[str, int]
    switched_off: tuple[str, ...]
    confirmed: int
    false_alarms: int
    execution: Acceptance | None = None
    run: RunMetrics = field(default_factory=RunMetrics)

    @property
    def error_rate(self) -> float | None:
        """Share of the tool calls that failed, 0 to 1; None without any."""
        return self.failures / self.actions if self.actions else None

    @property
    def precision(self) -> float | None:
        """Share of the decisions with feedback that it confirmed, 0 to 1; None without any."""
        told = self.confirmed + self.false_alarms
        return self.confirmed / told if told else None

    def __str__(self) -> str:
        return "\n".join(map(printable, self._lines()))

    def _lines(self) -> Iterator[str]:
        """Lines for people, for whom steps count from 1."""
        yield f"session {self.session}: the flag is {self.action}"
        counts = {
            "steps": self.steps, "tool calls": self.actions, "failed": self.failures,
            "model calls": self.model_calls, "tokens": self.tokens, "loops": self.loops_detected,
            "alerts": self.alert_count,
        }  # fmt: skip
        yield "  " + ", ".join(f"{name} {n:,}" for name, n in counts.items() if n is not None)
        for tool in self.tools:
            yield f"  {tool.name}: calls {tool.calls:,}, failed {tool.errors:,}"
        yield from map(decision_line, self.alerts)


def decision_line(found: Decision) -> str:
    """A decision as an indented line for people, for whom steps count from 1."""
    rule = f"{found.detector}, {found.reason}"
    return f"  {found.action} at step {found.step + 1} ({rule}): {found.message}"


class Turn(NamedTuple):
    """Changes that a tool call made."""

    recovered: bool = False  # it succeeded, and the call of the tool before had failed
    switched: bool = False  # it is of another tool, after a failure or an alert


SAME: Final = Turn()


class Meaning(NamedTuple):
    """Counters that a decision is the first to increment."""

    found: bool = False  # of a loop that was not known before
    prevented: bool = False  # that stops its loop
    escalated: bool = False  # whether it calls for a person


class Spent(NamedTuple):
    """Totals of a session so far; 0 where unknown."""

    calls: int
    tokens: int
    seconds: float  # from its first start to its last end


@dataclass(frozen=True, slots=True)
class Act:
    """One tool call that is over.

    Attributes:
        name: Name of the tool.
        agent: Name of the agent that made it, if that is known.
        outcome: How it ended: `ok`, `failed`, or `unknown` where no outcome was captured.
        error_type: Type of its error; None without one.
        at: When it ended, nanoseconds since the epoch; 0 if that is not known.
        duration_s: Seconds that it took; None without times.
        content: Its arguments, 200 characters at most; None unless content is wanted.
    """

    name: str
    agent: str | None
    outcome: Literal["ok", "failed", "unknown"]
    error_type: str | None
    at: int
    duration_s: float | None
    content: str | None = None


def act_row(act: Act) -> dict[str, object]:
    """An action as one JSON object; what is unknown is null."""
    return {
        "tool": act.name,
        "agent": act.agent,
        "outcome": act.outcome,
        "error_type": act.error_type,
        "at": act.at or None,
        "duration_s": act.duration_s,
        **({} if act.content is None else {"content": act.content}),
    }


Topic = Literal["insight", "file", "pattern", "avoided"]
"""Kind of an entry: a key insight, an important file, a learned pattern, an avoided approach."""

_TOPICS: Final = get_args(Topic)
_CHARS: Final = 200
"""Characters of an entry: a sentence or a path."""
_SHOWN: Final = 3
"""Entries of each topic in a hint or a message: all four topics stay below a page."""


@dataclass(frozen=True, slots=True)
class Context:
    """The long-term context of a session, at one moment. It has content of calls.

    Attributes:
        insights: Key insights, the newest last.
        files: Important files, the most often written or named first.
        patterns: Learned patterns, the newest last.
        avoided: Approaches that were denied or that the application named, the newest last.
    """

    insights: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """A line for each topic that has entries, with three of them."""
        shown = {
            "Known so far": self.insights[-_SHOWN:],
            "Learned": self.patterns[-_SHOWN:],
            "Files changed most": self.files[:_SHOWN],
            "Tried in vain": self.avoided[-_SHOWN:],
        }
        return [f"{topic}: {'; '.join(entries)}" for topic, entries in shown.items() if entries]


class Memory:
    """Keeps the long-term context of one session. Not thread-safe: the guard's lock is held.

    Each kind has at most `entries` entries of 200 characters; the oldest is evicted first, of files
    the one named least.
    """

    __slots__ = ("_entries", "_known")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._known: dict[Topic, dict[str, int]] = {}

    def note(self, topic: Topic, text: str) -> None:
        """Keeps an entry; one that is known becomes the newest, and counts once more.

        Raises:
            ValueError: There is no such topic.
        """
        if topic not in _TOPICS:
            raise ValueError(f"topic must be one of {', '.join(_TOPICS)}, got {topic!r}")
        line = truncate(text, _CHARS)
        if not line or not self._entries:
            return
        known = self._known.setdefault(topic, {})
        known[line] = known.pop(line, 0) + 1
        if len(known) > self._entries:
            self._forget(topic, known, line)

    def adopt(self, other: Memory) -> None:
        """Adds the entries of another one."""
        for topic, known in other._known.items():
            for line in known:
                self.note(topic, line)

    def context(self) -> Context:
        """Snapshot of the entries."""
        files = self._known.get("file") or dict[str, int]()
        return Context(
            insights=tuple(self._known.get("insight", ())),
            files=tuple(sorted(files, key=lambda path: -files[path])),
            patterns=tuple(self._known.get("pattern", ())),
            avoided=tuple(self._known.get("avoided", ())),
        )

    def offer(self) -> str:
        """Text that a hint may add: up to three entries of each kind; may be empty."""
        return " ".join(f"{line}." for line in self.context().lines())

    @staticmethod
    def _forget(topic: Topic, known: dict[str, int], newest: str) -> None:
        if topic != "file":
            del known[next(iter(known))]
            return
        # Not the newest: a file that comes in late could never stay.
        del known[min((path for path in known if path != newest), key=known.__getitem__)]


_TOOLS: Final = 5
"""Most used tools in a message to people: it fits a screen of a phone."""


class Answer(StrEnum):
    """Answers to an escalation."""

    CONTINUE = "continue"
    ABORT = "abort"
    MODIFY_PLAN = "modify_plan"
    SKIP_TASK = "skip_task"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One thing that a person may do.

    Attributes:
        answer: The answer that does it.
        text: What it comes to, in a few words.
    """

    answer: Answer
    text: str


@dataclass(frozen=True, slots=True)
class Escalation:
    """An escalation of one session to people.

    It has no content of calls, unless that is wanted (`escalation_content`).

    Attributes:
        id: Its id, 16 hex digits.
        session: Key of the session.
        cause: Why it is put before people: `pause`, `ask`, `cycle`, `severity` or `application`.
        reason: What was measured, or what the application says, in a sentence.
        at: When, nanoseconds since the epoch.
        until: When the fallback follows, likewise.
        fallback: What follows then: an answer, or `wait`.
        held: Whether the session waits for the answer.
        decision: The decision behind it; None where the application asks.
        agent: Name of the agent that was seen last, if one was.
        task: Id of the task of a plan that was worked on last, if one was named.
        acts: The last actions, oldest first; `tuning.escalation.actions` (5) of them.
        suggestions: What people may do.
        report: What the session has come to; None where nothing was seen of it.
        process: Name of the process that it runs in.
        question: What to ask a person, as the decision says it.
        context: Long-term context of the session: insights, files, patterns, what was tried
            in vain. It has content of calls, for callbacks in this process.
        shows_content: Whether content may leave the process with it (`escalation_content`).
    """

    id: str
    session: str
    cause: str
    reason: str
    at: int
    until: int
    fallback: str
    held: bool
    decision: Decision | None = None
    agent: str | None = None
    task: str | None = None
    acts: tuple[Act, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    report: Report | None = None
    process: str = ""
    question: str | None = None
    context: Context | None = None
    shows_content: bool = False

    @property
    def trace_id(self) -> str | None:
        """Trace of the span concerned, 32 hex digits; None if there is none."""
        found = self.decision.trace_id if self.decision else 0
        return f"{found:032x}" if found else None

    @property
    def decision_id(self) -> str | None:
        """Id of the decision behind it, 16 hex digits."""
        return self.decision.id if self.decision else None

    def row(self) -> dict[str, Any]:
        """Returns it as a JSON object; times in nanoseconds since the epoch, null for unknown."""
        made: dict[str, object] = {
            "detection": self.decision and decision_row(self.decision, *_DETECTION),
            "actions": [act_row(act) for act in self.acts],
            "suggestions": [
                {"answer": one.answer.value, "text": one.text} for one in self.suggestions
            ],
            "context": asdict(self.context) if self.context and self.shows_content else None,
            "state": None if self.report is None else totals(self.report),
        }
        return {name: made[name] if name in made else getattr(self, name) for name in _ROW}


_ROW: Final = (
    "id", "session", "cause", "reason", "question", "at", "until", "fallback", "held",
    "decision_id", "trace_id", "detection", "agent", "task", "actions", "suggestions", "context",
    "state", "process",
)  # fmt: skip
"""Names of an escalation's row, in their order."""
_DETECTION: Final = (
    "action", "detector", "rule", "severity", "confidence", "count", "threshold", "tool", "step",
    "loop", "cause",
)  # fmt: skip


def totals(report: Report) -> dict[str, object]:
    """The figures of a report, without its lists; times in seconds, what is unknown null."""
    severity = report.highest_severity
    return {
        "action": report.action.value,
        "steps": report.steps,
        "actions": report.actions,
        "failures": report.failures,
        "model_calls": report.model_calls,
        "tokens": report.tokens,
        "changes": report.changes,
        "milestones": report.milestones,
        "loops_detected": report.loops_detected,
        "loops_prevented": report.loops_prevented,
        "alerts": report.alert_count,
        "alerts_by_type": dict(report.alerts_by_type),
        "highest_severity": None if severity is None else severity.value,
        "duration_s": report.duration_s,
        "tools": {tool.name: tool.calls for tool in report.tools[:_TOOLS]},
    }


def decision_row(decision: Decision, *names: str) -> dict[str, Any]:
    """Fields of a decision as JSON, under the names that they have in every row."""
    own: dict[str, object] = {
        "action": decision.action.value,
        "severity": decision.severity.value,
        "rule": decision.reason,
        "at": decision.time or None,
        "tool": decision.tool or None,
        "cause": None if decision.diagnosis is None else decision.diagnosis.cause,
    }
    return {name: own[name] if name in own else getattr(decision, name) for name in names}
