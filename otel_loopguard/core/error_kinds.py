"""The taxonomy of errors: what kind one is, read from its text or its exception."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from otel_loopguard.core.evidence import ErrorClass

_LOOK: Final = 4_000
"""Characters of an error text that are read, half from its head and half from its tail."""

_TRANSIENT: Final = (
    r"\b(?:429|50[0234])\b|too many requests|rate.?limit|overloaded|throttl|time[d\-]?.?out|"
    r"connection (?:reset|refused|aborted|closed|error)|temporar|unavailable|bad gateway|"
    r"econnre|etimedout|deadline exceeded|server error|broken pipe|"
    r"no route to host|host is down|network is (?:unreachable|down)|"
    r"überlastet|zeitüberschreitung|nicht verfügbar|surchargé|délai (?:d.attente )?dépassé|"
    r"indisponible|indisponível|tempo (?:limite )?(?:esgotado|excedido)|no disponible|"
    r"tiempo de espera|sovraccaric|non disponibile|繁忙|超时|混み合|混雑|タイムアウト|"
    r"시간 ?초과|과부하|انتهت المهلة|समय समाप्त"
)
_LATER: Final = (
    r"try again later|später (?:erneut|noch|wieder)|réessayer|más tarde|mais tarde|più tardi|"
    r"稍后|稍候|しばらく|나중에|позже|لاحقا|बाद में"
)
"""What is said out of courtesy, too: of what is forbidden it says nothing."""
_FORBIDDEN: Final = r"permission|denied|forbidden|unauthori[sz]ed"
_DETERMINISTIC: Final = (
    r"\b(?:400|401|403|404|405|422)\b|not found|no such|does ?n[o']t exist|"
    r"unknown (?:tool|function)|"
    r"permission|denied|forbidden|unauthori[sz]ed|invalid|not (?:a )?valid|unexpected|"
    r"missing|required|validation|schema|typeerror|keyerror|attributeerror|valueerror|nameerror|"
    r"importerror|modulenotfound|filenotfound|syntaxerror|indentationerror|indexerror|"
    r"not (?:allowed|supported|defined|implemented)|unsupported|illegal|cannot|can't|"
    r"out of range|already exists"
)
_CALL_ERROR: Final = (
    r"unexpected keyword argument|missing \d* ?required|"
    r"required (?:argument|parameter|property|field)|"
    r"(?:unknown|no such|not a valid|unrecogni[sz]ed) (?:tool|function|argument|parameter)|"
    r"takes \d+ positional|(?:invalid|unexpected|extra) (?:arguments?|parameters?|inputs?)\b|"
    r"arguments? (?:must|do(?:es)? not|is not)|tool .{0,60}(?:not found|does not exist)"
)
_TRANSIENT_NAMES: Final = (
    r"Timeout|TimedOut|Connect(?:ion)?Error|Connection(?:Reset|Refused|Aborted)|BrokenPipe|"
    r"NetworkError|TransportError|RateLimit|TooManyRequests|ServiceUnavailable|InternalServerError"
)
"""Names of exceptions of the HTTP clients and model SDKs in use."""

_TRANSIENT_STATUS: Final = frozenset((408, 429, 500, 502, 503, 504, 529))

_SIGNATURES: Final = (
    ("assertion", r"assertion ?(?:error|failed)|assert failed"),
    ("rate_limit", r"\b429\b|too many requests|rate.?limit|throttl|quota|overloaded"),
    ("disk_full", r"no space left|disk (?:is )?full|enospc|disk quota exceeded"),
    ("out_of_memory", (
        r"out of memory|memoryerror|cannot allocate memory|oom.?kill|\benomem\b|heap out of"
    )),
    ("auth", (
        r"\b401\b|unauthori[sz]ed|authentication|not authenticated|invalid (?:api.?key|token|"
        r"credentials)|(?:token|session|credentials) (?:has |have |is |are )?expired|not logged in"
    )),
    ("permission", (
        r"\b403\b|permission denied|access (?:is )?denied|forbidden|\beacces\b|\beperm\b|"
        r"operation not permitted|read.?only file|permissionerror|insufficient privilege"
    )),
    ("timeout", r"time[d\-]?.?out|\betimedout\b|deadline exceeded|\b504\b"),
    ("connection", (
        r"connection (?:reset|refused|aborted|closed|error)|could not connect|econn(?:reset|"
        r"refused|aborted)|network is unreachable|name or service not known|broken pipe|"
        r"failed to resolve|getaddrinfo|no route to host|host is down|remote end closed"
    )),
    ("server_error", (
        r"\b50[023]\b|bad gateway|service (?:is )?(?:temporarily )?unavailable|server error"
    )),
    ("unknown_tool", (
        r"(?:unknown|no such|unrecogni[sz]ed) (?:tool|function)|tool .{0,60}(?:not found|"
        r"does not exist|is not (?:available|valid))|not a valid tool"
    )),
    ("wrong_arguments", (
        r"unexpected keyword argument|missing \d* ?required|takes \d+ positional|"
        r"required (?:argument|parameter|property|field)|"
        r"(?:invalid|unexpected|extra|unknown|unrecogni[sz]ed) (?:arguments?|parameters?|inputs?|"
        r"options?)\b|validation error|\b422\b|is a required property"
    )),
    ("missing_module", (
        r"no module named|modulenotfound|cannot find (?:module|package)|importerror|"
        r"command not found|is not recogni[sz]ed as an internal"
    )),
    ("no_match", (
        r"(?:string|text|pattern|hunk|context|old_str).{0,60}(?:not found|did not match|"
        r"no match|does not (?:appear|match))|patch (?:failed|does not apply)|hunk #?\d* ?failed|"
        r"no match(?:es)? found for replacement|multiple (?:matches|occurrences)"
    )),
    ("unknown_name", (
        r"no such (?:column|table)|unknown column|(?:table|column|relation) .{0,80}"
        r"(?:does not|doesn't) exist|nameerror|attributeerror|is not defined|keyerror|"
        r"undefined (?:variable|column|function|reference)"
    )),
    ("syntax", (
        r"syntax ?error|indentationerror|parse error|invalid syntax|unexpected (?:token|eof|"
        r"end of|indent)|unterminated|jsondecodeerror|malformed"
    )),
    ("not_found", (
        r"\b404\b|not.?found|no such|does ?n[o']t exist|\benoent\b|cannot find|"
        r"could not find"
    )),
    ("conflict", (
        r"\b409\b|already exists|file ?exists|\beexist\b|conflict|duplicate (?:key|entry)"
    )),
    ("wrong_type", r"typeerror|valueerror|unsupported operand|expected .{1,40} got "),
)  # fmt: skip
"""Kinds of errors by what their text says in lower case, the more special one in front.

