"""Limits in time of what is still running: calls, runs, phases, and doing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Action
from otel_loopguard.detectors.base import BaseDetector, critical_if
from otel_loopguard.detectors.budget import at_limit

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings

NAME: Final = "stall"
OPERATION: Final = "operation_limit"
"""The rule of `budget_elapsed_s`, which steps are held against, too."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A limit in time, and since when it counts.

    Attributes:
        reason: Code of the rule; `_near` is added near the limit.
        since: When it began to count, nanoseconds since the epoch.
        limit_s: Seconds that it allows.
        warns: Whether there is a detection near it, too.
        mild: What follows where it is no limit that was set: a hint, or a note; None: it is one.
    """

    reason: str
    since: int
    limit_s: float
    warns: bool = True
    mild: Action | None = Action.HINT

    def after(self, part: float = 1) -> int:
        """When a part of the limit is used, nanoseconds since the epoch."""
        return self.since + round(self.limit_s * part * 1e9)


def step_clocks(settings: Settings, since: int, limit_s: float | None) -> list[Clock]:
    """The limits of a tool call: `step_timeout_s`, and `limit_s`, three times its estimate.

    A tool that is known to take longer than `step_timeout_s` may do so, unless it is given one of
    its own.
    """
    most = settings.step_timeout_s
    if limit_s is None or limit_s >= most:
        return [Clock("step_timeout", since, most if limit_s is None else limit_s)]
    return [
        Clock("over_estimate", since, limit_s, warns=False),
        Clock("step_timeout", since, most),
    ]


def model_clocks(settings: Settings, since: int) -> list[Clock]:
    """When a model call is noted; the agent cannot do anything about a slow model."""
    return _set(Clock("model_timeout", since, settings.tuning.stalls.model_s, mild=Action.ALLOW))


def agent_clocks(settings: Settings, since: int, limit_s: float) -> list[Clock]:
    """When an agent's run is late: five times its estimate, within 30 to 600 s."""
    mild = None if settings.standard else Action.ALLOW
    return [Clock("agent_limit", since, limit_s, mild=mild)]


def run_clocks(settings: Settings, began: int, spent: int) -> list[Clock]:
    """The limits of a run, of all runs of its session (`spent` nanoseconds before), of a task."""
    overall_s, task_s = settings.stall_overall_s, settings.budget_elapsed_s
    return _set(
        Clock("run_limit", began, settings.stall_run_s, mild=None),
        Clock("overall_limit", began - spent, overall_s, mild=None),
        Clock(OPERATION, began, task_s, mild=None),
    )


def idle_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of doing nothing while a run is open."""
    return _set(Clock("idle", since, settings.stall_idle_s, mild=None))


def phase_clocks(settings: Settings, since: int) -> list[Clock]:
    """When one phase of several is noted."""
    limit_s = settings.tuning.stalls.phase_s
    return _set(Clock("same_phase", since, limit_s, warns=False, mild=Action.ALLOW))


class StallDetector(BaseDetector):
    """Does something run longer than it may?

    Counts: seconds of open spans; told once, and near a limit.
    Leaves alone: time without an open run; tools known to be slow.
    Cannot see: whether it is slow or stuck: only limits that you set stop anything.
    """

    name = family = NAME
    digits = 3
    __slots__ = ()

    def late(self, clock: Clock, name: str, key: int, now: int, *, near: bool) -> Detection:
        """The detection of what is late, or near.

        What is no limit that was set leads to a hint at most: a slow build is slow, not stuck, and
        nobody can tell from outside.
        """
        settings, passed = self._settings, (now - clock.since) / 1e9
        fields = at_limit(settings, over=not near)
        if clock.mild is not None:
            fields.update(max_action=clock.mild, own=clock.mild, unanswered=None)
        limit = round(clock.limit_s * (settings.tuning.stalls.warning if near else 1), 6)
        return self.found(
            clock.reason, passed, limit, key, name=name[:200], limit=clock.limit_s,
            reason=f"{clock.reason}_near" if near else clock.reason,
            # Time says little of what is stuck: a guess, and half of one before the limit.
            confidence=0.4 if near else 0.6, severity=critical_if(not near), **fields,
        )  # fmt: skip


def _set(*clocks: Clock) -> list[Clock]:
    return [clock for clock in clocks if clock.limit_s > 0]
