"""What a dialect is, and the dialects in order of precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from otel_loopguard._util.locks import new_lock
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.spans.dialects.coding_agents import ClaudeCode, Codex, Copilot, GeminiCli
from otel_loopguard.spans.dialects.frameworks import (
    Adk,
    AgentFramework,
    AutoGen,
    Mcp,
    SpringAI,
    Strands,
)
from otel_loopguard.spans.dialects.genai import GenAI
from otel_loopguard.spans.dialects.openinference import OpenInference
from otel_loopguard.spans.dialects.openllmetry import OpenLLMetry, OpenLLMetryModel
from otel_loopguard.spans.dialects.platforms import Langfuse, LangSmith, Logfire
from otel_loopguard.spans.dialects.vercel import Vercel

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
        """Name, unique among all dialects; it becomes `Step.dialect`."""
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
    SpringAI(),
    ClaudeCode(),
    Codex(),
    GeminiCli(),
    Copilot(),
    Mcp(),
    OpenLLMetry(),
    LangSmith(),
    Logfire(),
    Adk(),
    Strands(),
    AutoGen(),
    AgentFramework(),
    GenAI(),
    OpenInference(),
    Langfuse(),
    OpenLLMetryModel(),
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
            msg = (
                f"dialect {dialect.name!r}: no dialect {before!r} to come before, there are {names}"
            )
            raise DialectError(msg)
        _dialects.insert(0 if before is None else names.index(before), dialect)
    key_prefixes.cache_clear()


def unregister(name: str) -> None:
    """Takes a dialect out again."""
    with _lock:
        for index, dialect in enumerate(_dialects):
            if dialect.name == name:
                del _dialects[index]
                key_prefixes.cache_clear()
                return
        msg = f"dialect {name!r}: there is none, there are {[one.name for one in _dialects]}"
        raise DialectError(msg)


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
    name = cast("object", getattr(dialect, "name", None))
    marks = getattr(dialect, "marks", None)
    if not isinstance(name, str) or not name:
        msg = f"dialect {dialect!r}: expected a name, got {name!r}"
        raise DialectError(msg)
    problem = ""
    if not isinstance(marks, (set, frozenset)) or not marks:
        problem = f"marks, a non-empty set of attribute keys, got {marks!r}"
    elif not _all_text(cast("object", marks)):
        problem = f"attribute keys as marks, got {marks!r}"
    elif not callable(getattr(dialect, "read", None)):
        problem = "a method read(span)"
    elif not isinstance(getattr(dialect, "key_order", 1), (int, float)):
        problem = "a number as key_order"
    elif not isinstance(words := getattr(dialect, "call_words", {}), Mapping) or not all(
        _all_text(values) for values in cast("Mapping[object, object]", words).values()
    ):
        problem = "tuples of text by attribute key as call_words"
    for attribute in _OPTIONAL:
        if not problem and not _all_text(value := getattr(dialect, attribute, ())):
            problem = f"a tuple of text as {attribute}, got {value!r}"
    if problem:
        msg = f"dialect {name!r}: expected {problem}"
        raise DialectError(msg)


def _all_text(values: object) -> bool:
    return isinstance(values, (tuple, list, set, frozenset)) and all(
        isinstance(one, str) and one for one in cast("Iterable[object]", values)
    )
