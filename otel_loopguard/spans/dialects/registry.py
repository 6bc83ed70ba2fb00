"""The interface of dialects, and all of them in order of precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from otel_loopguard._util.locks import new_lock
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.spans.dialects import coding_agents, frameworks, openllmetry, platforms
from otel_loopguard.spans.dialects.frameworks import Vercel
from otel_loopguard.spans.dialects.genai import GenAI
from otel_loopguard.spans.dialects.openinference import OpenInference

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.views import SpanView


class Dialect(Protocol):
    """Reads the spans of one convention.

    `name`, `marks` and `read` are required. A class may also have any of these attributes; what it
    leaves out is empty:

    * `scopes`: names of instrumentation scopes that write it; `*` at the end stands for any rest.
      Spans of these scopes are followed from their start.
    * `session_keys`, `agent_keys`: attribute keys of a session id and of an agent's name, which
      are read on the spans of all dialects; `fallback_session_keys` and `fallback_agent_keys`:
      keys that stand in for them where no dialect's own key is there.
    * `key_order`: whose keys are asked first, a number; 0 for conventions that appear on the spans
      of others, 1 by default.
    * `builds_on`: name of a dialect that its `read` already uses.
    * `key_prefixes`: how its attribute keys begin, for the sampler; its `marks` by default.
    * `call_words`: for an attribute key the values that mark a span as a call, not as a run of an
      agent; such spans are not read at their start.
    """

    @property
    def name(self) -> str:
        """Name, unique among all dialects; the reader puts it on each step as `dialect`."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Attribute keys, any of which says that a span may be of this dialect."""
        ...

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None if it is not of this dialect.

        Called for spans that have just started (few attributes, `end` None) and for ended ones.
        It must not throw for values of any type, and must not change the span.
        """
        ...


# Dialects that wrap values under the names of another come before that other.
_dialects: list[Dialect] = [
    Vercel(),
    frameworks.SpringAI(),
    coding_agents.ClaudeCode(),
    coding_agents.Codex(),
    coding_agents.GeminiCli(),
    coding_agents.Copilot(),
    frameworks.Anthropic(),
    frameworks.Mcp(),
    openllmetry.OpenLLMetry(),
    platforms.LangSmith(),
    platforms.Logfire(),
    frameworks.Adk(),
    frameworks.Strands(),
    frameworks.AutoGen(),
    frameworks.AgentFramework(),
    GenAI(),
    OpenInference(),
    platforms.Langfuse(),
    openllmetry.OpenLLMetryModel(),
]
_lock = new_lock()
_OPTIONAL: Final = (
    "scopes", "session_keys", "fallback_session_keys", "agent_keys", "fallback_agent_keys",
    "key_prefixes",
)  # fmt: skip


class DialectError(LoopGuardError, ValueError):
    """A dialect cannot be registered; the message has its name and what was expected."""


def registered() -> tuple[Dialect, ...]:
    """All dialects, in order of precedence."""
    with _lock:
        return tuple(_dialects)


def register(dialect: Dialect, *, before: str | None = None) -> None:
    """Adds a dialect for all readers that are made afterwards.

    Args:
        dialect: The dialect.
        before: Name of the dialect that it comes before. None: before all others, so that it is
            asked first about spans that carry its marks.

    Raises:
        DialectError: A name that is no text or is taken, marks that are no non-empty set of text,
            an optional attribute of another type, a dialect that cannot read, or no dialect of the
            name `before`.
    """
    _check(dialect)
    with _lock:
        names = [other.name for other in _dialects]
        if dialect.name in names:
            msg = f"dialect {dialect.name!r}: expected a new name, taken are {sorted(names)}"
            raise DialectError(msg)
        if before is not None and before not in names:
            msg = f"dialect {dialect.name!r}: no dialect {before!r} to come before, only {names}"
            raise DialectError(msg)
        _dialects.insert(0 if before is None else names.index(before), dialect)
    key_prefixes.cache_clear()


def unregister(name: str) -> None:
    """Takes a dialect out again.

    Raises:
        DialectError: No dialect of this name is registered.
    """
    with _lock:
        left = [dialect for dialect in _dialects if dialect.name != name]
        if len(left) == len(_dialects):
            msg = f"dialect {name!r}: there is none, there are {[one.name for one in left]}"
            raise DialectError(msg)
        _dialects[:] = left
    key_prefixes.cache_clear()


def declared(dialect: Dialect, name: str) -> tuple[str, ...]:
    """An optional attribute of a dialect that is a list of text; empty where it is left out."""
    return tuple(cast("Iterable[str]", getattr(dialect, name, ())))


def collect_keys(
    name: Literal["session_keys", "agent_keys"], dialects: Iterable[Dialect] | None = None
) -> tuple[str, ...]:
    """The keys of dialects in the order in which they are asked; fallbacks come last."""
    ordered = sorted(
        registered() if dialects is None else dialects,
        key=lambda dialect: cast("int", getattr(dialect, "key_order", 1)),
    )
    return tuple(
        dict.fromkeys(
            key
            for attribute in (name, f"fallback_{name}")
            for dialect in ordered
            for key in declared(dialect, attribute)
        )
    )


@cache
def key_prefixes() -> tuple[str, ...]:
    """How attribute keys begin that a dialect reads."""
    return tuple(
        dict.fromkeys(
            prefix
            for dialect in registered()
            for prefix in getattr(dialect, "key_prefixes", dialect.marks)
        )
    )


def _check(dialect: Dialect) -> None:
    """Refuses what a reader could not use."""
    found = cast("Any", dialect)
    name, marks = getattr(found, "name", None), getattr(found, "marks", None)
    order, words = getattr(found, "key_order", 1), getattr(found, "call_words", {})
    lists = {attribute: getattr(found, attribute, ()) for attribute in _OPTIONAL}
    is_set, has_words = isinstance(marks, (set, frozenset)), isinstance(words, Mapping)
    for expected, value, is_right in (
        ("a name", name, isinstance(name, str) and name),
        ("marks, a non-empty set of attribute keys", marks, is_set and marks),
        ("attribute keys as marks", marks, _all_text(marks)),
        ("a method read(span)", type(dialect), callable(getattr(found, "read", None))),
        ("a number as key_order", order, isinstance(order, (int, float))),
        (
            "tuples of text by attribute key as call_words",
            words,
            has_words and all(map(_all_text, cast("Mapping[str, object]", words).values())),
        ),
        *((f"a tuple of text as {each}", lists[each], _all_text(lists[each])) for each in lists),
    ):
        if not is_right:
            msg = f"dialect {name!r}: expected {expected}, got {value!r}"
            raise DialectError(msg)


def _all_text(values: object) -> bool:
    return isinstance(values, (tuple, list, set, frozenset)) and all(
        isinstance(one, str) and one for one in cast("Iterable[object]", values)
    )
