"""The taxonomy of errors: what kind one is, read from its text or its exception."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from otel_loopguard._util.tables import read_table
from otel_loopguard.core.evidence import ErrorClass

_LOOK: Final = 4_000
"""Characters of an error text that are read, half from its head and half from its tail."""

_KINDS: Final = "error_kinds.txt"
_TRANSIENT_STATUS: Final = frozenset((408, 429, 500, 502, 503, 504, 529))


@cache
def _table(name: str) -> dict[str, str]:
    """The patterns of a table beside this module, in its order."""
    return {row.name: "|".join(row.lines) for row in read_table(__name__, name)}


@cache
def _compiled(table: str, name: str) -> re.Pattern[str]:
    """A pattern, compiled for the first error that it is tried on: most processes see few."""
    return re.compile(_table(table)[name])


def _says(name: str, text: str) -> bool:
    return _compiled("error_classes.txt", name).search(text) is not None


def text_class(text: str) -> ErrorClass:
    """Whether trying again can help, by what an error says; UNKNOWN if it cannot be told.

    Rules: 429, 5xx, time-outs and connections are transient; validation, not found, permission
    and unknown tools are deterministic (notes on identity, DESIGN.md).
    """
    # Three times as quick as patterns that ignore case.
    return _class_of(look(text).lower())


@lru_cache(maxsize=16)
def _class_of(text: str) -> ErrorClass:
    """The same for a short text in lower case; cached, as several parts of the guard ask."""
    if _says("transient", text) or (_says("later", text) and not _says("forbidden", text)):
        return ErrorClass.TRANSIENT
    return ErrorClass.DETERMINISTIC if _says("deterministic", text) else ErrorClass.UNKNOWN


def names_call_error(text: str) -> bool:
    """True if an error is about the call itself: unknown tool, wrong or missing arguments."""
    return _says("call_error", look(text).lower())


@lru_cache(maxsize=16)
def text_signature(text: str) -> str | None:
    """Returns the kind of error in a text; None if it is unknown."""
    text = text.lower()
    found = (name for name in _table(_KINDS) if _compiled(_KINDS, name).search(text))
    return next(found, None)


def exception_class(error: BaseException) -> ErrorClass:
    """Whether trying again can help, by an exception; UNKNOWN if it cannot be told.

    Looked at, in this order: its HTTP status (`status_code`, `status`, `code`, or that of its
    `response`), the names of its class and of those above it, its text.
    """
    status = _status(error)
    if status is not None:
        return ErrorClass.TRANSIENT if status in _TRANSIENT_STATUS else ErrorClass.DETERMINISTIC
    if any(_says("transient_names", kind.__name__) for kind in type(error).__mro__):
        return ErrorClass.TRANSIENT
    return text_class(f"{type(error).__name__} {error}")


def look(text: str) -> str:
    """Head and tail of a long text, 4,000 characters together; a short one as it is."""
    if len(text) <= _LOOK:
        return text
    half = _LOOK // 2
    return f"{text[:half]}\n{text[-half:]}"


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            found: object = getattr(holder, name, None)
            if isinstance(found, int) and 400 <= found < 600:
                return found
    return None
