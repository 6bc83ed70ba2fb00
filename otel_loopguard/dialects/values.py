"""Attribute values as what they mean: text, counts, JSON; unknown where they say nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.bounded_json import loads
from otel_loopguard.core import Kind, Step

if TYPE_CHECKING:
    from otel_loopguard.dialects.view import SpanView

_SCRUBBED = "[Scrubbed due to "
_SCRUB = re.compile(r"""\[Scrubbed[ ]due[ ]to[ ](?:'[^'\n]{1,200}'|"[^"\n]{1,200}")\]""")
_SCRUB_IN_JSON = re.compile(
    r"""[:\[,]\s{0,2}"\[Scrubbed[ ]due[ ]to[ ](?:'[^'"\n]{1,200}'|\\"[^"\n]{1,200}\\")\]"
    (?=\s{0,2}[,}\]])""",
    re.VERBOSE,
)
_WALKED = 1_000
_LONGEST = 64
_PARSED = 10_000
_COUNTED = 10**12
_DIGITS = 19
_TAKEN_OUT: Final = re.compile(
    r"""\A(?:[\[<({_*#]+[ ]?(?:fully[ ])?
    (?:redacted|masked|hidden|filtered|scrubbed|replaced|omitted|not[ ]serializable|not[ ]specified)
    (?![a-z])[^\n]*[\]>)}_*#]
    | \*{3,} | redacted)""",
    re.IGNORECASE | re.VERBOSE,
)
_MASKS = frozenset("[<({_*#Rr")
_OPENERS = frozenset('{["')
_ABSENT = frozenset(("", "null", "None"))


def text(value: object) -> str | None:
    """The value if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def mapping(value: object) -> Mapping[str, object] | None:
    """The value if it is a map, else None."""
    # Asking an abstract class costs ten times as much as asking `dict`.
    if isinstance(value, dict) or (value is not None and isinstance(value, Mapping)):
        return cast("Mapping[str, object]", value)
    return None


def listing(value: object) -> list[object] | tuple[object, ...] | None:
    """The value if it is a list or a tuple, else None."""
    return cast("list[object]", value) if isinstance(value, (list, tuple)) else None


def count(value: object) -> int | None:
    """A count, also one written as text (`"3287"`, as recordings have it); else None.

    What no model can have read or written, more than 10^12, is no count but a mistake.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < _DIGITS else None
    if isinstance(value, (int, float)) and 0 <= value <= _COUNTED:
        return int(value)
    return None


def identifier(value: object) -> str | None:
    """An id as text; None for what is no id, is scrubbed, or is a written `null`."""
    if value is None:
        return None
    value = unquoted(value)
    if isinstance(value, str):
        return None if value in _ABSENT or hidden(value) else value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 129 else None
    return None


def parsed(value: object) -> object:
    """JSON value of text that holds a JSON object, list or string; else the value as it is.

    Text that was cut by a limit does not parse and stays text, and so does text that is too costly
    to parse (`bounded_json`).
    """
    if isinstance(value, str) and value[:1] in _OPENERS and value:
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def unquoted(value: object) -> object:
    """JSON text that holds one string, as that string; else the value as it is."""
    if isinstance(value, str) and value[:1] == '"' and value[-1:] == '"':
        return parsed(value)
    return value


def captured(span: SpanView, *keys: str) -> object:
    """Value of the first key that is there; None if there is none, or if it is hidden.

    A hidden value is looked up among the attributes that another processor has not changed yet.
    """
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return revealed(span, key, value)
    return None


def revealed(span: SpanView, key: str, value: object) -> object:
    """The value, or what it was before it was hidden, or None if that is not known."""
    if not hidden(value):
        return value
    earlier = span.start_attributes
    return None if earlier is None else known(earlier.get(key))


def known(value: object) -> object:
    """The value, or None if it is hidden."""
    return None if hidden(value) else value


def hidden(value: object) -> bool:
    """Whether something stands in place of the value: it is unknown, and equal to nothing.

    What keeps content off spans leaves a word in its place, the same for every call:
    `__REDACTED__` (OpenInference, `OPENINFERENCE_HIDE_INPUTS` and others), `[REDACTED]` (Strands),
    `[Scrubbed due to …]` (logfire), `<fully masked due to …>` (Langfuse), `***` and the like of
    people's own masks. So does what cannot be written (`<replaced>` of Strands,
    `<not serializable>` of ADK). A map is hidden if all of its values are redacted, and JSON if
    logfire scrubbed one of its values; the words of a mask inside of a longer text hide nothing.
    """
    if not isinstance(value, str):
        return False
    if len(value) <= _LONGEST and _taken_out(value):
        return True
    # A text of megabytes is not searched for it where it begins like none.
    if (
        value[:1] in _OPENERS
        and _SCRUBBED in value
        and (_SCRUB.fullmatch(value) is not None or _scrubbed(value))
    ):
        return True
    return len(value) <= _PARSED and "REDACTED" in value and _emptied(value)


def _scrubbed(value: str) -> bool:
    """Whether a value within JSON was scrubbed; logfire scrubs JSON within JSON as well."""
    if value[:1] not in _OPENERS:
        return False
    whole = parsed(value)
    if whole is value:
        # It is cut, or too costly to parse.
        return _SCRUB_IN_JSON.search(value) is not None
    waiting: list[object] = [whole]
    for _ in range(_WALKED):
        if not waiting:
            return False
        one = waiting.pop()
        if isinstance(one, str) and _SCRUBBED in one:
            if _SCRUB.fullmatch(one) is not None:
                return True
            one = parsed(one)
        inner = mapping(one)
        waiting.extend((listing(one) or ()) if inner is None else inner.values())
    return _SCRUB_IN_JSON.search(value) is not None


def _emptied(value: str) -> bool:
    """Whether text is that of a map, or of one string, with nothing left in it."""
    inner = parsed(value)
    found = mapping(inner)
    values = (inner,) if found is None else found.values()
    return all(isinstance(one, str) and _taken_out(one) for one in values)


def _taken_out(value: str) -> bool:
    return value[:1] in _MASKS and _TAKEN_OUT.fullmatch(value) is not None


def within(value: object, *path: str) -> object:
    """Value at a path of keys inside maps, parsing JSON text on the way; None if it ends."""
    for key in path:
        inner = mapping(parsed(value))
        if inner is None:
            return None
        value = inner.get(key)
    return value


def entry(written: object, key: str) -> str | None:
    """An id in a JSON map that may have been cut: read if it parses, else searched.

    Args:
        written: Text of a JSON map, or a map.
        key: Key at the top of the map.
    """
    found = mapping(parsed(written))
    if found is not None:
        return identifier(found.get(key))
    if not isinstance(written, str):
        return None
    _, _, rest = written.partition(f'"{key}": "')
    value, closed, _ = rest.partition('"')
    return identifier(value) if closed else None


def begin(span: SpanView, kind: Kind, name: str | None, dialect: str) -> Step:
    """A step with what every span has: ids, scope and times."""
    return Step(
        kind,
        name,
        dialect,
        span.scope,
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start,
        span.end,
    )
