"""Requests and replies as they travel: one JSON object, of bounded size."""

from __future__ import annotations

from typing import Any, Final, cast

import orjson

MOST_REQUEST: Final = 16_384
"""Bytes of a request."""
MOST_REPLY: Final = 4 * 1024 * 1024
"""Bytes of a reply: a thousand sessions take about half a megabyte."""

Message = dict[str, Any]


def decoded(data: bytes, most: int) -> Message | None:
    """The message of a line; None if it is too long, or no JSON object.

    Args:
        data: The line.
        most: Bytes that it may have.
    """
    if len(data) > most:
        return None
    try:
        found: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return cast("Message", found) if isinstance(found, dict) else None


def refusal(code: str, why: str) -> Message:
    """The reply to what cannot be done.

    Args:
        code: What kind of trouble it is: `unknown_session`, `unknown_escalation`, `refused`, …
        why: A sentence for people.
    """
    return {"ok": False, "error": code, "message": why}
