"""Fields of untrusted JSON: read if they are what they should be, reported if not, never thrown."""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from typing_extensions import TypeIs

JsonObject = Mapping[str, object]
"""An object of JSON, as it was parsed."""

Report = Callable[[str], None]
"""Called with what was passed over, in a few words without content."""

_MAX_TIME: Final = 2**63 - 1  # the year 2262: nanoseconds of later times do not fit in 64 bits


def is_map(value: object) -> TypeIs[dict[str, object]]:
    """True if a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeIs[list[object]]:
    """True if a JSON value is a list."""
    return isinstance(value, list)


def mapping(value: object) -> JsonObject:
    """The value if it is a map, else an empty one."""
    return value if is_map(value) else {}


def sequence(value: object) -> Sequence[object]:
    """The value if it is a list, else an empty one."""
    return value if is_list(value) else ()


def first(entry: JsonObject, names: Sequence[str]) -> object:
    """The first of several spellings of a field that is there and not null."""
    for name in names:
        value = entry.get(name)
        if value is not None:
            return value
    return None


def rows(entry: JsonObject, names: Sequence[str], report: Report) -> Iterator[JsonObject]:
    """The maps of a list field, under the first of `names` that is there.

    A missing or null field has no rows. What is not a list, and rows that are not maps, are
    reported and passed over.
    """
    value = first(entry, names)
    if value is None:
        return
    if not is_list(value):
        report(f"`{names[0]}` is {kind_of(value)}, expected a list")
    for row in sequence(value):
        if is_map(row):
            yield row
        else:
            report(f"an entry of `{names[0]}` is {kind_of(row)}, expected an object")


def text(value: object) -> str:
    """The value if it is text, else empty text."""
    return value if isinstance(value, str) else ""


def integer(value: object) -> int | None:
    """A whole number, from a number or from its decimal text as protobuf's JSON has it."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def time(value: object, unit: int = 1) -> int | None:
    """A time in nanoseconds since the epoch; None if missing, zero, negative or out of range."""
    count = integer(value)
    if count is None or not 0 < count <= _MAX_TIME // unit:
        return None
    return count * unit


def identifier(value: object, size: int) -> int:
    """A trace or span id of `size` bytes, from hex or from base64; 0 if there is no valid one.

    OTLP/JSON writes hex, protobuf's own JSON base64; both end up in files.
    """
    if not isinstance(value, str) or not value:
        return 0
    try:
        if value[-1] == "=":
            raw = base64.b64decode(value, validate=True)
            return int.from_bytes(raw, "big") if len(raw) == size else 0
        known = int.from_bytes(bytes.fromhex(value.rjust(2 * size, "0")), "big")
    except (ValueError, binascii.Error):
        return 0
    return known if len(value) <= 2 * size else 0


def numbered(name: str, size: int) -> int:
    """A name as an id of `size` bytes, the same for the same name; never 0."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "big") or 1


def decoded(value: object) -> object:
    """The bytes behind base64 text; the value itself if it is none."""
    try:
        return base64.b64decode(text(value), validate=True) if isinstance(value, str) else value
    except (ValueError, binascii.Error):
        return value


def kind_of(value: object) -> str:
    """The type of a JSON value, in words."""
    return _NAMES.get(type(value), "null")


_NAMES: Mapping[type[Any], str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
}


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_TIME: Final = re.compile(
    r"\A(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](\d{1,9})\d*)?(?:Z|([+-]\d\d):?(\d\d)?)?\Z"
)


def instant(value: object) -> int:
    """A time in nanoseconds since the epoch, of ISO text or milliseconds; 0 if it is none."""
    if not isinstance(value, str):
        count = integer(value)
        return count * 1_000_000 if count is not None and 0 < count < 9_000_000_000_000 else 0
    found = _TIME.match(value)
    if found is None:
        return 0
    try:
        moment = datetime.fromisoformat(found[1]).replace(tzinfo=timezone.utc)
    except ValueError:
        return 0
    shift = int(found[3]) * 60 + int(f"{found[3][0]}{found[4] or 0}") if found[3] else 0
    micros = (moment - _EPOCH) // _MICROSECOND - shift * 60_000_000
    return max(0, micros * 1_000 + int((found[2] or "0").ljust(9, "0")))
