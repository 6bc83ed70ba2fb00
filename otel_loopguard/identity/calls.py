"""The identity of a call: agent, tool and arguments, as keys."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard.identity.canonical import (
    bounded,
    canonical,
    is_cut_json,
    key_of,
    text_bytes,
)
from otel_loopguard.identity.masks import masked_call, without_nonces, without_volatile
from otel_loopguard.identity.readings import arguments_of, reading_of
from otel_loopguard.identity.volatile import VolatileArguments

if TYPE_CHECKING:
    from otel_loopguard.core import Step
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

    def of(self, step: Step, outcome: int | None) -> Call:
        """The identity of a call.

        Args:
            step: The call.
            outcome: Key of its outcome; None while there is none.
        """
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
        """The arguments that the settings declare to be the identity of a tool's calls (C5)."""
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
