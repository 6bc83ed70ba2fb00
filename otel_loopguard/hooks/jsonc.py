"""Changes one member of JSON with comments; all else stays as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

# A text or a comment that does not end goes to the end of all: trying anew from each of its quotes
# would take time by the square of its length.
_COMMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_LAST_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|,(?=\s*[}\]])', re.DOTALL)
# Blanks, and the colon behind a key.
_SPACE: Final = re.compile(r"[\s:]*")
_STRING: Final = json.JSONDecoder().raw_decode


def loads(text: str) -> Any:
    """The value of a text.

    Raises:
        ValueError: It is no JSON, not even with comments and commas at the end.
    """
    try:
        return json.loads(_blanked(_LAST_COMMA, _uncommented(text)))
    except json.JSONDecodeError as error:
        msg = f"invalid JSON: {error}"
    except RecursionError:
        msg = "nested too deep"
    raise ValueError(msg)


def with_member(text: str, name: str, value: object) -> str:
    """The text of an object with another value for one member; without the member for None.

    Comments and layout within the old value are lost. A new member stands behind all others.
    """
    commas = _uncommented(text)
    plain = _blanked(_LAST_COMMA, commas)
    members = list(_members(plain))
    newline = "\r\n" if "\r\n" in text else "\n"
    found = re.search(r"^[ \t]+(?=\S)", text, re.MULTILINE)
    indent = found[0] if found else "  "
    written = json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", newline + indent)
    written = written.encode(errors="backslashreplace").decode()  # a lone surrogate stays an escape
    for key, start, begin, end in reversed(members):  # of two with one name the last one counts
        if key == name:
            if value is not None:
                return text[:begin] + written + text[end:]
            return _without(text, commas, start, end, is_first=start == members[0][1])
    if value is None:
        return text
    close = plain.rindex("}")
    body = text[:close].rstrip()
    last = members[-1][3] if members else close
    if members and "," not in commas[last:close]:
        body = f"{body[:last]},{body[last:]}"
    return f"{body}{newline}{indent}{json.dumps(name)}: {written}{newline}{text[close:]}"


def _without(text: str, commas: str, start: int, end: int, *, is_first: bool) -> str:
    """The text without a member, its comma and the rest of its line."""
    after = _after_space(commas, end)
    head = text[:start].rstrip()
    if commas[after] == ",":
        return head + text[end:after] + text[after + 1 :]
    if not is_first:
        comma = commas.rindex(",", 0, start)
        head = head[:comma] + head[comma + 1 :]
    return head + text[end:]


def _members(plain: str) -> Iterator[tuple[str, int, int, int]]:
    """The members of an object: key, where it begins, and where its value begins and ends."""
    place = plain.index("{") + 1
    while plain.startswith('"', start := _after_space(plain, place)):
        key, end = _STRING(plain, start)
        begin = _after_space(plain, end)
        _, end = _STRING(plain, begin)
        yield key, start, begin, end
        place = _after_space(plain, end) + 1


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return place if found is None else found.end()


def _uncommented(text: str) -> str:
    return _blanked(_COMMENT, text.replace("\ufeff", " ", 1) if text[:1] == "\ufeff" else text)


def _blanked(pattern: re.Pattern[str], text: str) -> str:
    """The text with blanks for what a pattern finds besides strings; all stays in its place."""
    return pattern.sub(
        lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text
    )
