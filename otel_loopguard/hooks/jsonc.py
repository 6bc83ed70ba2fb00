"""JSON with comments, edited in place: everything else stays as it was written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Path = tuple["str | int", ...]
"""Keys of objects and places in lists, from the outside in."""

_BLANK: Final = re.compile(r"[ \t\r\n]+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCALAR: Final = re.compile(r"[-+.\w]+")
# Python recurses a thousand levels, of which one of JSON takes two.
_DEPTH: Final = 100
_STRING: Final = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class _Node:
    """A value and where it stands."""

    value: Any
    start: int
    end: int
    members: dict[str | int, _Node] = field(default_factory=dict["str | int", "_Node"])
    starts: dict[str | int, int] = field(default_factory=dict["str | int", int])
    """Where each member begins, with its key."""
    comma: int | None = None
    """Where a comma stands behind the last member."""


def loads(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: It is no JSON, not even with comments and commas at the end.
    """
    return _parsed(text).value


def append(text: str, path: Sequence[str], value: object) -> str:
    """The text with a value at the end of the list at a path, which is made where there is none.

    Raises:
        ValueError: The text is no JSON, or something else than objects and a list is at the path.
    """
    node = _parsed(text)
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise _unlike(path[:depth], "an object")
        if key not in node.members:
            made: object = [value]
            for missing in reversed(path[depth + 1 :]):
                made = {missing: made}
            return _added(text, node, {key: made})
        node = node.members[key]
    if not isinstance(node.value, list):
        raise _unlike(path, "a list")
    return _added(text, node, [value])


def remove(text: str, path: Path, kept: Collection[Path] = ()) -> str:
    """The text without what is at a path, and without what is empty by that.

    Args:
        text: The text.
        path: Where it is.
        kept: Objects and lists that stay, empty too.

    Raises:
        ValueError: The text is no JSON.
    """
    holders = [_parsed(text)]
    for key in path[:-1]:
        holders.append(holders[-1].members[key])
    while (
        len(holders) > 1 and len(holders[-1].members) == 1 and path[: len(holders) - 1] not in kept
    ):
        holders.pop()
    return _without(text, holders[-1], path[len(holders) - 1])


def _unlike(path: Sequence[str], wanted: str) -> ValueError:
    return ValueError(f"expected {wanted} at {'.'.join(path) or 'the top'}")


def _added(text: str, holder: _Node, member: dict[str, Any] | list[Any]) -> str:
    """The text with one more member behind the others, indented as they are."""
    newline = "\r\n" if "\r\n" in text else "\n"
    outer = _indent(text, holder.start)
    unit = _unit(text)
    written = json.dumps(member, indent=unit, ensure_ascii=False).split("\n")[1:-1]
    lines = newline.join(outer + line for line in written)
    close = holder.end - 1
    body = text[:close].rstrip()
    if holder.members and holder.comma is None:
        last = max(node.end for node in holder.members.values())
        body = f"{body[:last]},{body[last:]}"
    return f"{body}{newline}{lines}{newline}{outer}{text[close:]}"


def _without(text: str, holder: _Node, key: str | int) -> str:
    """The text without a member, its comma and the rest of its line."""
    start, end = holder.starts[key], holder.members[key].end
    before = max((node.end for node in holder.members.values() if node.end < start), default=None)
    after = _space(text, end)
    if text[after] == ",":
        return text[:start].rstrip() + text[end:after] + text[after + 1 :]
    kept = text[:start].rstrip() + text[end:]
    if before is None:
        return kept
    comma = text.index(",", _space(text, before))
    return kept[:comma] + kept[comma + 1 :]


def _indent(text: str, place: int) -> str:
    """What stands before the first word of a line."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip())]


def _unit(text: str) -> str:
    found = re.search(r"^[ \t]+(?=\S)", text, re.MULTILINE)
    return found[0] if found else "  "


def _parsed(text: str) -> _Node:
    place = _space(text, 1 if text.startswith("\ufeff") else 0)
    node = _node(text, place, 0)
    if _space(text, node.end) != len(text):
        raise _fault(text, node.end, "expected the end")
    return node


def _fault(text: str, place: int, what: str) -> ValueError:
    line = text.count("\n", 0, place) + 1
    return ValueError(f"{what} in line {line}")


def _space(text: str, place: int) -> int:
    """Where blanks and comments end that begin at a place."""
    while found := _BLANK.match(text, place):
        place = found.end()
    return place


def _node(text: str, place: int, depth: int) -> _Node:
    mark = text[place : place + 1]
    if depth > _DEPTH:
        raise _fault(text, place, "nested too deep")
    if mark == "{":
        return _holder(text, _Node({}, place, place), "}", depth)
    if mark == "[":
        return _holder(text, _Node([], place, place), "]", depth)
    if mark == '"':
        return _string(text, place)
    found = _SCALAR.match(text, place)
    try:
        return _Node(json.loads(found[0] if found else ""), place, found.end() if found else place)
    except ValueError:
        raise _fault(text, place, "expected a value") from None


def _string(text: str, place: int) -> _Node:
    try:
        value, end = _STRING(text, place)
    except ValueError:
        raise _fault(text, place, "a string does not end, or has a bad escape") from None
    return _Node(value, place, end)


def _holder(text: str, node: _Node, close: str, depth: int) -> _Node:
    place = _space(text, node.start + 1)
    while text[place : place + 1] != close:
        if node.members and node.comma is None:
            raise _fault(text, place, f"expected a comma or {close}")
        start, key = place, len(node.members)
        if close == "}":
            named = _string(text, place) if text[place : place + 1] == '"' else None
            colon = _space(text, named.end) if named else place
            if named is None or text[colon : colon + 1] != ":":
                raise _fault(text, place, "expected a key")
            key, place = named.value, _space(text, colon + 1)
        member = _node(text, place, depth + 1)
        if key in node.members:
            raise _fault(text, start, f"{key!r:.60} a second time")
        node.members[key], node.starts[key] = member, start
        if close == "]":
            node.value.append(member.value)
        else:
            node.value[key] = member.value
        place = _space(text, member.end)
        node.comma = place if text[place : place + 1] == "," else None
        place = _space(text, place + 1) if node.comma is not None else place
    node.end = place + 1
    return node
