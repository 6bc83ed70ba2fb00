"""The kind of an error, and whether trying again can help."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from otel_loopguard.core import ErrorClass, Step
from otel_loopguard.core.error_kinds import look, text_class
from otel_loopguard.evidence.normalize import key_of, masked_numbers, masked_outcome, text_bytes

_LOOK: Final = 4_000
"""Bytes of arguments that are looked through for what an error quotes."""

_BRIEF: Final = 400

_CALL: Final = re.compile(
    r"unexpected keyword argument|missing \d* ?required|"
    r"required (?:argument|parameter|property|field)|"
    r"(?:unknown|no such|not a valid|unrecogni[sz]ed) (?:tool|function|argument|parameter)|"
    r"takes \d+ positional|(?:invalid|unexpected|extra) (?:arguments?|parameters?|inputs?)\b|"
    r"arguments? (?:must|do(?:es)? not|is not)|tool .{0,60}(?:not found|does not exist)",
)
_VALUES: Final = re.compile(rb'"((?:[^"\\\n]|\\.){4,200})"')
_QUOTES: Final = b"'\"`"
_QUOTED: Final = re.compile(
    rb"'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|[\w/-]{0,100}[./][\w./-]{2,100}"
)
_NAMES: Final = re.compile(
    r"(?:error|exception|failed|failure|fatal|denied|not found|no such|cannot|invalid|unable|"
    r"refused|timed? ?out)\b"
)
_FAR: Final = 200
"""Characters of a line before the word that says that it names an error."""

_ABSENT: Final = re.compile(
    r"not[ _-]?found|\b404\b|\b(?:key|lookup)error\b|does ?n[o']t exist|"
    r"\bno (?:such )?(?:\w{1,20} )?(?:\w{1,20} )?(?:with|for|named|called|found)\b",
)
_UNNAMED: Final = re.compile(
    r"(?:error:? )?(?:(?:an?|the) (?:(?:unexpected|internal|unknown) )?error (?:has )?(?:occurred|"
    r"happened)[\w ]{0,60}|something went wrong|(?:the )?tool (?:call )?failed|unknown error)"
    r"[.!]?(?: (?:please )?(?:try|retry)[\w ]{0,20}[.!]?)?",
    re.IGNORECASE,
)
"""What frameworks say in place of an error, OpenAI Agents by default: it names none."""


def error_class(step: Step) -> ErrorClass:
    """Whether trying the failed step again can help; UNKNOWN if it cannot be told or did not fail.

    Rules: 429, 5xx, time-outs and connections are transient; validation, not found, permission
    and unknown tools are deterministic (notes on identity, DESIGN.md).
    """
    if not step.error:
        return ErrorClass.UNKNOWN
    return text_class(" ".join(part for part in (step.error_type, error_text(step)) if part))


def error_text(step: Step) -> str | None:
    """What a failed step said: the error text, or an outcome that is text."""
    if step.error_text:
        return step.error_text
    return step.outcome if isinstance(step.outcome, str) and step.outcome.strip() else None


def is_call_error(step: Step) -> bool:
    """Whether the error is about the call itself: unknown tool, wrong or missing arguments."""
    text = error_text(step)
    return text is not None and _CALL.search(look(text).lower()) is not None


def error_line(step: Step) -> bytes | None:
    """The line that names the error; None without text, or where the text names none.

    The last such line of a long text counts: a traceback ends with it.
    """
    text = error_text(step)
    if text is None or (len(text) <= _BRIEF and _UNNAMED.fullmatch(text.strip()) is not None):
        return None
    lines = _naming(look(text))
    return text_bytes((lines[-1] if lines else text.strip())[-_BRIEF:])


@lru_cache(maxsize=16)
def _naming(text: str) -> tuple[str, ...]:
    """The lines that name an error: of one error several parts of the guard ask for them."""
    low = text.lower()
    if _NAMES.search(low) is None:
        return ()
    found = zip(text.split("\n"), map(_NAMES.search, low.split("\n")), strict=True)
    return tuple(line for line, name in found if name is not None and name.start() <= _FAR)


def failure_of(step: Step, line: bytes | None) -> int | None:
    """Key of the line that names the error, its volatile values masked and its numbers not.

    None where a text is long and no line of it names an error: its end says too little.
    """
    text = error_text(step)
    if line is None or text is None:
        return None
    named = len(text) <= _BRIEF or bool(_naming(look(text)))
    return key_of(masked_outcome(line)) if named else None


def says_absent(step: Step) -> bool:
    """Whether a failed step says that what it asked for does not exist (404, KeyError)."""
    text = error_text(step) or ""
    said = f"{step.error_type or ''} {text}"
    return step.error and len(text) <= _BRIEF and _ABSENT.search(said.lower()) is not None


def error_shape(line: bytes, arguments: bytes = b"") -> int:
    """Key of the line that names an error, numbers, volatile and quoted values masked.

    Quoted is what also stands in the arguments: "no such file: 'a.txt'" and "no such file: 'b.txt'"
    are one error.
    """
    return key_of(masked_numbers(_without_quotes(line, arguments[:_LOOK])))


def _without_quotes(line: bytes, arguments: bytes) -> bytes:
    """The line without the parts of it that stand in the arguments."""
    if not arguments:
        return line
    for value in _VALUES.findall(arguments):
        if len(value) >= 4 and value in line:
            line = line.replace(value, b"#")
    return _QUOTED.sub(lambda part: b"#" if part[0].strip(_QUOTES) in arguments else part[0], line)


UNKNOWN: Final = "unknown"
"""The signature of an error that has a text and is of no known kind."""

_SIGNATURE_CHARS: Final = 2_000


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
    return _of(told) or _of(f"{text[:_SIGNATURE_CHARS]}\n{text[-_SIGNATURE_CHARS:]}") or UNKNOWN


@lru_cache(maxsize=16)
def _of(text: str) -> str | None:
    text = text.lower()
    return next((name for name, pattern in _SIGNATURES if pattern.search(text)), None)
