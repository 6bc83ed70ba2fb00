"""Whether an error is transient or permanent, read from its text or its exception."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from otel_loopguard.core.evidence import ErrorClass

_LOOK: Final = 4_000
"""Characters of an error text that are read, half from its head and half from its tail."""

_TRANSIENT: Final = re.compile(
    r"\b(?:429|50[0234])\b|too many requests|rate.?limit|overloaded|throttl|time[d\-]?.?out|"
    r"connection (?:reset|refused|aborted|closed|error)|temporar|unavailable|bad gateway|"
    r"econnre|etimedout|deadline exceeded|try again later|server error|broken pipe",
)
_DETERMINISTIC: Final = re.compile(
    r"\b(?:400|401|403|404|405|422)\b|not found|no such|does ?n[o']t exist|"
    r"unknown (?:tool|function)|"
    r"permission|denied|forbidden|unauthori[sz]ed|invalid|not (?:a )?valid|unexpected|"
    r"missing|required|validation|schema|typeerror|keyerror|attributeerror|valueerror|nameerror|"
    r"importerror|modulenotfound|filenotfound|syntaxerror|indentationerror|indexerror|"
    r"not (?:allowed|supported|defined|implemented)|unsupported|illegal|cannot|can't|"
    r"out of range|already exists",
)
_TRANSIENT_NAMES: Final = re.compile(
    r"Timeout|TimedOut|Connect(?:ion)?Error|Connection(?:Reset|Refused|Aborted)|BrokenPipe|"
    r"NetworkError|TransportError|RateLimit|TooManyRequests|ServiceUnavailable|InternalServerError"
)
"""Names of exceptions of the HTTP clients and model SDKs in use."""

_TRANSIENT_STATUS: Final = frozenset((408, 429, 500, 502, 503, 504, 529))


def text_class(text: str) -> ErrorClass:
    """Whether trying again can help, by what an error says; UNKNOWN if it cannot be told.

    Rules: 429, 5xx, time-outs and connections are transient; validation, not found, permission
    and unknown tools are deterministic (notes on identity, DESIGN.md).

    Args:
        text: The text; of a long one 2,000 characters of its head and of its tail are read.
    """
    # Three times as quick as patterns that ignore case.
    return _class_of(look(text).lower())


@lru_cache(maxsize=16)
def _class_of(text: str) -> ErrorClass:
    """The same of a short text in lower case: of one error several parts of the guard ask."""
    if _TRANSIENT.search(text):
        return ErrorClass.TRANSIENT
    return ErrorClass.DETERMINISTIC if _DETERMINISTIC.search(text) else ErrorClass.UNKNOWN


def exception_class(error: BaseException) -> ErrorClass:
    """Whether trying again can help, by an exception; UNKNOWN if it cannot be told.

    Looked at, in this order: its HTTP status (`status_code`, `status`, `code`, or that of its
    `response`), the names of its class and of those above it, its text.
    """
    status = _status(error)
    if status is not None:
        return ErrorClass.TRANSIENT if status in _TRANSIENT_STATUS else ErrorClass.DETERMINISTIC
    if any(_TRANSIENT_NAMES.search(kind.__name__) for kind in type(error).__mro__):
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
