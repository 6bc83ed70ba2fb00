"""Fields of what a coding agent sends, which may be missing or of any type, and texts sent back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from otel_loopguard.spans.coding_tools import shown

if TYPE_CHECKING:
    from otel_loopguard.hooks.events import HookAnswer

_LONGEST_ID: Final = 512
_LONGEST_PARSED: Final = 1_000_000
_LONGEST_TOLD: Final = 8_000
"""Codex cuts what it passes on at about 10,000 characters."""
_YEAR_MS: Final = 365 * 24 * 3_600_000
_TIMES: Final = frozenset(("durationMs", "durationSeconds", "totalDurationMs"))


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a map, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def listing(value: object) -> list[object]:
    """The value if it is a list, else an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text(value: object) -> str | None:
    """The value if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def identifier(payload: Mapping[str, Any], *keys: str) -> str | None:
    """The first of these fields that can be an id."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID:
            return value
    return None


def parsed(value: object) -> object:
    """The value of JSON text; other values, and text that is none, as they are."""
    if not isinstance(value, str) or len(value) > _LONGEST_PARSED or value[:1] not in '{["':
        return value
    try:
        return orjson.loads(value)  # what it cannot write again is no value here, but text
    except orjson.JSONDecodeError:
        return value


def arguments(value: object) -> Mapping[str, Any] | None:
    """Arguments of a call: a map, or JSON text of one; other values under the name `input`."""
    found = parsed(value)
    if isinstance(found, dict):
        return cast("Mapping[str, Any]", found)
    return None if found is None else {"input": found}


def nanoseconds(milliseconds: object) -> int | None:
    """A duration in nanoseconds; None for what is no duration."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return int(milliseconds * 1_000_000) if 0 <= milliseconds <= _YEAR_MS else None


def result(value: object) -> object:
    """What a tool answered, without what differs between equal answers."""
    content = mapping(value).get("content")
    answer = shown(cast("object", content) if isinstance(content, list) else value)
    if not isinstance(answer, dict):
        return answer
    found = cast("dict[str, Any]", answer)
    return {key: each for key, each in found.items() if key not in _TIMES}


def reason(answer: HookAnswer) -> str:
    """Why a call is refused or a turn ended, never empty, with the hint behind it."""
    return _joined(answer.reason or "refused by otel-loopguard", answer.hint)


def hint(answer: HookAnswer) -> str:
    """The message to the model if nothing can be refused; empty without one."""
    return _joined(answer.reason, answer.hint)


def _joined(*parts: str) -> str:
    return "\n".join(part for part in parts if part)[:_LONGEST_TOLD]
