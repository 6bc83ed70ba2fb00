"""What past runs say about how long something may take, and when that is first asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings


class Limits(Protocol):
    """What past runs say about how long something may take. Answered from memory, in seconds."""

    def limit_for(self, tool: str, args: object = None) -> float | None:
        """When a call is a stall: three times its estimate (D4); None without an estimate."""
        ...

    def time_limit(self, tool: str, args: object = None) -> float:
        """How long a call may take: five times its estimate, within 30 to 600 s (D14)."""
        ...

    def agent_limit(self, agent: str) -> float:
        """How long a run of an agent may take, in the same way (E3)."""
        ...


def first_look(settings: Settings) -> int:
    """Nanoseconds after which an open span is looked at first: nothing is late before that."""
    own = [tool.step_timeout_s for tool in settings.tools.values() if tool.step_timeout_s]
    limits = [settings.step_timeout_s, settings.profile_limit_min_s, *own]
    if settings.stall_model_s:
        limits.append(settings.stall_model_s)
    first = min(min(limits) * settings.stall_warning, settings.profile_stall_min_s)
    return round(first * 1e9)
