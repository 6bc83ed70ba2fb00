"""The time that a record starts with."""

from __future__ import annotations

import re
import time
from typing import Final

_JSON: Final = re.compile(rb"\A\s*\[\s*(\d{1,19})(?=[\s,\]])")
_MSGPACK: Final = re.compile(
    rb"(?:[\x90-\x9f]|\xdc..|\xdd....)(?:[\xcf\xd3])(.{8})", flags=re.DOTALL
)
_LATEST: Final = 1 << 62


def time_of(record: bytes) -> int:
    """When a record was made, nanoseconds since the epoch.

    Args:
        record: Starts with eight bytes, big endian; or is a JSON or msgpack list that has the time
            first. A record that does not is taken to be made now: it is kept, not refused.
    """
    json = _JSON.match(record)
    if json is not None:
        return min(int(json[1]), _LATEST)
    packed = _MSGPACK.match(record)
    if packed is not None:
        return min(int.from_bytes(packed[1], "big"), _LATEST)
    found = int.from_bytes(record[:8], "big") if len(record) >= 8 else _LATEST
    return found if found < _LATEST else time.time_ns()
