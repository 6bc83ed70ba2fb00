"""The identity of a call: agent, tool and arguments, as keys."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from rapidfuzz import fuzz

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.evidence.model_text import cut
from otel_loopguard.evidence.normalize import (
    VolatileArguments,
    bounded,
    canonical,
    is_cut_json,
    key_of,
    masked_call,
    text_bytes,
    without_nonces,
    without_volatile,
)
from otel_loopguard.evidence.outcomes import arguments_of, reading_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.evidence.outcomes import Outcome
    from otel_loopguard.settings import Settings

NAMED: Final = 200
"""Characters of a name that count."""

_SAMPLE: Final = 256
_PAGING: Final = frozenset(
    {
        "offset", "page", "page_number", "pageNumber", "page_no", "start", "start_line",
        "startLine", "from_line", "line", "line_number", "skip", "cursor", "position", "index",
        "start_index", "chunk", "part",
    }
)  # fmt: skip
"""Arguments that page through something, where they are numbers."""


@lru_cache(maxsize=4096)
def seed_of(tool: str, agent: str = "") -> int:
    """What keeps equal arguments of two tools apart, and equal calls of two agents."""
    return key_of(text_bytes(f"{agent}\0{tool}"))


@lru_cache(maxsize=1024)
def agent_key(agent: str | None) -> int:
    """Key of an agent by its name; 0 without one."""
    return key_of(text_bytes(f"agent\0{agent[:NAMED]}")) if agent else 0


class Call(NamedTuple):
    """The identity of one call.

    Attributes:
        exact: Key of tool and arguments as they are; None if they were not captured.
        key: Key of them with volatile values masked.
        change: Key of them without arguments that are volatile by name, the rest as it is.
        guessed: Whether the key rests on a value that was taken for volatile by its look, or on
            arguments that were cut.
        raw: Canonical bytes of the arguments, bounded.
        arguments: The arguments as a JSON value or text.
        seed: What stands for agent and tool.
    """

    exact: int | None
    key: int | None
    change: int | None
    guessed: bool
    raw: bytes
    arguments: object
    seed: int = 0

    @property
    def sample(self) -> str:
        """The first characters of the arguments."""
        return self.raw[:_SAMPLE].decode("utf-8", "replace")

    @property
    def place(self) -> tuple[int, float] | None:
        """Identity of all arguments but the one that pages through something, and its value."""
        arguments = self.arguments
        if not isinstance(arguments, dict):
            return None
        named = cast("dict[str, object]", arguments)
        if _PAGING.isdisjoint(named):
            return None
        named = without_volatile(named)
        paging = [name for name in named if name in _PAGING]
        value = named[paging[0]]
        if len(paging) > 1 or isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        rest = {name: item for name, item in named.items() if name != paging[0]}
        return key_of(canonical(rest), self.seed), float(value)


class Calls:
    """Tells the calls of one session apart; it learns which arguments are volatile."""

    __slots__ = ("_limit", "_settings", "_volatile")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.max_value_chars
        self._volatile = VolatileArguments()

    def identify(self, step: Step, outcome: int | None) -> Call:
        """The identity of a call."""
        arguments = self._parsed(step)
        if arguments is None:
            return Call(None, None, None, False, b"", None)
        read = reading_of(step)
        known_raw = read is not None and read.limit == self._limit and read.arguments is arguments
        raw = (read.raw if read is not None and known_raw else None) or self._raw(arguments)
        seed = seed_of((step.name or "")[:NAMED], (step.agent or "")[:NAMED])
        exact = key_of(raw, seed)
        if not isinstance(arguments, dict):
            masked = masked_call(raw)
            key = exact if masked is raw else key_of(masked, seed)
            guessed = masked is not raw or is_cut_json(raw)
            return Call(exact, key, exact, guessed, raw, arguments, seed)
        named = cast("dict[str, object]", arguments)
        known = self._identity(step.name, named) or without_volatile(named)
        change = exact if known is named else key_of(self._raw(known), seed)
        # A value that only looks volatile may be what the call is about: that is a guess.
        kept = without_nonces(self._volatile.without(seed, known, outcome))
        key = change if kept is known else key_of(self._raw(kept), seed)
        return Call(exact, key, change, kept is not known, raw, arguments, seed)

    def _identity(self, tool: str | None, arguments: dict[str, object]) -> dict[str, object]:
        """The arguments that the settings declare to be the identity of a tool's calls."""
        declared = self._settings.tools.get(tool or "")
        if declared is None or declared.key is None:
            return {}
        return {name: arguments[name] for name in declared.key if name in arguments}

    def _raw(self, arguments: object) -> bytes:
        raw = canonical(arguments)
        return raw if len(raw) <= self._limit else bounded(raw, self._limit)

    def _parsed(self, step: Step) -> object:
        """The JSON value of arguments; of text that is too long, its ends and a key of the rest."""
        arguments = step.args
        if isinstance(arguments, str) and len(arguments) > self._limit:
            return bounded(text_bytes(arguments), self._limit).decode("utf-8", "replace")
        return arguments_of(step)


