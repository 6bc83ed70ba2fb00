"""What the state of a graph's node holds, as keys that compare in O(1)."""

from __future__ import annotations

from itertools import islice
from typing import Final, cast

from otel_loopguard.identity.canonical import bounded, canonical, key_of, parsed, text_bytes
from otel_loopguard.identity.masks import masked_outcome

_MOST: Final = 256
_LOOK: Final = 100_000
_NAMED: Final = 200
_VOLATILE: Final = frozenset(
    ("tool_call_id", "run_id", "checkpoint_id", "checkpoint_ns", "langgraph_step",
     "usage_metadata", "response_metadata", "usage")
)  # fmt: skip
_MESSAGES: Final = (frozenset(("content", "type")), frozenset(("content", "role")))
_CALLS: Final = (frozenset(("name", "args")), frozenset(("function", "type")))


def leaves_of(state: object) -> frozenset[int]:
    """Keys of the values in a state, each with the name that it stands under.

    Order and number of equal values do not matter: a log to which a line is added that it has
    already holds nothing new. Ids of messages and calls, token counts and values that `masks` takes
    for volatile do not count; numbers do.

    Args:
        state: A JSON value or text. Of more than 256 values the newest of each list are looked at,
            and any change of the whole is a new value.
    """
    whole = parsed(state)
    waiting: list[tuple[str, object]] = [("", whole)]
    found: set[int] = set()
    looked = 0
    while waiting and looked < _MOST:
        name, item = waiting.pop()
        looked += 1
        if isinstance(item, dict):
            waiting.extend(_named(cast("dict[object, object]", item)))
        elif isinstance(item, (list, tuple)):
            items = cast("list[object]", item)
            waiting.extend((name, inner) for inner in items[-_MOST:])
        else:
            found.add(_leaf(name, item))
    if waiting:
        found.add(key_of(bounded(canonical(whole), _LOOK)))
    return frozenset(found)


def _named(item: dict[object, object]) -> list[tuple[str, object]]:
    """The entries of a map, without those that differ although nothing is new."""
    without_id = any(item.keys() >= shape for shape in (*_MESSAGES, *_CALLS))
    return [
        (str(name)[:_NAMED], inner)
        for name, inner in islice(item.items(), _MOST + 1)
        if name not in _VOLATILE and not (without_id and name == "id")
    ]


def _leaf(name: str, item: object) -> int:
    raw = text_bytes(item) if isinstance(item, str) else canonical(item)
    # With its name before it, as the masks look for `took`, `created_at` and the like.
    return key_of(masked_outcome(b"%b: %b" % (text_bytes(name), bounded(raw, _LOOK))))
