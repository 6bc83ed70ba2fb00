"""Does something take longer than it may? (D3, D4, E2, E3, E11) Asked while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.budget import verdict

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

NAME: Final = "stall"
_RUNNING: Final = "has been running for {passed:.1f} s; its limit is {limit:g} s"
_CALL: Final = (
    "If it still runs, wait for it or cancel it; if it is needed again, ask for less at once, or "
    "run it in the background."
)
_WHOLE: Final = "Finish with what you have, or say what is missing and how much longer it takes."
_ADVICE: Final = {
    "step_timeout": _CALL,
    "over_estimate": _CALL,
    "model_timeout": "If it still runs, wait for it, or cancel it and ask for less at once.",
    "idle": "Go on with the next step, or say what you wait for.",
}
"""What may help, by the rule; to others `_WHOLE` applies. None of it is about repeating."""
_IDLE: Final = "has had no step for {passed:.1f} s; its limit is {limit:g} s"


@dataclass(frozen=True, slots=True)
class Clock:
    """A limit in time, and since when it counts.

    Attributes:
        reason: Code of the rule that says it is passed; near it, `_near` is added.
        since: When it began to count, nanoseconds since the epoch.
        limit_s: Seconds that it allows.
        warns: Whether something is said near it, too.
        own: What follows when it is passed; None: a hint.
        says: What is said, after the name of what runs.
    """

    reason: str
    since: int
    limit_s: float
    warns: bool = True
    own: Action | None = None
    says: str = _RUNNING

    def after(self, part: float = 1) -> int:
        """When a part of the limit is used, nanoseconds since the epoch."""
        return self.since + round(self.limit_s * part * 1e9)


def step_clocks(settings: Settings, since: int, limit_s: float | None) -> list[Clock]:
    """The limits of a tool call: `step_timeout_s` (60 s), and three times its estimate.

    A tool that is known to take longer than `step_timeout_s` may do so, unless it is given one of
    its own.

    Args:
        settings: Settings of the tool.
        since: Its start, nanoseconds since the epoch.
        limit_s: Three times its estimate, in seconds; None if there is no estimate.

    Source: FEATURES D3, D4.
    """
    most = settings.step_timeout_s
    if limit_s is None:
        return [Clock("step_timeout", since, most)]
    if limit_s >= most:
        return [Clock("step_timeout", since, limit_s)]
    return [
        Clock("over_estimate", since, limit_s, warns=False),
        Clock("step_timeout", since, most),
    ]


def model_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of a model call: `stall_model_s` (600 s). Source: FEATURES D3.

    A slow model is no fault of the agent, which cannot do anything about it: only noted.
    """
    own = verdict(settings, settings.stall_action)
    return _set(Clock("model_timeout", since, settings.stall_model_s, own=own))


def agent_clocks(settings: Settings, since: int, limit_s: float) -> list[Clock]:
    """The limit of an agent's run: five times its estimate, within 30 to 600 s.

    Args:
        settings: Settings of the guard.
        since: Its start, nanoseconds since the epoch.
        limit_s: Seconds that it may take.

    Source: FEATURES E3.
    """
    own = verdict(settings, settings.stall_action)
    return [Clock("agent_limit", since, limit_s, own=own)]


def run_clocks(settings: Settings, began: int, spent: int) -> list[Clock]:
    """The limits of a run as a whole: 300 s, 840 s with the session's runs before, one hour.

    Args:
        settings: Settings of the guard.
        began: Its start, nanoseconds since the epoch.
        spent: Nanoseconds that earlier runs of its session took.

    Source: FEATURES D3, E2, C10.
    """
    own = verdict(settings, settings.stall_action)
    hour = settings.operation_limit_s
    all_runs = "and the runs before took {passed:.1f} s; the limit of all is {limit:g} s"
    return _set(
        Clock("run_limit", began, settings.stall_run_s, own=own),
        Clock("overall_limit", began - spent, settings.stall_overall_s, own=own, says=all_runs),
        Clock("operation_limit", began, hour, warns=False, own=own),
    )


def idle_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of doing nothing while a run is open: `stall_idle_s` (30 s). Source: D3."""
    own = verdict(settings, settings.stall_action)
    return _set(Clock("idle", since, settings.stall_idle_s, own=own, says=_IDLE))


def phase_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of one phase of several: `tuning.stalls.phase_s` (300 s). Source: FEATURES E11."""
    own = verdict(settings, settings.stall_action)
    says = "has been in one phase for {passed:.1f} s; the limit of a phase is {limit:g} s"
    return _set(Clock("same_phase", since, settings.tuning.stalls.phase_s, False, own, says))


def stalled(  # noqa: PLR0913
    settings: Settings, clock: Clock, name: str, key: int, now: int, *, near: bool
) -> Detection:
    """What is said of a limit that is passed, or near.

    It leads to a hint at most where it has no action of its own: a slow build is slow, not stuck,
    and nobody can tell from outside.

    Args:
        settings: Settings of the guard.
        clock: The limit.
        name: Name of what runs.
        key: Identity of what runs.
        now: Nanoseconds since the epoch.
        near: Whether it only comes near its limit.
    """
    passed = (now - clock.since) / 1e9
    own = clock.own
    if near and own is not None:
        own = verdict(settings, own.value, Action.HINT)
    return Detection(
        detector=NAME,
        reason=f"{clock.reason}_near" if near else clock.reason,
        severity=Severity.WARNING if near else Severity.CRITICAL,
        confidence=0.4 if near else 0.6,
        keys=frozenset({key}),
        count=round(passed, 3),
        threshold=round(clock.limit_s * (settings.tuning.stalls.warning if near else 1), 6),
        message=f"{name[:200]!r} {clock.says.format(passed=passed, limit=clock.limit_s)}",
        max_action=own or Action.HINT,
        own=own,
        advice=_ADVICE.get(clock.reason, _WHOLE),
    )


def _set(*clocks: Clock) -> list[Clock]:
    return [clock for clock in clocks if clock.limit_s > 0]
