"""Settings of several places as one: what comes later takes precedence, value by value."""

from collections.abc import Mapping
from typing import Any


def merged(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values; tables such as `tuning` are merged and not replaced."""
    found: dict[str, Any] = {}
    for values in given:
        for name, value in values.items():
            known = found.get(name)
            both = isinstance(known, dict) and isinstance(value, dict)
            found[name] = merged(known, value) if both else value
    return found