_TRACKED: Final = 64
_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.){1,64})":("(?:[^"\\]|\\.){0,200}"?|[^,{}\[\]]{1,64})')
_SEARCHES: Final = re.compile(
    r"(?i)quer|search|\bq\b|question|keyword|prompt|text|term|phrase|pattern|command|cmd|code|"
    r"script|sql|input|expression"
)
_NUMBERED: Final = re.compile(
    r'\A(?:"?(?=[^\s"]{4})(?=[^\s"]*[a-zA-Z])[^\s"]*\d\d[^\s"]*"?|"?[^\s"@]+@[^\s"]+"?|"?\d{3,}"?)'
)
_NONCE: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|[0-9a-fA-F]{16}|\d{4}-\d\d-\d\d[T ]\d|\b1[4-9]\d{8}|"
    r"/(?:tmp|var)/|(?:[a-zA-Z]{1,8}\d{1,8}){3}"
)


class Items:
    """Remembers the last arguments of the newest 64 tools of a session."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: BoundedDict[str, str] = BoundedDict(_TRACKED)

    def is_another(self, tool: str, sample: str) -> bool:
        """Whether a call asks the same of another item than the call of its tool before."""
        last = self._last.get(tool)
        self._last[tool] = sample
        return last is not None and is_another(last, sample)


def is_another(one: str, other: str) -> bool:
    """Whether two calls of one tool ask the same of two items, a name or a number each.

    In a search only what is numbered or an address is an item: who asks for one thing in other
    words asks for the same. What looks like a nonce beside arguments that stay is none.
    """
    if one == other or not one or not other:
        return False
    pairs, others = _PAIR.findall(one), _PAIR.findall(other)
    if not pairs or [name for name, _ in pairs] != [name for name, _ in others]:
        return False
    differing = [
        (name, before, now)
        for (name, before), (_, now) in zip(pairs, others, strict=True)
        if before != now
    ]
    alone = len(differing) == len(pairs)
    return bool(differing) and all(
        _is_item(name, value, alone=alone) for name, *values in differing for value in values
    )


def _is_item(name: str, value: str, *, alone: bool) -> bool:
    if not alone and _NONCE.search(value) is not None:
        return False
    return _SEARCHES.search(name) is None or _NUMBERED.fullmatch(value) is not None


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
        self._last: BoundedDict[int, _Revised] = BoundedDict(_TOOLS)

    def revises(self, call: Call, outcome: Outcome) -> bool:
        """Whether arguments and outcome are nearly what they were, and one of them differs."""
        if len(call.raw) < _LEAST or outcome.size < _LEAST:
            self._last.pop(call.seed, None)
            return False
        now = _Revised(_sample(call.raw), _sample(outcome.raw), _others(call.arguments))
        before = self._last.pop(call.seed, None)
        self._last[call.seed] = now
        return (
            before is not None
            and before != now
            and before.others == now.others
            and fuzz.ratio(before.given, now.given, score_cutoff=_ALIKE) > 0
            and fuzz.ratio(before.got, now.got, score_cutoff=_ALIKE) > 0
        )


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
