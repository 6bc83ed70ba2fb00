"""An optional judge: a model of the user's, asked off the agent's path about weak signs (D15)."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, cast

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.judge.clerk import Clerk
from otel_loopguard.judge.detector import JudgeDetector, JudgeSeats
from otel_loopguard.judge.question import Glance, Judge, Opinion, Question

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings

__all__ = ["Glance", "Judge", "JudgeDetector", "JudgeSeats", "Opinion", "Question", "judges"]


def judges(
    settings: Settings, faults: Faults, given: Judge | None, *, live: bool
) -> tuple[JudgeSeats, ...]:
    """The judge as something to register beside the detectors; nothing if there is none.

    Args:
        settings: Settings of the guard.
        faults: Where failures of the judge are counted.
        given: The judge that the guard was given; goes before the setting.
        live: Whether the guard is live; in replay the judge of the settings is not asked, for what
            was recorded may not be meant for a model.

    Raises:
        LoopGuardSettingsError: The setting `judge` cannot be imported, or the judge not be called.
    """
    place = settings.judge if live else ""
    judge = cast("Judge", _imported(place)) if given is None and place else given
    if judge is None:
        return ()
    if not callable(judge):
        raise LoopGuardSettingsError(_refused(place or judge, "expected a callable"))
    return (JudgeSeats(Clerk(judge, settings, faults)),)


def _imported(place: str) -> object:
    try:
        return pkgutil.resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise LoopGuardSettingsError(_refused(place, f"cannot be imported: {error}")) from None


def _refused(place: object, why: str) -> str:
    return f"judge (LOOPGUARD_JUDGE) = {place!r}: {why}"