Patterns that ignore case take three times as long.
"""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled for the first error that it is tried on: most processes see few."""
    return re.compile(pattern)


def _found(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


def text_class(text: str) -> ErrorClass:
    """Whether trying again can help, by what an error says; UNKNOWN if it cannot be told.

    Rules: 429, 5xx, time-outs and connections are transient; validation, not found, permission
    and unknown tools are deterministic (notes on identity, DESIGN.md).
    """
    # Three times as quick as patterns that ignore case.
    return _class_of(look(text).lower())


@lru_cache(maxsize=16)
def _class_of(text: str) -> ErrorClass:
    """The same of a short text in lower case: of one error several parts of the guard ask."""
    if _found(_TRANSIENT, text) or (_found(_LATER, text) and not _found(_FORBIDDEN, text)):
        return ErrorClass.TRANSIENT
    return ErrorClass.DETERMINISTIC if _found(_DETERMINISTIC, text) else ErrorClass.UNKNOWN


def names_call_error(text: str) -> bool:
    """True if an error is about the call itself: unknown tool, wrong or missing arguments."""
    return _found(_CALL_ERROR, look(text).lower())


@lru_cache(maxsize=16)
def text_signature(text: str) -> str | None:
    """Returns the kind of error in a text; None if it is unknown."""
    text = text.lower()
    return next((name for name, pattern in _SIGNATURES if _found(pattern, text)), None)


def exception_class(error: BaseException) -> ErrorClass:
    """Whether trying again can help, by an exception; UNKNOWN if it cannot be told.

    Looked at, in this order: its HTTP status (`status_code`, `status`, `code`, or that of its
    `response`), the names of its class and of those above it, its text.
    """
    status = _status(error)
    if status is not None:
        return ErrorClass.TRANSIENT if status in _TRANSIENT_STATUS else ErrorClass.DETERMINISTIC
    if any(_found(_TRANSIENT_NAMES, kind.__name__) for kind in type(error).__mro__):
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
