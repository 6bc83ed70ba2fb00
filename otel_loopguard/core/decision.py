"""A decision, its detection and diagnosis, and how a stopped run ended."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, NamedTuple

from otel_loopguard._util.text import StrEnum

Risk = Literal["low", "medium", "high"]
"""The risk of a fix: `low` only looks or waits, `medium` can be taken back, `high` cannot."""


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing that may help against an error.

    Attributes:
        text: What to do, as an instruction.
        risk: What it may break.
    """

    text: str
    risk: Risk = "low"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of one kind of error.

    Attributes:
        signature: Short code of the kind of error (`not_found`, `permission`, …).
        cause: Why such errors happen, in a sentence.
        fixes: What may help, the one to try first in front.
        prevention: What keeps it from happening again, in a sentence; may be empty.
    """

    signature: str
    cause: str
    fixes: tuple[Fix, ...] = ()
    prevention: str = ""


class _Ranked(StrEnum):
    """Names in an order.

    Attributes:
        rank: Place in the order, from 0.
    """

    def __init__(self, _: str) -> None:
        self.rank = len(type(self).__members__)


rank: Final = attrgetter("rank")
"""Place in the order, as a key to sort by."""


class Action(_Ranked):
    """Actions for the runtime, in order of force."""

    ALLOW = "allow"
    HINT = "hint"
    STEER = "steer"
    ASK = "ask"
    DENY = "deny"
    PAUSE = "pause"
    ABORT = "abort"

    @property
    def stops(self) -> bool:
        """True if work is held or ended: deny, pause, abort."""
        return self in _STOPS


_STOPS = (Action.DENY, Action.PAUSE, Action.ABORT)


class Severity(_Ranked):
    """Severities of a detection, in order."""

    WARNING = "warning"
    CRITICAL = "critical"
    FATAL = "fatal"


HUMAN: Final = "escalate_human"
"""The intervention that calls for a person."""


class Source(_Ranked):
    """Source of a decision, in order of precedence."""

    GRAPH_LOOP = "graph_loop"
    TOOL_LOOP = "tool_loop"
    RESOURCES = "resources"
    EXECUTION_CHOICE = "execution_choice"


class FollowUp(StrEnum):
    """Next steps of a runtime after a decision."""

    EXECUTE_IMMEDIATELY = "execute_immediately"
    TRACK_EXECUTION = "track_execution"
    SHOW_EXECUTION_CHOICE_DIALOG = "show_execution_choice_dialog"
    WAIT_FOR_USER_INPUT = "wait_for_user_input"
    QUEUE = "queue"
    RETURN_JOB_ID = "return_job_id"
    NOTIFY_ON_COMPLETION = "notify_on_completion"
    PAUSE_EXECUTION = "pause_execution"
    REQUEST_HUMAN_INTERVENTION = "request_human_intervention"
    ABORT_EXECUTION = "abort_execution"
    NOTIFY_USER = "notify_user"
    QUEUE_FOR_LATER = "queue_for_later"
    RETRY_WHEN_RESOURCES_AVAILABLE = "retry_when_resources_available"


class Choice(StrEnum):
    """A way to execute a call or a batch."""

    EXECUTE_SYNC = "execute_sync"
    PROMPT_USER = "prompt_user"
    AUTO_BACKGROUND = "auto_background"
    DEFER = "defer"
    DENY = "deny"


class AgentsInCycle(NamedTuple):
    """Which agents hand the same work around, from when to when.

    Attributes:
        agents: Their names, sorted.
        words: Keys of the words of the newest exchange; empty if it was passed on without any.
        begin: End of the exchange that began it, nanoseconds since the epoch; 0 without times.
        end: End of the newest one.
    """

    agents: tuple[str, ...]
    words: bytes
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Detection:
    """The finding of one detector at one step.

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
        unanswered: In place of a pause as `max_action`, and of `own`, where nobody could end it: no
            webhook, store, socket or callback is set up; None: they stay.
        own: For verdicts of their own (budgets, milestones): the action it leads to at once, past
            the ladder; `allow` notes it on the trace and does nothing else.
        advice: A sentence for the model on what would help; empty for the usual one.
        intervention: What is to be done about it, a short code (`break_cycle`, …), if there is one.
        family: Group that the detector belongs to; set by who asks the detectors.
        among: The agents of a cycle of agents.
        weight: What this showing weighs towards a stop, 0 to 1.
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
    unanswered: Action | None = None
    own: Action | None = None
    advice: str = ""
    intervention: str | None = None
    family: str = ""
    among: AgentsInCycle | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision about a session, and its reason.

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
        tool: Name of the tool of the call concerned; empty if no call is.
        source: What it comes from; of two at one step the one earlier in the order is heard.
        certainty: How sure the order of sources makes it, 0 to 1; `confidence` is the
            detector's own.
        follow_ups: What a runtime does next, in this order.
        intervention: What is to be done about the loop, a short code (`break_cycle`, …), or None.
        advice: A sentence for the model on what would help; empty for the usual one.
        alternatives: Other ways to the same end, for a model that is to leave this one.
        question: What to ask the user; None unless the action is `ask` or `pause`.
        diagnosis: What is known about the error behind it; None where there is no error.
        earlier: Trace and span ids of the steps that showed the calls of its loop first.
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
    tool: str = ""
    source: Source = Source.TOOL_LOOP
    certainty: float = 0.0
    follow_ups: tuple[FollowUp, ...] = ()
    intervention: str | None = None
    advice: str = ""
    alternatives: tuple[str, ...] = ()
    question: str | None = None
    diagnosis: Diagnosis | None = None
    earlier: tuple[tuple[int, int], ...] = ()

    @property
    def about_limit(self) -> bool:
        """True if a limit is reached or near, and no loop or stall was found."""
        if self.detector == "stall":
            return self.reason.removesuffix("_near") in _TIME_LIMITS
        return self.detector in _LIMITS

    @property
    def budget(self) -> str | None:
        """Name of the budget that is spent, which a person may raise; None without."""
        if self.detector == "stall" and self.reason == "operation_limit":
            return "elapsed_s"
        name, spent, _ = self.reason.partition("_limit")
        return name if spent and self.detector == "spending_limit" else None


