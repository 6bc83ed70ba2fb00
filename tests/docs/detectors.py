"""The table of all detectors on docs/detectors.md."""

from __future__ import annotations

import json
from collections.abc import Iterator

from otel_loopguard import Settings
from otel_loopguard.core import Action
from otel_loopguard.detectors import DETECTORS, Registry

ENTRIES = {entry.name: entry for entry in Registry(Settings(), DETECTORS).entries}
OTHERS = {"stall": ("stall", "open spans"), "judge": ("", "steps")}
"""Detectors outside of the registry: family, and what they look at."""

ABOUT: dict[str, tuple[Action, str]] = {
    "exact_repeat": (Action.ABORT, "repeat_threshold repeat_window"),
    "cycle": (Action.ABORT, "cycle_repeats cycle_max_period"),
    "similar_repeat": (Action.STEER, "similar_threshold similar_ratio similar_novelty"),
    "error_repeat": (Action.ABORT, "error_threshold transient_budget_s"),
    "error_rate": (Action.STEER, "error_rate error_rate_rounds error_streak"),
    "outage": (Action.PAUSE, "error_threshold wait_gap_s"),
    "refused_call": (Action.ABORT, "refused_threshold refused_window"),
    "same_failure": (Action.STEER, "failure_threshold failure_steer"),
    "stagnation": (Action.HINT, "repeat_threshold"),
    "echo": (Action.HINT, "echo_threshold"),
    "found_nothing": (Action.HINT, "nothing_threshold"),
    "same_verdict": (Action.ABORT, "verdict_threshold verdict_climb"),
    "sweep": (Action.HINT, "sweep_threshold"),
    "grinding": (Action.HINT, "grinding_calls grinding_novelty"),
    "repeated_edit": (Action.HINT, "edit_threshold"),
    "no_better_score": (Action.ALLOW, "score_threshold"),
    "revised_in_vain": (Action.HINT, "revision_threshold"),
    "idle_command": (Action.ABORT, "idle_threshold idle_window"),
    "stall": (Action.HINT, "step_timeout_s stall_action stall_idle_s stall_run_s"),
    "handoff_repeat": (Action.ABORT, "exchange_repeat_notice exchange_repeat_stop"),
    "exchange_pair": (Action.ABORT, "exchange_low exchange_window_s"),
    "exchange_ring": (Action.ABORT, "exchange_low exchange_window_s"),
    "exchange_topic": (Action.ABORT, "exchange_low exchange_overlap"),
    "node_cycle": (Action.ASK, "graph_cycle_repeats graph_max_action"),
    "state_convergence": (Action.STEER, "graph_unchanged"),
    "no_progress": (Action.STEER, "graph_idle_iterations"),
    "rapid_iteration": (Action.HINT, "graph_rapid_transitions graph_rapid_ms"),
    "graph_limit": (Action.ALLOW, "graph_iterations graph_limit_action"),
    "spending_limit": (Action.ALLOW, "budget_action budget_tokens budget_cost"),
    "own_limit": (Action.ALLOW, "agent_limits task_limits"),
    "token_rate": (Action.ALLOW, "budget_rate_growth budget_rate_tokens"),
    "checkpoint_advice": (Action.ALLOW, "budget_checkpoint_every"),
    "context_size": (Action.ALLOW, "stall_compact_agents stall_compact_tokens"),
    "milestone_stall": (Action.HINT, "milestone_steps milestone_s"),
    "cannot_succeed": (Action.PAUSE, "milestone_failed_action"),
    "refinement_spiral": (Action.STEER, "text_refine_times text_alike"),
    "text_repetition": (Action.STEER, "text_repeat_times text_tail_times"),
    "talk_without_action": (Action.HINT, "text_talk_turns"),
    "apologising": (Action.HINT, "text_apology_turns"),
    "hedging": (Action.HINT, "text_hedge_turns"),
    "scope_creep": (Action.HINT, "text_scope_turns"),
    "tool_shopping": (Action.HINT, "text_shop_tools"),
    "judge": (Action.ASK, "judge judge_confidence judge_max_action"),
}
"""Strongest action with default settings, and main settings, in the order of the page.

Names that are no settings in front (tuning values) are left out of the table.
"""


def rows() -> Iterator[tuple[object, ...]]:
    """A row for each detector."""
    for name, (action, names) in ABOUT.items():
        family, takes = OTHERS.get(name) or (ENTRIES[name].family, ENTRIES[name].takes.__name__)
        fields = {each: Settings.model_fields.get(each) for each in names.split()}
        settings = ", ".join(
            f"`{each}`" + _default(field.default) for each, field in fields.items() if field
        )
        kind = f"`{takes}`" if name in ENTRIES else takes
        yield f"[{name}](#{name})", f"`{family or name}`", kind, f"`{action}`", settings or "none"


def _default(value: object) -> str:
    return f" {json.dumps(value)}" if isinstance(value, int | float | str) and value != "" else ""
