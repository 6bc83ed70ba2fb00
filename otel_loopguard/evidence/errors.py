"""Reads a failed step: the line that names the error, its kind, and keys to compare it by."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from otel_loopguard.core.evidence import (
    ErrorClass,
    look,
    names_call_error,
    text_class,
    text_signature,
)
from otel_loopguard.evidence.normalize import (
    key_of,
    masked_numbers,
    masked_outcome,
    replace_short_ids,
    text_bytes,
)
from otel_loopguard.evidence.vocabulary import pattern_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_ARGUMENTS: Final = 4_000
"""Bytes of arguments that are looked through for what an error quotes: two pages."""
_LINE: Final = 400
"""Characters of a line or a sentence that are read; what is longer is a text."""
_ENDS: Final = 2_000
"""Characters of each end of a text that say which kind of error it is, where its line does not."""
_FAR: Final = 200
"""Characters of a line before the word that names an error: of a dump the word is no name."""

_VALUES: Final = re.compile(rb'"((?:[^"\\\n]|\\.){4,200})"')
_QUOTES: Final = b"'\"`"
_QUOTED: Final = re.compile(
    rb"'[^'\n]{1,200}'|\"[^\"\n]{1,200}\"|`[^`\n]{1,200}`|[\w/-]{0,100}[./][\w./-]{2,100}"
)
_WHERE: Final = re.compile(r"\s{1,20}--> \S{1,200}:\d{1,7}")
_PLACE: Final = re.compile(r"[a-zA-Z][:(]\d|\bline \d")
"""A line that gives a place in a file."""
_COUNTS: Final = re.compile(rb"\b\d{1,20}\b")
"""Numbers that stand alone below a headline: of lines, columns and times."""
_SESSION_LINE: Final = re.compile(rb"\A((?:\S{0,60}/)?(?:ba|da|k|z|a)?sh: line )\d{1,9}(?=: )")
"""A shell that stays open counts the lines that it was ever given."""
NAMES_ERROR: Final = re.compile(pattern_of("names an error"))
GIVES_A_CODE: Final = re.compile(pattern_of("gives a code"))
# A line of its own: a remark in brackets, a label with nothing behind it.
BY_THE_RUNNER: Final = re.compile(r"\A(?:\w[\w ]{0,40}:)? ?(?:\[[^\[\]]*\]|\([^()]*\)|<[^<>]*>)?")
_ABSENT: Final = re.compile(pattern_of("absent"))
_UNNAMED: Final = re.compile(pattern_of("no error"))


def error_class(step: Step) -> ErrorClass:
    """Returns whether trying the failed step again can help; UNKNOWN if that is not known."""
    if not step.error:
        return ErrorClass.UNKNOWN
    return text_class(" ".join(part for part in (step.error_type, error_text(step)) if part))


def is_transient(step: Step, said: str) -> bool:
    """True if a call failed for a while, by its error or by what a short answer says of it."""
    if step.error:
        return error_class(step) is ErrorClass.TRANSIENT
    return 0 < len(said) <= _LINE and text_class(said) is ErrorClass.TRANSIENT


def error_text(step: Step) -> str | None:
    """Text of a failed step: the error text, or an outcome that is text."""
    for text in (step.error_text, step.outcome):
        if isinstance(text, str) and text.strip():
            return text
    return None


def is_call_error(step: Step) -> bool:
    """True if the error is about the call itself: unknown tool, wrong or missing arguments."""
    text = error_text(step)
    return text is not None and names_call_error(text)


def error_line(step: Step) -> bytes | None:
    """The line that names the error; None without text, or where the text names none.

    The last such line of a long text counts: a traceback ends with it.
    """
    text = error_text(step)
    if text is None or (len(text) <= _LINE and _UNNAMED.fullmatch(text.strip()) is not None):
        return None
    lines = _naming(look(text))
    return text_bytes((lines[-1] if lines else text).strip()[-_LINE:])


@lru_cache(maxsize=16)
def _naming(text: str) -> tuple[str, ...]:
    """Lines that mention an error; cached for its several callers.

    What a runner says below a program tells which error it was only where nothing else does.
    """
    low = text.lower()
    if NAMES_ERROR.search(low) is None:
        return ()
    found = zip(text.split("\n"), map(NAMES_ERROR.search, low.split("\n")), strict=True)
    lines = tuple(line for line, name in found if name is not None and name.start() <= _FAR)
    if "exit" not in low:
        return lines
    program = (one for one in lines if not GIVES_A_CODE.search(one.lower()[-_FAR:]))
    return tuple(one for one in program if not BY_THE_RUNNER.fullmatch(one.strip())) or lines


def failure_of(step: Step, line: bytes | None) -> int | None:
    """Key of the line that names the error, of the text below it and of other errors above it.

    Volatile values in the line are masked and its numbers are kept, except in the line of a shell
    session. Below a headline with details, separate numbers are masked too: they count lines and
    columns. None if a long text has no line that names an error: its end says too little.
    """
    text = error_text(step)
    if line is None or text is None:
        return None
    text = look(text)
    named = _naming(text)
    if len(text) > _LINE and not named:
        return None
    above, said, below = text.rpartition(line.decode("utf-8", "replace"))
    below = below if said else ""
    headline, rest = (replace_short_ids(masked_outcome(one)) for one in (line, text_bytes(below)))
    raw = [_SESSION_LINE.sub(rb"\1#", headline), _COUNTS.sub(b"#", rest)]
    # Of one error in many places a compiler names the place in the line below.
    where = _WHERE.match(below)
    raw += [text_bytes(where[0])] if where is not None else []
    # A build sums up in its last line what stands above it, and each edit moves the lines.
    told = "\n".join((*filter(_PLACE.search, above.split("\n")), *named[-2:-1]))
    raw += sorted(set(masked_numbers(text_bytes(told)).split(b"\n")))
    return key_of(b"\n".join(raw))


def rejection_of(said: bytes, arguments: bytes) -> int:
    """Key of an answer that rejects what was tried, without short ids that were not asked about.

    A longer one is more than a rejection.
    """
    if len(said) > _ENDS:
        return key_of(said)
    asked = arguments[:_ARGUMENTS]
    return key_of(replace_short_ids(said, lambda each: each[0] if each[0] in asked else b"#"))


def says_absent(step: Step) -> bool:
    """True if a failed step says that what it asked for does not exist (404, KeyError)."""
    text = error_text(step) or ""
    said = f"{step.error_type or ''} {text}"
    return step.error and len(text) <= _LINE and _ABSENT.search(said.lower()) is not None


def error_shape(line: bytes, arguments: bytes = b"") -> int:
    """Key of the line that names an error, with numbers, volatile and quoted values masked.

    A quoted value is one that also occurs in the arguments: "no such file: 'a.txt'" and "no such
    file: 'b.txt'" are the same error.
    """
    unquoted = _without_quotes(line, arguments[:_ARGUMENTS])
    return key_of(masked_numbers(replace_short_ids(unquoted)))


def _without_quotes(line: bytes, arguments: bytes) -> bytes:
    """The line without the parts of it that stand in the arguments."""
    if not arguments:
        return line
    for value in _VALUES.findall(arguments):
        if len(value) >= 4 and value in line:
            line = line.replace(value, b"#")
    return _QUOTED.sub(lambda part: b"#" if part[0].strip(_QUOTES) in arguments else part[0], line)


def signature_of(step: Step) -> str | None:
    """The kind of error that a failed step met; None if it did not fail or said nothing.

    The line that names the error is read first, then head and tail of the whole text; where there
    is no text, the type of the error.
    """
    if not step.error:
        return None
    text, line = error_text(step), error_line(step)
    kind = (step.error_type or "")[:_FAR]
    if text is None or line is None:
        return text_signature(kind) if kind else None
    return (
        text_signature(f"{kind} {line.decode(errors='replace')}")
        or text_signature(f"{text[:_ENDS]}\n{text[-_ENDS:]}")
        or "unknown"
    )