_LIMITS: Final = frozenset({"spending_limit", "own_limit", "graph_limit"})
_TIME_LIMITS: Final = frozenset(
    {"run_limit", "overall_limit", "operation_limit", "agent_limit", "idle"}
)
"""Rules of `stall` about set limits; its others are about estimates."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """Attributes and events for a span.

    Attributes:
        attributes: Attributes to add: `loopguard.*`, and what the conventions name.
        error: Description of an ERROR status for the span (deny, abort), or None to leave the
            status alone.
        links: Trace and span ids of spans to link to.
    """

    attributes: Mapping[str, str | bool | int | float]
    error: str | None = None
    links: tuple[tuple[int, int], ...] = ()

    def added_to(self, said: Container[str]) -> dict[str, str | bool | int | float]:
        """Attributes for a span that has these already; names of the conventions stay its own."""
        return {
            name: value
            for name, value in self.attributes.items()
            if name not in said or not name.startswith("gen_ai.")
        }


class Outcome(StrEnum):
    """Ending of a run that the guard stopped."""

    LOOP = "loop"
    STALLED = "stalled"
    FAILING = "failing"
    BUDGET = "budget"
    PAUSED = "paused"
    UNANSWERED = "unanswered"
    ABORTED_BY_PERSON = "aborted_by_person"
    ABORTED_BY_APPLICATION = "aborted_by_application"
    ABORTED = "aborted"


_OUTCOMES: Final = {
    **dict.fromkeys(
        (
            *("stall", "stagnation", "found_nothing", "nothing_new", "no_better_score", "sweep"),
            *("no_progress", "milestone_stall", "idle_command", "revised_in_vain"),
            *("scope_creep", "talk_without_action", "tool_shopping", "hedging"),
        ),
        Outcome.STALLED,
    ),
    **dict.fromkeys(
        ("error_repeat", "error_rate", "outage", "same_verdict", "cannot_succeed"), Outcome.FAILING
    ),
}
"""By detector; all others find loops, or a limit."""

# Names that `Control.by` has for those who are no person.
_NOBODY: Final = {
    "application": Outcome.ABORTED_BY_APPLICATION,
    "time limit": Outcome.UNANSWERED,
    # A guard elsewhere: its decision is not known here.
    "policy": Outcome.ABORTED,
    "baggage": Outcome.ABORTED,
}


def outcome_of(decision: Decision | None, by: str | None) -> Outcome:
    """Ending of an aborted run: by a decision, or by a person."""
    if decision is None:
        return _NOBODY.get(by or "policy", Outcome.ABORTED_BY_PERSON)
    if decision.about_limit or decision.source is Source.RESOURCES:
        return Outcome.BUDGET
    return _OUTCOMES.get(decision.detector, Outcome.LOOP)
