"""The kind of a call's arguments: names, types and orders of magnitude, no content (C14)."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Final, NamedTuple, cast

_NAMES: Final = 32
_NAMED: Final = 64
_SIZES: Final = ((0, "empty"), (10, "tiny"), (100, "short"), (1_000, "long"), (10_000, "very long"))
_HUGE: Final = "huge"
_SIZED: Final = ((str, "text"), (Mapping, "object"), ((list, tuple), "list"))


class Argument(NamedTuple):
    """One argument.

    Attributes:
        name: Its name; empty where the arguments as a whole have none.
        type: `text`, `number`, `yes or no`, `list`, `object`, `null` or `other`.
        size: Its order of magnitude, as a word; empty where there is none.
    """

    name: str
    type: str
    size: str


Shape = tuple[Argument, ...]


def shape_of(args: object) -> Shape:
    """The kind of arguments; O(number of arguments), of which the first 32 by name count.

    Args:
        args: A mapping of arguments by name, or any other value.
    """
    if not isinstance(args, Mapping):
        return (Argument("", *_kind(args)),)
    named = sorted(
        (str(name)[:_NAMED], value) for name, value in _items(cast("Mapping[object, object]", args))
    )
    return tuple(Argument(name, *_kind(value)) for name, value in named)


def described(shape: Shape) -> str:
    """A shape in words."""
    if not shape:
        return "none"
    return ", ".join(f"{one.name}: {_worded(one)}" if one.name else _worded(one) for one in shape)


def change(shape: Shape, good: Shape | None) -> str:
    """What to change about a call so that it is like one that went well, in a sentence.

    Args:
        shape: The kind of the call that would fail.
        good: The kind of the last call of the tool that went well; None if none is known.
    """
    if good is None:
        return "No call of this tool has gone well yet: look at its description, or leave it."
    have, had = {one.name: one for one in shape}, {one.name: one for one in good}
    advice = [f"leave out {_quoted(name)}" for name in have if name not in had]
    advice += [f"give {_quoted(name)} ({_worded(one)})" for name, one in had.items()
               if name not in have]  # fmt: skip
    advice += [
        f"make {_quoted(name)} {_worded(one)} instead of {_worded(have[name])}"
        for name, one in had.items()
        if name in have and have[name] != one
    ]
    if not advice:
        return "Calls of this kind have gone well before: change what the arguments say."
    return f"As in the last call that went well: {'; '.join(advice[:4])}."


def _items(args: Mapping[object, object]) -> list[tuple[object, object]]:
    items: list[tuple[object, object]] = []
    for name in args:
        items.append((name, args[name]))
        if len(items) == _NAMES:
            break
    return items


def _kind(value: object) -> tuple[str, str]:
    """Type and size of a value."""
    if value is None:
        return "null", ""
    if isinstance(value, bool):
        return "yes or no", ""
    if isinstance(value, (int, float)):
        return "number", _magnitude(value)
    name = next((name for kind, name in _SIZED if isinstance(value, kind)), None)
    return ("other", "") if name is None else (name, _size(len(cast("Sized", value))))


def _size(count: int) -> str:
    return next((word for most, word in _SIZES if count <= most), _HUGE)


def _magnitude(value: float) -> str:
    """Sign and rough size of a number; one that is not finite is of no size."""
    if value == 0:
        return "zero"
    if value < 0:
        return "negative"
    if value < 1:
        return "below 1"
    # Compared, not measured: no logarithm of a number of a thousand digits.
    return "up to 1,000" if value <= 1_000 else "above 1,000"


def _worded(one: Argument) -> str:
    if one.type == "number":
        return (
            f"a number {one.size}"
            if one.size not in ("zero", "negative")
            else f"a {one.size} number"
        )
    return f"{one.size} {one.type}".strip()


def _quoted(name: str) -> str:
    return f"`{name}`" if name else "the arguments"
