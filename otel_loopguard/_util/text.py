r"""Text of any value for people and models: short, or safe for logs and terminals.

Names of sessions and tools, replies of webhooks and notices from a store are written by others. In
a log a line end forges a line; on a terminal an escape sequence moves the cursor or sets the title,
and a sign that turns the direction of writing, or that nobody sees, shows another text than is
there. `printable` writes each such sign as its escape (`\n`, `\x1b`, `\u202e`).

Nothing here is for comparing.
"""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from numbers import Integral, Real
from typing import Any, Final, cast

import orjson

from otel_loopguard._util.fields import is_map

_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2065\u2800\u3164\uffa0"
    # Variation selectors but for the two that choose between text and picture of a symbol.
    + "".join(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
)
"""Signs that Python takes as printable, and that take no place or look like a space."""


class StrEnum(str, Enum):
    """`enum.StrEnum`, which Python 3.10 lacks: the text of a member is its value."""

    __str__ = str.__str__


def expected(what: str, got: object, instead: str = "") -> str:
    """The message about a value of a wrong type: without its content."""
    return f"expected {what}, got {type(got).__name__}" + (f": {instead}" if instead else "")


def named(what: str, given: object) -> str:
    """Returns a text that is not empty.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(given, str) or not given:
        raise ValueError(f"{what} must be a non-empty string, got {given!r:.100}")
    return given


def check_number(
    what: str, given: object, least: float | None = None, *, whole: bool = False,
    finite: bool = False,
) -> None:  # fmt: skip
    """Refuses values that are no numbers (those of numpy are), too small, or infinite.

    Raises:
        TypeError: It is no number, or no whole one.
        ValueError: It is below, or not finite.
    """
    kind = Integral if whole else Real
    if isinstance(given, bool) or not isinstance(given, kind):
        raise TypeError(f"{what} must be a {'whole ' if whole else ''}number, got {given!r:.100}")
    # As it is: a whole number may be too large for a float.
    if least is not None and not cast("Any", given) >= least:
        raise ValueError(f"{what} must be {least:g} or more, got {given!r:.100}")
    if finite and given == math.inf:
        raise ValueError(f"{what} must be finite, got {given!r:.100}")


def check_limit(limit_s: object) -> None:
    """Refuses a limit that is neither a number nor None."""
    if limit_s is not None:
        check_number("limit_s", limit_s)


def printable(text: str) -> str:
    """Escapes control and invisible characters.

    Line ends, control characters, signs of formatting (direction, zero width, tags), lone
    surrogates and signs that are not assigned are written as Python writes their escapes.
    """
    if text.isascii():
        return text if text.isprintable() else _escaped(text)
    if text.isprintable() and _UNSEEN.isdisjoint(text):
        return text
    return _escaped(text)


def _escaped(text: str) -> str:
    return "".join(
        sign if _is_plain(sign) else sign.encode("unicode_escape").decode("ascii") for sign in text
    )


def _is_plain(sign: str) -> bool:
    if sign in _UNSEEN:
        return False
    # Python calls spaces other than the usual one unprintable; in some languages they are usual.
    return sign.isprintable() or unicodedata.category(sign) == "Zs"


_DEPTH: Final = 4
"""Levels of a value that are written; deeper ones do not fit into one line anyway."""


def truncate(value: object, limit: int) -> str:
    """A value as one line of at most `limit` characters, about as JSON would write it.

    The cost depends on the limit and not on the size of the value. Space and line ends become
    single spaces; what is cut ends in `...`.

    Args:
        value: Any value; None gives an empty text.
        limit: Characters, 4 or more.
    """
    if value is None:
        return ""
    room = 2 * limit
    pieces: list[str] = []
    if isinstance(value, str):
        pieces.append(value[:room])
    else:
        _write(value, pieces, room, _DEPTH)
    line = " ".join("".join(pieces).split())
    # No `…`: one sign beyond Latin-1 doubles the memory of the whole text.
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def _write(value: object, pieces: list[str], room: int, depth: int) -> int:
    """Adds the text of a value; returns the room that is left."""
    if isinstance(value, str):
        return _add(f'"{value[:room]}"', pieces, room)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return _contained("{}", (part for pair in pairs for part in pair), pieces, room, depth)
    if isinstance(value, (list, tuple)):
        return _contained("[]", cast("list[object]", value), pieces, room, depth)
    return _add(_plain(value), pieces, room)


def _contained(ends: str, parts: Iterable[object], pieces: list[str], room: int, depth: int) -> int:
    """The parts of a list, or keys and values by turns, as far as there is room."""
    room = _add(ends[0], pieces, room)
    named = ends == "{}"
    for number, part in enumerate(islice(parts, max(room, 0))):
        if room <= 0 or not depth:
            break
        if number:
            room = _add(": " if named and number % 2 else ", ", pieces, room)
        room = _write(part, pieces, room, depth - 1)
    return _add(ends[1], pieces, room)


def _plain(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        # `str` refuses more than 4300 digits.
        return str(value) if abs(value) < 2**63 else "..."
    return f"<{type(value).__name__}>"


def _add(text: str, pieces: list[str], room: int) -> int:
    pieces.append(text)
    return room - len(text)


def encoded(value: Mapping[str, Any] | Sequence[object]) -> bytes:
    """A map or a list as JSON on one line.

    A lone surrogate becomes its escape, a number of more than 64 bits a text.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(_encodable(value))


def json_object(data: bytes, most: int) -> dict[str, Any] | None:
    """The JSON object in at most so many bytes; None for anything else."""
    if len(data) > most:
        return None
    try:
        found: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return found if is_map(found) else None


def parsed_json(data: bytes) -> object:
    """The value of JSON, also of JSON that orjson refuses; raises `ValueError` or `RecursionError`.

    A lone surrogate, as JavaScript writes when it cuts text, becomes a question mark, a number that
    is too large its text, and NaN null.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass

    def number(text: str) -> float | str:
        value = float(text)
        return value if math.isfinite(value) else text

    def whole(text: str) -> float | str:
        return int(text) if len(text) < _DIGITS else number(text)

    found = json.loads(data, parse_int=whole, parse_float=number, parse_constant=lambda _: None)
    return orjson.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))


_DIGITS: Final = 20
"""Digits of the first whole number that 64 bits may not have."""


def _encodable(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {_encodable(str(name)): _encodable(inner) for name, inner in pairs}
    if isinstance(value, (list, tuple)):
        return [_encodable(inner) for inner in cast("list[object]", value)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
        return str(value)
    return value
