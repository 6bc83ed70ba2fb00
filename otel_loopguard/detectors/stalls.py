"""Limits in time of what is still running: calls, runs, phases, and doing nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Action, Detection, Severity
from otel_loopguard.detectors.budget import own_action

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

NAME: Final = "stall"
_RUNNING: Final = "has been running for {passed:.1f} s; its limit is {limit:g} s"
_IDLE: Final = "has had no step for {passed:.1f} s; its limit is {limit:g} s"
_PHASE: Final = "has been in one phase for {passed:.1f} s; the limit of a phase is {limit:g} s"
_ALL_RUNS: Final = "and the runs before took {passed:.1f} s; the limit of all is {limit:g} s"
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


@dataclass(frozen=True, slots=True)
class Clock:
    """A limit in time, and since when it counts.

    Attributes:
        reason: Code of the rule; `_near` is added near the limit.
        since: When it began to count, nanoseconds since the epoch.
        limit_s: Seconds that it allows.
        warns: Whether there is a detection near it, too.
        own: What follows when it is passed; None: a hint.
        message: What is said, after the name of what runs.
    """

    reason: str
    since: int
    limit_s: float
    warns: bool = True
    own: Action | None = None
    message: str = _RUNNING

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
    """The limit of a model call; the agent cannot do anything about a slow model."""
    return _set(Clock("model_timeout", since, settings.stall_model_s, own=_own(settings)))


def agent_clocks(settings: Settings, since: int, limit_s: float) -> list[Clock]:
    """The limit of an agent's run: five times its estimate, within 30 to 600 s."""
    return [Clock("agent_limit", since, limit_s, own=_own(settings))]


def run_clocks(settings: Settings, began: int, spent: int) -> list[Clock]:
    """The limits of a run, of all runs of its session (`spent` nanoseconds before), of an hour."""
    own = _own(settings)
    return _set(
        Clock("run_limit", began, settings.stall_run_s, own=own),
        Clock("overall_limit", began - spent, settings.stall_overall_s, own=own, message=_ALL_RUNS),
        Clock("operation_limit", began, settings.operation_limit_s, warns=False, own=own),
    )


def idle_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of doing nothing while a run is open."""
    return _set(Clock("idle", since, settings.stall_idle_s, own=_own(settings), message=_IDLE))


def phase_clocks(settings: Settings, since: int) -> list[Clock]:
    """The limit of one phase of several."""
    limit_s = settings.tuning.stalls.phase_s
    return _set(
        Clock("same_phase", since, limit_s, warns=False, own=_own(settings), message=_PHASE)
    )


def stalled(  # noqa: PLR0913
    settings: Settings, clock: Clock, name: str, key: int, now: int, *, near: bool
) -> Detection:
    """The detection of a limit that is passed, or near.

    It leads to a hint at most where it has no action of its own: a slow build is slow, not stuck,
    and nobody can tell from outside.
    """
    passed = (now - clock.since) / 1e9
    own = clock.own
    if near and own is not None:
        own = own_action(settings, own.value, Action.HINT)
    return Detection(
        detector=NAME,
        reason=f"{clock.reason}_near" if near else clock.reason,
        severity=Severity.WARNING if near else Severity.CRITICAL,
        confidence=0.4 if near else 0.6,
        keys=frozenset({key}),
        count=round(passed, 3),
        threshold=round(clock.limit_s * (settings.tuning.stalls.warning if near else 1), 6),
        message=f"{name[:200]!r} {clock.message.format(passed=passed, limit=clock.limit_s)}",
        max_action=own or Action.HINT,
        own=own,
        advice=_ADVICE.get(clock.reason, _WHOLE),
    )


def _own(settings: Settings) -> Action:
    return own_action(settings, settings.stall_action)


def _set(*clocks: Clock) -> list[Clock]:
    return [clock for clock in clocks if clock.limit_s > 0]
