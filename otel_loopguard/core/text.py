"""Short text of any value, for people and models; never for comparing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, cast

_DEPTH: Final = 4


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
    """Adds the text of a value; gives the room that is left."""
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
