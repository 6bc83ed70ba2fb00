"""Tuning values: the numbers behind the rules, in groups, with no promise of stability.

They are reached as `settings.tuning.text.tail_period`. In the settings file they stand below
`[tuning.text]`, in the environment as `LOOPGUARD_TUNING__TEXT__TAIL_PERIOD`, and in code as
`Settings(tuning={"text": {"tail_period": 7}})`. Names, defaults and bounds may change with any
release; what users set is in `otel_loopguard.settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from otel_loopguard.settings._group import Group, one_of, value

if TYPE_CHECKING:
    from otel_loopguard.settings._types import (
        Action,
        Amount,
        Count,
        Limit,
        Percent,
        Rounds,
        Seconds,
        Share,
        Tasks,
    )

_LEVELS = frozenset(("hint", "steer", "ask", "deny", "pause"))
_MB: Final = 1024 * 1024  # bytes


class CallsTuning(Group):
    """Loops of tool calls."""

    cycle_max_period: int = value(16, ge=2, le=64)
    """Longest cycle looked for, in calls."""
    error_rate: Share = 0.75
    """Share of failed calls in ten rounds that is too much."""
    error_streak: int = value(6, ge=2, le=1000)
    """Failed rounds or model calls in a row."""
    nothing_threshold: Count = 4.0
    """Different calls that find nothing."""
    verdict_threshold: Count = 6.0
    """Equal failures or verdicts, whatever was changed."""
    edit_threshold: Count = 12.0
    """Edits of one file, each after a failure."""
    sweep_threshold: Count = 8.0
    """Places of a range that are read again."""
    wait_gap_s: Seconds = 5.0
    """Seconds between unchanged answers that make it waiting."""
    cycle_repeats: float = value(3.0, ge=2, le=20)
    """Repetitions that make a cycle of up to three calls."""
    value_chars: int = value(1_000_000, ge=256)
    """Characters of arguments and outcomes that are compared; of longer ones, both ends and a
    digest of the rest."""


class StallsTuning(Group):
    """Limits in time, and when compacting the context is advised."""

    warning: Share = 0.8
    """Share of a limit in time at which a warning is given."""
    model_s: Amount = 600.0
    """Seconds a model call may take before it is noted; 0: never."""
    phase_s: Amount = 300.0
    """Seconds one agent of several may work at a time before it is noted; 0: never."""
    health_s: Amount = 300.0
    """Seconds between checks of the guard's own state; 0: none."""
    compact_agents: int = value(5, ge=0, le=1000)
    """Completed agents after which compacting is advised; 0: never."""
    compact_tokens: int = value(100_000, ge=0)
    """Input tokens of a model call from which compacting is advised; 0: never."""
    open_steps: int = value(10_000, ge=1)
    """Open spans kept; the oldest is dropped first."""


class PolicyTuning(Group):
    """Pace of the ladder."""

    forget_after: int = value(24, ge=1, le=1000)
    """Calls without a loop that reset its ladder."""
    cooldown_s: Mapping[str, Seconds] = value({}, check=one_of(_LEVELS, "level"))
    """Seconds after a level, by its name, before the ladder goes further; needs times."""
    cooldown_rounds: Mapping[str, Rounds] = value({}, check=one_of(_LEVELS, "level"))
    """Rounds after a level, by its name, that must show the loop before it goes further."""


class BudgetTuning(Group):
    """Warnings and effects near a limit."""

    warning: Share = 0.8
    """Share of such a limit at which a warning is given."""
    tighten: float = value(0.0, ge=0, le=0.75)
    """Share by which loop thresholds fall when a budget is used up, in proportion before; 0: not at
    all; from 0.3 two calls are enough where three are needed."""
    checkpoint_every: Limit = 0
    """Calls after which a checkpoint is advised; 0: never, with standard limits every 25."""


class MilestonesTuning(Group):
    """Milestones, once declared."""

    steps: int = value(10, ge=1)
    """Steps without a milestone that are a stall."""
    elapsed_s: Seconds = 60.0
    """Seconds without a milestone that are a stall."""
    failed_action: Action = "pause"
    """Action when a required milestone failed and none is open."""


