"""The stop line: how many confirmations of a loop, after its hint, hold or end the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

HIGHEST: Final = 100
"""The highest line that the settings take."""


def changes(settings: Settings, line: int) -> dict[str, int]:
    """The settings that put the stop line somewhere.

    Deny and pause stand on the line, abort as far above it as it stands above deny now.

    Args:
        settings: The settings as they are.
        line: Confirmations after a hint, 1 to 100.
    """
    apart = max(0, settings.abort_after - settings.deny_after)
    return {
        "deny_after": line,
        "pause_after": line,
        "abort_after": min(line + apart, HIGHEST),
    }


def at_line(settings: Settings, line: int) -> Settings:
    """The settings with the stop line somewhere else."""
    return settings.model_copy(update=changes(settings, line))
