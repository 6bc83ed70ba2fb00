"""Whether a call only revises a little what the call before asked, and what it got."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rapidfuzz import fuzz

from otel_loopguard.identity.canonical import canonical, key_of
from otel_loopguard.identity.masks import without_nonces, without_volatile
from otel_loopguard.identity.texts import cut

if TYPE_CHECKING:
    from otel_loopguard.identity.calls import Call
    from otel_loopguard.identity.outcomes import Outcome

_LEAST: Final = 200
_EACH: Final = 1_000
_TOOLS: Final = 4
_ALIKE: Final = 90.0
"""Percent of both samples that are common where a call revises."""


class _Revised(NamedTuple):
    """What a call got and gave, and the key of its short arguments."""

    given: str
    got: str
    others: int


class Revisions:
    """Compares each call with the one before of the same tool and agent.

    Of the newest 4 tools the last arguments and outcome are kept, 2,000 characters each, in the
    process only; short ones (below 200) are not kept, and revise nothing.
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: OrderedDict[int, _Revised] = OrderedDict()

    def revises(self, call: Call, outcome: Outcome) -> bool:
        """Whether arguments and outcome are nearly what they were, and one of them differs."""
        if len(call.raw) < _LEAST or outcome.size < _LEAST:
            self._last.pop(call.seed, None)
            return False
        now = _Revised(_sample(call.raw), _sample(outcome.raw), _others(call.arguments))
        before = self._last.pop(call.seed, None)
        self._last[call.seed] = now
        if len(self._last) > _TOOLS:
            self._last.popitem(last=False)
        return (
            before is not None
            and before != now
            and before.others == now.others
            and _alike(before.given, now.given)
            and _alike(before.got, now.got)
        )


def _alike(one: str, other: str) -> bool:
    return fuzz.ratio(one, other, score_cutoff=_ALIKE) > 0


def _sample(raw: bytes) -> str:
    return cut(raw[: 1 << 16].decode("utf-8", "replace"), _EACH)


def _others(arguments: object) -> int:
    """Key of all arguments but long texts and volatile values."""
    if not isinstance(arguments, dict):
        return 0
    named = without_nonces(without_volatile(cast("dict[str, object]", arguments)))
    return key_of(
        canonical(
            {
                name: None if isinstance(value, str) and len(value) >= _LEAST else value
                for name, value in named.items()
            }
        )
    )
