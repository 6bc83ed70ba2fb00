"""What a dialect is, and the dialects in order of precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from otel_loopguard._util.locks import new_lock
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.spans.dialects.adk import Adk
from otel_loopguard.spans.dialects.agent_framework import AgentFramework
from otel_loopguard.spans.dialects.autogen import AutoGen
from otel_loopguard.spans.dialects.genai import GenAI
from otel_loopguard.spans.dialects.langfuse import Langfuse
from otel_loopguard.spans.dialects.langsmith import LangSmith
from otel_loopguard.spans.dialects.logfire import Logfire
from otel_loopguard.spans.dialects.mcp import Mcp
from otel_loopguard.spans.dialects.openinference import OpenInference
from otel_loopguard.spans.dialects.openllmetry import OpenLLMetry, OpenLLMetryModel
from otel_loopguard.spans.dialects.strands import Strands
from otel_loopguard.spans.dialects.vercel import Vercel

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.views import SpanView


class Dialect(Protocol):
    """Reads the spans of one convention.

    A dialect says what stands on the span. Session, agent and handoffs that are written in one of
    the usual keys are read by the `Reader`, for all dialects alike; a dialect sets them only where
    it knows better.
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
            a dialect that cannot read, or no dialect of the name `before`.
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


def unregister(name: str) -> None:
    """Takes a dialect out again.

    Args:
        name: Name of the dialect.

    Raises:
        DialectError: There is none of that name.
    """
    with _lock:
        for index, dialect in enumerate(_dialects):
            if dialect.name == name:
                del _dialects[index]
                return
        msg = f"dialect {name!r}: there is none, there are {[one.name for one in _dialects]}"
        raise DialectError(msg)


def _check(dialect: Dialect) -> None:
    name = cast("object", getattr(dialect, "name", None))
    marks = cast("object", getattr(dialect, "marks", None))
    if not isinstance(name, str) or not name:
        msg = f"dialect {dialect!r}: expected a name, got {name!r}"
        raise DialectError(msg)
    if not isinstance(marks, (set, frozenset)) or not marks:
        msg = f"dialect {name!r}: expected marks, a non-empty set of attribute keys, got {marks!r}"
        raise DialectError(msg)
    keys = cast("frozenset[object]", marks)
    if not all(isinstance(key, str) and key for key in keys):
        msg = f"dialect {name!r}: expected attribute keys as marks, got {sorted(map(repr, keys))}"
        raise DialectError(msg)
    if not callable(getattr(dialect, "read", None)):
        msg = f"dialect {name!r}: expected a method read(span)"
        raise DialectError(msg)