class TextTuning(Group):
    """Text of models that shows no progress, and tools tried in vain."""

    alike: Share = 0.85
    """Common share of two texts from which they are alike."""
    refine_times: int = value(3, ge=2, le=1000)
    """Texts in a row that are like the one before."""
    news: float = value(0.1, ge=0, le=1)
    """Mean novelty of answers up to which nothing came."""
    tail_times: int = value(10, ge=3, le=1000)
    """Times that the end of a text repeats itself."""
    tail_period: int = value(500, ge=1, le=5000)
    """Longest repeated end, in characters."""
    hedge_turns: int = value(5, ge=2, le=100)
    """Texts in a row that are full of doubt."""
    apology_turns: int = value(3, ge=2, le=100)
    """Texts in a row that apologise."""
    scope_turns: int = value(4, ge=2, le=100)
    """Times in a row that a plan grows, nothing done."""
    shop_tools: int = value(5, ge=3, le=100)
    """Different tools tried in vain."""
    talk_turns: int = value(4, ge=2, le=100)
    """Texts in a row that only announce the same."""
    repeat_times: int = value(4, ge=2, le=100)
    """Equal texts of one speaker that are a repetition."""


class GraphTuning(Group):
    """Loops of nodes and agents in a graph."""

    cycle_repeats: Count = 5.0
    """Turns of the same nodes, with nothing new, in a cycle."""
    unchanged: int = value(3, ge=2, le=1000)
    """Visits of a node that leave its state unchanged."""
    idle_iterations: int = value(5, ge=2, le=1000)
    """Iterations with nothing new."""
    rapid_ms: Seconds = 100.0
    """Mean milliseconds between visits below which a graph spins."""
    max_action: Literal["hint", "steer", "ask", "pause"] = "ask"
    """Strongest action when nodes bring nothing new."""


class ExchangeTuning(Group):
    """Agents that pass work back and forth."""

    overlap: Share = 0.4
    """Share of common words from which two texts have one topic."""
    news: Share = 0.65
    """Mean new share of answers above which exchanges are work."""
    patience: int = value(4, ge=1, le=1000)
    """Exchanges after an intervention before a cycle is escalated."""
    window_s: Seconds = 600.0
    """Seconds within which exchanges between agents make one cycle."""
    low: Count = 3.0
    """Exchanges above which a cycle is noticed, with low severity."""
    escalate_at: Literal["low", "medium", "high", "critical"] = "critical"
    """Severity from which a cycle is escalated to a person."""


class JudgeTuning(Group):
    """Questions to the judge, and the weight of its answers."""

    every_max: int = value(15, ge=1, le=1000)
    """Steps between questions while all is well."""
    confidence: Share = 0.9
    """Confidence from which an opinion counts."""
    from_step: int = value(30, ge=1, le=100_000)
    """Step of a session from which the judge is asked."""
    timeout_s: Seconds = 30.0
    """Seconds the judge may take; later answers are ignored."""
    max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = "ask"
    """Strongest action its opinion may lead to."""


class ExecutionTuning(Group):
    """Durations of calls from which the user is asked; each user may prefer others."""

    prompt_s: Seconds = 15.0
    """Seconds below which a call runs at once."""
    background_s: Amount = 45.0
    """Seconds from which a call runs in the background; 0: never without asking."""


class ResourcesTuning(Group):
    """Measurements of the machine, and what is an alert."""

    sample_s: float = value(1.0, ge=0, le=5)
    """Seconds between two samples; 0: nothing is measured."""
    cpu_percent: Percent = 80.0
    """CPU use that is an alert."""
    memory_percent: Percent = 85.0
    """Memory use that is an alert."""
    queue_depth: Tasks = 15
    """Tasks waiting for a worker that are an alert."""


class JournalTuning(Group):
    """Journal of a session, for other processes and for a restart."""

    steps: int = value(1000, ge=16, le=100_000)
    """Newest entries of a session that are kept."""
    flush_steps: int = value(100, ge=1, le=10_000)
    """Entries after which they are written."""
    flush_s: Seconds = 1.0
    """Seconds after which entries are written at the latest."""
    read_s: Seconds = 5.0
    """Seconds between reads of other processes' entries."""
    days: float = value(7.0, gt=0, le=3650)
    """Days that it is kept after its last entry."""


class LatencyTuning(Group):
    """Limits in time that are made from the profiles of tools and agents."""

    stall_factor: float = value(3.0, ge=1, le=1000)
    """Times its estimate that is a stall."""
    stall_min_s: Seconds = 30.0
    """Seconds below which no call is stalled."""
    limit_min_s: Seconds = 30.0
    """Seconds that a call or agent may take at least."""
    limit_max_s: Seconds = 600.0
    """Seconds that a call or agent may take at most."""


class PlansTuning(Group):
    """Plans of tasks."""

    max_parallel: int = value(3, ge=1, le=1000)
    """Concurrent tasks of a plan, or calls of a batch, at most."""
    task_failures: int = value(3, ge=1, le=100)
    """Failed steps of a task, without a success between, that fail it."""


class ReplicationTuning(Group):
    """Control of sessions across processes."""

    control_ttl_s: Seconds = 86_400.0
    """Seconds that a session's control stays in the store."""
    baggage_ttl_s: Seconds = 300.0
    """Seconds after which signed baggage expires."""


