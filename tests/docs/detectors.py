"""The table of all detectors on docs/detectors.md."""

from __future__ import annotations

import json
from collections.abc import Iterator

from otel_loopguard import Settings
from otel_loopguard.core import Action
from otel_loopguard.detectors import DETECTORS, Registry
from otel_loopguard.settings import all_fields

ENTRIES = {entry.name: entry for entry in Registry(Settings(), DETECTORS).entries}
FIELDS = all_fields()
OTHERS = {"stall": ("stall", "open spans"), "judge": ("", "steps")}
"""Detectors outside of the registry: family, and what they look at."""

ABOUT: dict[str, tuple[Action, str]] = {
    "exact_repeat": (
        Action.ABORT,
        "repeat_threshold tuning.calls.repeat_window wait_budget_s transient_budget_s",
    ),
    "cycle": (Action.ABORT, "cycle_repeats tuning.calls.cycle_max_period"),
    "made_again": (Action.DENY, "once_tools"),
    "similar_repeat": (
        Action.STEER,
        "similar_threshold tuning.calls.similar_ratio tuning.calls.similar_novelty",
    ),
    "error_repeat": (Action.ABORT, "error_threshold"),
    "error_rate": (
        Action.STEER,
        "tuning.calls.error_rate tuning.calls.error_rate_rounds tuning.calls.error_streak",
    ),
    "outage": (Action.PAUSE, "error_threshold"),
    "refused_call": (Action.ABORT, "tuning.calls.refused_threshold tuning.calls.refused_window"),
    "same_failure": (Action.STEER, "tuning.calls.failure_threshold tuning.calls.failure_steer"),
    "failing_model": (Action.DENY, "tuning.calls.error_streak tuning.calls.wait_gap_s"),
    "stagnation": (Action.HINT, "repeat_threshold"),
    "echo": (Action.HINT, "tuning.calls.echo_threshold"),
    "found_nothing": (Action.HINT, "tuning.calls.nothing_threshold"),
    "same_verdict": (Action.ABORT, "tuning.calls.verdict_threshold tuning.calls.verdict_climb"),
    "sweep": (Action.HINT, "tuning.calls.sweep_threshold"),
    "grinding": (Action.HINT, "tuning.calls.grinding_calls tuning.calls.grinding_novelty"),
    "repeated_edit": (Action.HINT, "tuning.calls.edit_threshold"),
    "back_to_state": (Action.HINT, ""),
    "no_better_score": (Action.ALLOW, "tuning.calls.score_threshold"),
    "revised_in_vain": (Action.HINT, "tuning.calls.revision_threshold"),
    "idle_command": (Action.ABORT, "tuning.calls.idle_threshold tuning.calls.idle_window"),
    "stall": (Action.HINT, "step_timeout_s stall_idle_s stall_run_s stall_overall_s"),
    "handoff_repeat": (Action.ABORT, "tuning.exchange.repeat_notice tuning.exchange.repeat_stop"),
    "exchange_pair": (Action.ABORT, "exchange_low exchange_window_s"),
    "exchange_ring": (Action.ABORT, "exchange_low exchange_window_s"),
    "exchange_topic": (Action.ABORT, "exchange_low tuning.exchange.overlap"),
    "node_cycle": (Action.ASK, "tuning.graph.cycle_repeats graph_max_action"),
    "state_convergence": (Action.STEER, "tuning.graph.unchanged"),
    "no_progress": (Action.STEER, "tuning.graph.idle_iterations"),
    "rapid_iteration": (Action.HINT, "tuning.graph.rapid_transitions tuning.graph.rapid_ms"),
    "graph_limit": (Action.ABORT, "graph_iterations budget_action"),
    "spending_limit": (Action.ABORT, "budget_steps budget_tokens budget_cost budget_action"),
    "own_limit": (Action.ABORT, "agent_limits task_limits"),
    "token_rate": (Action.ALLOW, "tuning.budget.rate_growth tuning.budget.rate_tokens"),
    "checkpoint_advice": (Action.HINT, "tuning.budget.checkpoint_every"),
    "context_size": (Action.ALLOW, "tuning.stalls.compact_agents tuning.stalls.compact_tokens"),
    "milestone_stall": (Action.HINT, "tuning.milestones.steps tuning.milestones.elapsed_s"),
    "cannot_succeed": (Action.PAUSE, "tuning.milestones.failed_action"),
    "refinement_spiral": (Action.STEER, "tuning.text.refine_times tuning.text.alike"),
    "text_repetition": (Action.STEER, "text_repeat_times tuning.text.tail_times"),
    "talk_without_action": (Action.HINT, "tuning.text.talk_turns"),
    "apologising": (Action.HINT, "tuning.text.apology_turns"),
    "hedging": (Action.HINT, "tuning.text.hedge_turns"),
    "scope_creep": (Action.HINT, "tuning.text.scope_turns"),
    "tool_shopping": (Action.HINT, "tuning.text.shop_tools"),
    "judge": (Action.ASK, "judge tuning.judge.confidence judge_max_action"),
}
"""Strongest action with default settings, and main settings, in the order of the page."""


def rows() -> Iterator[tuple[object, ...]]:
    """A row for each detector."""
    for name, (action, names) in ABOUT.items():
        family, takes = OTHERS.get(name) or (ENTRIES[name].family, ENTRIES[name].takes.__name__)
        settings = ", ".join(f"`{each}`" + _default(FIELDS[each].default) for each in names.split())
        kind = f"`{takes}`" if name in ENTRIES else takes
        yield f"[{name}](#{name})", f"`{family or name}`", kind, f"`{action}`", settings


def _default(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f" {json.dumps(value)}" if isinstance(value, int | float | str) and value != "" else ""
