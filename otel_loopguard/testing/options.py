"""What the marker and the ini option of the pytest plugin say, as settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from otel_loopguard.errors import LoopGuardSettingsError


def options(lines: Iterable[str], marked: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Puts options together; later ones go before earlier ones.

    Args:
        lines: Lines `name = value` of the ini option. A value is JSON where it can be read so,
            else text.
        marked: Keywords of the markers, the farthest from the test first.

    Returns:
        Keywords of `watching`.

    Raises:
        LoopGuardSettingsError: A line has no `=`.
    """
    found: dict[str, Any] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            msg = f"ini option loopguard: expected lines `name = value`, got {line!r}"
            raise LoopGuardSettingsError(msg)
        found[name.strip()] = _value(value.strip())
    for keywords in marked:
        found.update(keywords)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