class ResilienceTuning(Group):
    """Circuit breakers."""

    breaker_failures: int = value(3, ge=1, le=1000)
    """Failures in a row that open a breaker."""
    breaker_open_s: Seconds = 300.0
    """Seconds a breaker stays open before one trial, at most."""
    breaker_errors: Literal["transient", "unclear", "all"] = "transient"
    """Errors that count: `transient` ones; those and errors of unknown kind (`unclear`); or `all`,
    wrong arguments included."""


class StoresTuning(Group):
    """Queues and sizes of the store."""

    slow_s: Seconds = 0.25
    """Seconds from which a call makes the state `slow`."""
    queue: int = value(10_000, ge=1)
    """Writes that wait at most; more are dropped and counted."""
    queue_bytes: int = value(32 * _MB, ge=1024)
    """Bytes that wait at most."""
    value_bytes: int = value(_MB, ge=1024)
    """Bytes of one value, record or entry at most."""
    batch: int = value(500, ge=1, le=5000)
    """Writes sent together at most."""
    delay_s: float = value(0.2, ge=0, le=60)
    """Seconds that writes are gathered."""
    retry_s: Seconds = 5.0
    """Longest pause between two attempts to write, in seconds."""
    flush_s: Seconds = 5.0
    """Seconds that shutdown waits for unwritten data."""
    timeout_s: Seconds = 1.0
    """Seconds a call of the store may take, and a connection attempt."""


class TelemetryTuning(Group):
    """Extent of the guard's own telemetry."""

    sample: int = value(64, ge=1, le=1_000_000)
    """One of so many spans is timed."""
    agents: int = value(100, ge=1, le=1000)
    """Agent names on metrics; others are `other`."""
    tools: int = value(200, ge=1, le=900)
    """Tool names on metrics; others are `other`."""
    links: int = value(8, ge=0, le=32)
    """Span links to the first steps of a loop."""


class DeliveryTuning(Group):
    """Delivery in the background: log events, verdicts, posts of escalations."""

    queue: int = value(1024, ge=1, le=100_000)
    """Items that wait for one receiver; more are dropped and counted."""
    attempts: int = value(8, ge=1, le=100)
    """Attempts to send one verdict or escalation."""
    timeout_s: Seconds = 10.0
    """Seconds that one attempt may take, with its answer."""
    retry_s: Seconds = 1.0
    """Seconds between the first two attempts; then twice as long each, 60 at most."""
    flush_s: float = value(5.0, ge=0, le=60)
    """Seconds that shutdown waits for what is on its way."""


class EscalationTuning(Group):
    """Content and pace of escalations."""

    actions: int = value(5, ge=1, le=50)
    """Last actions of the session that are shown."""
    cooldown_s: float = value(300.0, ge=0, le=604_800)
    """Seconds after a message about a session in which the same is not sent again; the policy is
    not affected."""


class AdminTuning(Group):
    """Sessions of a live guard, as other processes list them."""

    heartbeat_s: Seconds = 2.0
    """Seconds between heartbeats of a process in the store."""
    sessions: int = value(1000, ge=1, le=10_000)
    """Newest sessions that are listed."""
    idle_s: Seconds = 600.0
    """Seconds that a session is listed after its last step."""


class HooksTuning(Group):
    """Hooks of coding agents."""

    answer_s: float = value(1.0, gt=0, le=600)
    """Seconds that a hook waits for an answer, after which the agent goes on without; by the
    environment only."""


class Tuning(Group):
    """All tuning values; each group is one part of the guard."""

    calls: CallsTuning = CallsTuning()
    stalls: StallsTuning = StallsTuning()
    policy: PolicyTuning = PolicyTuning()
    budget: BudgetTuning = BudgetTuning()
    milestones: MilestonesTuning = MilestonesTuning()
    text: TextTuning = TextTuning()
    graph: GraphTuning = GraphTuning()
    exchange: ExchangeTuning = ExchangeTuning()
    judge: JudgeTuning = JudgeTuning()
    execution: ExecutionTuning = ExecutionTuning()
    resources: ResourcesTuning = ResourcesTuning()
    journal: JournalTuning = JournalTuning()
    latency: LatencyTuning = LatencyTuning()
    plans: PlansTuning = PlansTuning()
    replication: ReplicationTuning = ReplicationTuning()
    resilience: ResilienceTuning = ResilienceTuning()
    stores: StoresTuning = StoresTuning()
    telemetry: TelemetryTuning = TelemetryTuning()
    delivery: DeliveryTuning = DeliveryTuning()
    escalation: EscalationTuning = EscalationTuning()
    admin: AdminTuning = AdminTuning()
    hooks: HooksTuning = HooksTuning()
