"""Values that others wrote, as what they mean: of any type, JSON text of one, cut, or hidden.

None stands for what is not there or not known, and is never empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Final, cast

from otel_loopguard._util.bounded import loads

_SCRUBBED: Final = "[Scrubbed due to "
_SCRUB: Final = re.compile(r"""\[Scrubbed[ ]due[ ]to[ ](?:'[^'\n]{1,200}'|"[^"\n]{1,200}")\]""")
_SCRUB_IN_JSON: Final = re.compile(
    r"""[:\[,]\s{0,2}"\[Scrubbed[ ]due[ ]to[ ](?:'[^'"\n]{1,200}'|\\"[^"\n]{1,200}\\")\]"
    (?=\s{0,2}[,}\]])""",
    re.VERBOSE,
)
_MASK: Final = re.compile(
    r"""\A(?:[\[<({_*#]+[ ]?(?:fully[ ])?
    (?:redacted|masked|hidden|filtered|scrubbed|replaced|omitted|not[ ]serializable|not[ ]specified)
    (?![a-z])[^\n]*[\]>)}_*#]
    | \*{2}[*\-. /]+ | redacted)""",
    re.IGNORECASE | re.VERBOSE,
)
_MASK_CHARS: Final = 64
"""Characters of the longest mask. The longest seen, Langfuse's `<fully masked due to failed mask
function>`, has 42; longer text is content that begins like one."""
_MASKED_JSON_CHARS: Final = 10_000
"""Characters of JSON that is parsed to see whether all it holds is masked (50 µs). Masks are short:
what is longer holds content as well."""
_SCRUB_LOOKS: Final = 1_000
"""Values of JSON, and of JSON inside it, among which a scrubbed one is looked for (1 ms). A text
with more is searched by the pattern alone, which misses JSON inside JSON."""
_MOST_TOKENS: Final = 10**12
"""No model has read or written more: a larger count is a mistake, and would eat a budget whole."""
_OPENERS: Final = frozenset('{["')
_JSON: Final = frozenset(('{"', '["'))
"""Beginnings of JSON that are no beginnings of masks."""
LONGEST_ID: Final = 1_000
"""Characters of the longest id: an address has some hundreds. A table keeps thousands of them."""
SUSPECT: Final = frozenset('[<({_*#Rr"')
"""Beginnings of text that may be hidden; other text need not be asked about."""
_PLAIN: Final = frozenset((str, dict, list, tuple, int, float, bool, bytes))
_ABSENT: Final = frozenset(("", "null", "None"))


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
    """The value if it is a count up to 10^12, also one written as text; else None."""
    # Bounded first: `int` raises for text of more than 4,300 digits.
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if 0 <= value <= _MOST_TOKENS else None
    return None


def first_count(attributes: Mapping[str, object], keys: Sequence[str]) -> int | None:
    """The count under the first of these keys that has one."""
    for key in keys:
        found = count(attributes.get(key))
        if found is not None:
            return found
    return None


def identifier(value: object) -> str | None:
    """An id as text; None for other values, scrubbed or overlong ones, and a written `null`."""
    if isinstance(value, str) and value[:1] in SUSPECT:
        value = known(unquoted(value))
    if isinstance(value, str):
        return None if value in _ABSENT or len(value) > LONGEST_ID else value
    if isinstance(value, int) and not isinstance(value, bool):
        # Ids of 128 bits are written as numbers; longer ones are attacks on `str`.
        return str(value) if value.bit_length() <= 128 else None
    return None


def is_long(value: object, most: int) -> bool:
    """True if a value has more characters than `most` in all, or is not a value of JSON."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind not in _PLAIN:
            return one is not None
        most -= len(cast("str", one)) if kind is str else getsizeof(one)
        if most < 0:
            return True
        if kind is dict:
            named = cast("dict[object, object]", one)
            waiting += [*named, *named.values()]
        elif kind is list or kind is tuple:
            waiting += cast("list[object]", one)
    return False


def parsed(value: object) -> object:
    """The value of JSON text of an object, a list or a string; other values as they are.

    Text that was cut does not parse and stays text, and so does text that is too costly to parse
    (`bounded.loads`).
    """
    if isinstance(value, str) and value[:1] in _OPENERS and value:
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def unquoted(value: object) -> object:
    """The string in JSON text of one; other values as they are."""
    return parsed(value) if isinstance(value, str) and value[:1] == '"' == value[-1:] else value


def known(value: object) -> object:
    """The value, or None if it is hidden."""
    return None if hidden(value) else value


def hidden(value: object) -> bool:
    """True if something stands in place of the value, which is unknown then.

    What keeps content off spans leaves the same word for every call: `__REDACTED__` (OpenInference,
    `OPENINFERENCE_HIDE_INPUTS` and others), `[REDACTED]` (Strands), `[Scrubbed due to …]`
    (logfire), `<fully masked due to …>` (Langfuse), `***` and the like of people's own masks. So
    does what cannot be written: `<replaced>` (Strands), `<not serializable>` (ADK). A map is hidden
    if all of its values are, and JSON if logfire scrubbed one of its values. A mask within a longer
    text hides nothing.
    """
    # First of all: a text of megabytes that begins like no mask is not searched.
    if not isinstance(value, str) or value[:1] not in SUSPECT:
        return False
    if value[:2] not in _JSON and len(value) <= _MASK_CHARS and _MASK.fullmatch(value):
        return True
    if _SCRUBBED in value and value[0] in _OPENERS and _scrubbed(value):
        return True
    if len(value) > _MASKED_JSON_CHARS:
        return False
    # One by one: a pattern for all three takes ten times as long.
    if "REDACTED" not in value and "***" not in value and "redacted" not in value:
        return False
    inner = parsed(value)
    found = mapping(inner)
    values = (inner,) if found is None else found.values()
    return all(isinstance(one, str) and _MASK.fullmatch(one) for one in values)


def _scrubbed(value: str) -> bool:
    """True if a value, or one within its JSON or JSON in JSON, was scrubbed."""
    if _SCRUB.fullmatch(value) is not None:
        return True
    whole = parsed(value)
    # A text that does not parse is cut, or too costly.
    waiting = [] if whole is value else [whole]
    for _ in range(_SCRUB_LOOKS if waiting else 0):
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


def within(value: object, *path: str) -> object:
    """The value at a path of keys in maps and in JSON text of maps; None if there is none."""
    for key in path:
        inner = mapping(parsed(value))
        if inner is None:
            return None
        value = inner.get(key)
    return value


def entry(written: object, key: str) -> str | None:
    """The id under a key of a JSON map, which is searched if it was cut and does not parse."""
    found = mapping(parsed(written))
    if found is not None:
        return identifier(found.get(key))
    if not isinstance(written, str):
        return None
    value, closed, _ = written.partition(f'"{key}": "')[2].partition('"')
    return identifier(value) if closed else None


def texts(value: object) -> object:
    """The text of blocks of text (`[{"text": …}]`), one a line; other values as they are."""
    blocks = listing(parsed(value))
    if not blocks:
        return value
    found = [(mapping(block) or {}).get("text") for block in blocks]
    said = [block for block in found if isinstance(block, str)]
    return "\n".join(said) if len(said) == len(found) else value
