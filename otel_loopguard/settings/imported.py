"""What settings name as `module:name`."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from otel_loopguard.errors import LoopGuardSettingsError


def imported(setting: str, place: object, expected: str) -> Any:
    """The callable that a setting names, or that was given in its place.

    Raises:
        LoopGuardSettingsError: It cannot be imported, or not be called.
    """
    found, why = place, f"expected {expected}"
    if isinstance(place, str):
        try:
            found = resolve_name(place)
        except (ImportError, AttributeError, ValueError) as error:
            found, why = None, f"cannot be imported: {error}"
    if not callable(found):
        msg = f"{setting} (LOOPGUARD_{setting.upper()}) = {place!r}: {why}"
        raise LoopGuardSettingsError(msg) from None
    return found
