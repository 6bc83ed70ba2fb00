"""Which kind of error a failed call met, as a short code."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from otel_loopguard.identity.errors import error_line, error_text

if TYPE_CHECKING:
    from otel_loopguard.core import Step

UNKNOWN: Final = "unknown"
"""The signature of an error that has a text and is of no known kind."""

_LOOK: Final = 2_000


_SIGNATURES: Final = (
    ("assertion", re.compile(r"assertion ?(?:error|failed)|assert failed")),
    ("rate_limit", re.compile(r"\b429\b|too many requests|rate.?limit|throttl|quota|overloaded")),
    ("disk_full", re.compile(r"no space left|disk (?:is )?full|enospc|disk quota exceeded")),
    ("out_of_memory", re.compile(
        r"out of memory|memoryerror|cannot allocate memory|oom.?kill|\benomem\b|heap out of"
    )),
    ("auth", re.compile(
        r"\b401\b|unauthori[sz]ed|authentication|not authenticated|invalid (?:api.?key|token|"
        r"credentials)|(?:token|session|credentials) (?:has |have |is |are )?expired|not logged in"
    )),
    ("permission", re.compile(
        r"\b403\b|permission denied|access (?:is )?denied|forbidden|\beacces\b|\beperm\b|"
        r"operation not permitted|read.?only file|permissionerror|insufficient privilege"
    )),
    ("timeout", re.compile(r"time[d\-]?.?out|\betimedout\b|deadline exceeded|\b504\b")),
    ("connection", re.compile(
        r"connection (?:reset|refused|aborted|closed|error)|could not connect|econn(?:reset|"
        r"refused|aborted)|network is unreachable|name or service not known|broken pipe|"
        r"failed to resolve|getaddrinfo|no route to host|remote end closed"
    )),
    ("server_error", re.compile(
        r"\b50[023]\b|bad gateway|service (?:is )?(?:temporarily )?unavailable|server error"
    )),
    ("unknown_tool", re.compile(
        r"(?:unknown|no such|unrecogni[sz]ed) (?:tool|function)|tool .{0,60}(?:not found|"
        r"does not exist|is not (?:available|valid))|not a valid tool"
    )),
    ("wrong_arguments", re.compile(
        r"unexpected keyword argument|missing \d* ?required|takes \d+ positional|"
        r"required (?:argument|parameter|property|field)|"
        r"(?:invalid|unexpected|extra|unknown|unrecogni[sz]ed) (?:arguments?|parameters?|inputs?|"
        r"options?)\b|validation error|\b422\b|is a required property"
    )),
    ("missing_module", re.compile(
        r"no module named|modulenotfound|cannot find (?:module|package)|importerror|"
        r"command not found|is not recogni[sz]ed as an internal"
    )),
    ("no_match", re.compile(
        r"(?:string|text|pattern|hunk|context|old_str).{0,60}(?:not found|did not match|"
        r"no match|does not (?:appear|match))|patch (?:failed|does not apply)|hunk #?\d* ?failed|"
        r"no match(?:es)? found for replacement|multiple (?:matches|occurrences)"
    )),
    ("unknown_name", re.compile(
        r"no such (?:column|table)|unknown column|(?:table|column|relation) .{0,80}"
        r"(?:does not|doesn't) exist|nameerror|attributeerror|is not defined|keyerror|"
        r"undefined (?:variable|column|function|reference)"
    )),
    ("syntax", re.compile(
        r"syntax ?error|indentationerror|parse error|invalid syntax|unexpected (?:token|eof|"
        r"end of|indent)|unterminated|jsondecodeerror|malformed"
    )),
    ("not_found", re.compile(
        r"\b404\b|not.?found|no such|does ?n[o']t exist|\benoent\b|cannot find|"
        r"could not find"
    )),
    ("conflict", re.compile(
        r"\b409\b|already exists|file ?exists|\beexist\b|conflict|duplicate (?:key|entry)"
    )),
    ("wrong_type", re.compile(r"typeerror|valueerror|unsupported operand|expected .{1,40} got ")),
)  # fmt: skip
"""Kinds of errors by what their text says in lower case, the more special one in front.

Patterns that ignore case take three times as long.
"""


def signature_of(step: Step) -> str | None:
    """The kind of error that a failed step met; None if it did not fail or said nothing.

    The line that names the error is read first, then head and tail of the whole text; where there
    is no text, the type of the error.

    Source: FEATURES C13.
    """
    text, line = error_text(step), error_line(step)
    if not step.error:
        return None
    if text is None or line is None:
        return _of(step.error_type[:200]) if step.error_type else None
    told = f"{(step.error_type or '')[:200]} {line.decode(errors='replace')}"
    return _of(told) or _of(f"{text[:_LOOK]}\n{text[-_LOOK:]}") or UNKNOWN


@lru_cache(maxsize=16)
def _of(text: str) -> str | None:
    text = text.lower()
    return next((name for name, pattern in _SIGNATURES if pattern.search(text)), None)
