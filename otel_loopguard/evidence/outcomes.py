"""The outcome of one call as keys that compare in constant time, and what it says."""

from __future__ import annotations

import os
import re
import unicodedata
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.bounded import LONGEST, MANY
from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.core import Kind
from otel_loopguard.evidence import normalize
from otel_loopguard.evidence.effects import command_of, is_compound
from otel_loopguard.evidence.errors import (
    BY_THE_RUNNER,
    GIVES_A_CODE,
    NAMES_ERROR,
    error_text,
    is_call_error,
)
from otel_loopguard.evidence.normalize import (
    NAMED,
    as_data,
    canonical,
    key_of,
    size_of,
    text_bytes,
    unescaped,
)
from otel_loopguard.evidence.vocabulary import LANGUAGES, WORDS, pattern_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.core import Step

_TOOL, _MODEL = Kind.TOOL, Kind.MODEL
_LOOK: Final = 2_000
"""Bytes of an outcome in which words are looked for: a page; of a measure the last ones."""
_SENTENCE: Final = 400
"""Characters of an answer that may be all about how it went; in a longer one words are content."""
_NOTE: Final = 120
"""Characters of an answer whose words are kept in any case."""


def _spoken(says: str) -> normalize.PrefilteredPattern:
    """The pattern of all phrases that say something, for bytes as Latin-1."""
    return normalize.PrefilteredPattern(_latin(pattern_of(says)), of_bytes=True)


def _latin(pattern: str) -> str:
    return pattern.encode().decode("latin-1")


_PENDING, _NOTHING, _REJECTS, _CUT = map(_spoken, ("pending", "nothing", "rejects", "cut"))
_OVER: Final = re.compile(pattern_of("over"), re.ASCII)
_NONE_FAILED: Final = re.compile(pattern_of("none failed"), re.ASCII)


def is_pending(outcome: Outcome) -> bool:
    """True if a short outcome reports unfinished work (running, queued, 202), and no end of it.

    It chooses words, and how soon a hint is given: no stop depends on it.
    """
    if outcome.key is None or outcome.size > _SENTENCE or not outcome.tells:
        return False
    return _PENDING.found_in(outcome.low) and _OVER.search(outcome.low) is None


class Reading(NamedTuple):
    """A parsed step with its source: another span may add to the step later."""

    args: object
    outcome: object
    error: bool
    error_text: str | None
    limit: int
    arguments: object
    """The JSON value of the arguments, or text that is none."""
    whole: object
    """The JSON value of the outcome, likewise."""
    said: object
    """The value inside the frame of an answer; the answer itself without one."""
    raw: bytes | None
    """Canonical bytes of the arguments; None of text."""
    failure: str
    """The answer, if a field or its first word reports failure; otherwise empty."""
    found: Outcome
    """Keys of the outcome; empty if nobody asks for them."""
    leaves: tuple[frozenset[int] | None, frozenset[int] | None]
    """Keys of the values in outcome and arguments of a graph's node."""


_NO_LEAVES: Final = None, None


def prepare(step: Step, limit: int | None = None) -> Reading:
    """Parses arguments and outcome of a step, once: as a rule before the session's lock is taken.

    What was found before is kept, unless the step has changed since, or another limit is asked for.
    """
    args, outcome, error = step.args, step.outcome, step.error_text
    if step.kind is _MODEL and args is None and outcome is None:
        return _BARE
    known = step.reading
    if (
        isinstance(known, Reading)
        and known.args is args
        and known.outcome is outcome
        and known.error_text is error
        and known.error is step.error
        and (limit is None or known.limit == limit)
    ):
        return known
    limit = LONGEST if limit is None else limit
    if args is not None and type(args) is not str:
        args = step.args = as_data(args)
    if outcome is not None and type(outcome) is not str:
        outcome = step.outcome = as_data(outcome)
    # The outcome first: a dialect that unwrapped it has just parsed it.
    whole = None if outcome is None else normalize.parsed(outcome)
    said = whole
    arguments = None if args is None else normalize.parsed(args, MANY)
    raw, failure, found, leaves = None, "", UNSEEN, _NO_LEAVES
    if step.kind is _TOOL:
        said = whole if isinstance(whole, str) else _within(whole, failed=step.error)
        failure = "" if step.error else _failure_in(step, said)
        found = outcome_of(step, limit, whole, said, failure)
        if arguments is not None and not isinstance(arguments, str):
            raw = canonical(arguments)
            if len(raw) > limit:
                raw = normalize.bounded(raw, limit)
    elif step.kind is Kind.NODE or step.kind is Kind.AGENT:
        gave = error if outcome is None else whole
        leaves = (
            None if gave is None else leaves_of(gave),
            None if args is None else leaves_of(arguments),
        )
    step.reading = reading = Reading(
        args, outcome, step.error, error, limit, arguments, whole, said, raw, failure, found,
        leaves,
    )  # fmt: skip
    return reading


_OUTPUTS: Final = ("error", "stderr", "stdout", "output", "message", "result")
"""Fields under which a process says something, the loudest first."""
_LINES: Final = 3
"""Lines of an answer that are searched for a refusal: further down it is a quotation."""
_HEAD: Final = 1_200
"""Characters that hold those lines."""
_MANUAL: Final = 600
"""Characters of a usage that a failed call gets; a longer one is a manual that was asked for."""
_SKIPPED: Final = re.compile(r"(?i)exit ?code:? ?\d{1,3}$|\W*$")
_REFUSED: Final = normalize.PrefilteredPattern(pattern_of("refused"))
_USAGE: Final = re.compile(pattern_of("usage"))
_SYNTAX: Final = re.compile(pattern_of("syntax"))
_UNKNOWN: Final = re.compile(pattern_of("unknown"))
_GOES_ON: Final = re.compile(pattern_of("goes on"))
_may_refuse: Final = normalize.prefilter(pattern_of("refuses"))
_A_SHELL: Final = re.compile(r"sh(?:: |$)|command|cmdlet")
_HELP: Final = re.compile(pattern_of("asks for help"))
_QUIET: Final = re.compile(pattern_of("no output"))
_METER: Final = re.compile(
    r"(?i)(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d[\d:.,Z+-]*|"
    r"(?:(?:took|in|after|elapsed|duration|time)\W{1,4})?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})"
    r" ?(?:ns|us|ms|s|secs?|seconds?)"
)
"""A clock or a duration, which some tools put around every answer."""
_COLON: Final = re.compile(pattern_of("does nothing"))
_ECHO: Final = re.compile(pattern_of("speaks"))
_REDIRECT: Final = re.compile(pattern_of("redirects"))


def refusal_of(step: Step, said: object, arguments: object, *, shell: bool) -> bytes | None:
    """The line that says that a call was refused; None if it was not, or nothing says so.

    Refused: the tool or the shell did not understand the call. It says how it is to be used, that
    it has no such command or option, or where the syntax is wrong. Help that was asked for is no
    refusal, and neither is text that only quotes one: it has to stand in the first three lines.
    """
    text = text_of(step, said)
    if not text:
        return None
    head = text[:_HEAD]
    if _may_refuse(head):
        lines = _lines_of(head)
        command = (command_of(arguments) or "") if shell else ""
        # A shell goes on after such a command: what else is said, others said.
        if _GOES_ON.search(command.strip()) is not None and not all(
            _refuses(line, True) or GIVES_A_CODE.search(line.lower()) for line in lines
        ):
            lines = [line for line in lines if _SYNTAX.search(line) is not None]
        for line in lines[:_LINES]:
            refused = _refuses(line, shell)
            if not refused and _USAGE.match(line) is not None:
                asked = _HELP.search(command[:_SENTENCE]) is not None
                refused = not asked and (step.error or len(text) <= _MANUAL)
            if refused:
                return text_bytes(line)
    if step.error and not shell and is_call_error(step):
        return text_bytes(text[:_SENTENCE])
    return None


def misses_command(step: Step, said: object) -> bool:
    """True if a shell says in the first lines that it has no such command."""
    head = text_of(step, said)[:_HEAD]
    return _may_refuse(head) and any(map(_is_unknown, _lines_of(head)[:_LINES]))


def _lines_of(head: str) -> list[str]:
    """The first lines that say something, each as long as a sentence may be."""
    lines = (line.strip()[:_SENTENCE] for line in head.split("\n")[: 2 * _LINES])
    return [line for line in lines if not _SKIPPED.match(line)]


def _refuses(line: str, shell: bool) -> bool:
    return _REFUSED.pattern.search(line) is not None or (
        shell and (_SYNTAX.search(line) is not None or _is_unknown(line))
    )


def _is_unknown(line: str) -> bool:
    return _UNKNOWN.search(line) is not None and _A_SHELL.search(line) is not None


def changed_nothing(line: bytes, arguments: object, *, shell: bool) -> bool:
    """True if a refused call did nothing; of several commands, the others may have run."""
    if not shell:
        return True
    return _SYNTAX.search(line.decode("utf-8", "replace")) is not None or not is_compound(arguments)


def does_nothing(step: Step, said: object, arguments: object) -> bool:
    """True if a shell command does nothing: `:`, a comment, punctuation, a bare `echo`."""
    command = command_of(arguments)
    if step.error or command is None:
        return False
    if not any(letter.isalnum() for letter in command[:_SENTENCE]):
        return len(command) <= _SENTENCE and _is_silent(step, said)
    if _ECHO.match(command):
        return True
    return (
        _COLON.match(command) is not None
        and _is_silent(step, said)
        and _REDIRECT.search(command) is None
    )


def text_of(step: Step, said: object) -> str:
    """Text of a call's result; of a map, the fields in which processes put their output."""
    if step.error_text:
        return step.error_text
    if isinstance(said, str):
        return said
    if is_map(said):
        if said.keys().isdisjoint(_OUTPUTS):
            return ""
        parts = (said.get(name) for name in _OUTPUTS)
        return "\n".join(part for part in parts if isinstance(part, str) and part)
    return step.outcome if isinstance(step.outcome, str) else ""


def _is_silent(step: Step, said: object) -> bool:
    if step.outcome is None:
        return False
    text = text_of(step, said)[:_SENTENCE]
    rest = _METER.sub("", text)
    silent = not text.strip() if rest == text else re.search(r"\w", rest) is None
    return silent or _QUIET.match(text) is not None


_MOST: Final = 256
"""Values of a state that are told apart, for half a millisecond; of more the whole is one."""
_STATE: Final = 100_000
"""Bytes of a value that are compared as they are."""
_VOLATILE: Final = frozenset(
    ("tool_call_id", "run_id", "checkpoint_id", "checkpoint_ns", "langgraph_step",
     "usage_metadata", "response_metadata", "usage")
)  # fmt: skip
_MESSAGES: Final = (frozenset(("content", "type")), frozenset(("content", "role")))
_CALLS: Final = (frozenset(("name", "args")), frozenset(("function", "type")))


def leaves_of(state: object) -> frozenset[int]:
    """Keys of the values in a state, each with its name.

    Order and repetition of values do not matter: a log that gets one more of a line it already has
    holds nothing new. Ids of messages and calls, token counts and values that `masks` treats as
    volatile do not count; numbers do.
    """
    whole = normalize.parsed(state)
    waiting: list[tuple[str, object]] = [("", whole)]
    found: set[int] = set()
    for _ in range(_MOST):
        if not waiting:
            break
        name, item = waiting.pop()
        if isinstance(item, dict):  # no `is_map`, which is a call, for each value of a state
            waiting.extend(_named(cast("dict[str, object]", item)))
        elif isinstance(item, (list, tuple)):
            items = cast("list[object]", item)
            waiting.extend((name, inner) for inner in items[-_MOST:])
        else:
            raw = text_bytes(item) if isinstance(item, str) else canonical(item)
            # With its name before it, as the masks look for `took`, `created_at` and the like.
            named = b"%b: %b" % (text_bytes(name), normalize.bounded(raw, _STATE))
            found.add(key_of(normalize.masked_outcome(named)))
    if waiting:
        found.add(key_of(normalize.bounded(canonical(whole), _STATE)))
    return frozenset(found)


def _named(item: dict[str, object]) -> list[tuple[str, object]]:
    """The entries of a map, without those that differ although nothing is new."""
    without_id = any(item.keys() >= shape for shape in (*_MESSAGES, *_CALLS))
    return [
        (str(name)[:NAMED], inner)
        for name, inner in islice(item.items(), _MOST + 1)
        if name not in _VOLATILE and not (without_id and name == "id")
    ]


_CODES: Final = tuple(
    f"{of}{code}"
    for of, what in (("exit", "code"), ("exit", "status"), ("return", "code"))
    for code in (f"_{what}", what, what.title())
)
_SHORT_CODE: Final = "rc"
"""The same in two letters, which may be a release candidate beside other texts."""
_SAYS_FAILED: Final = re.compile(pattern_of("failed"), re.ASCII)
_BROKE_OFF: Final = normalize.PrefilteredPattern(pattern_of("broke off"))
_ONE_LINE: Final = re.compile(pattern_of("one line"), re.ASCII)
_ENDS_WITH_ONE: Final = re.compile(pattern_of("ends with one"), re.ASCII)
_LIMITS: Final = {
    os.environ.get(f"OTEL_{of}ATTRIBUTE_VALUE_LENGTH_LIMIT", "").strip() for of in ("SPAN_", "")
}
"""Attribute limits that this process was given."""
_LEAST_CUT: Final = 64
"""Characters of the shortest limit that anybody sets."""
_ROUND: Final = 250
"""Limits are multiples of this, or powers of two; one text in 250 has such a length by chance."""
_MARK: Final = 80
"""Characters at the end of a text that may say that it was cut."""
_MEASURES: Final = (
    "score|accuracy|loss|error|f1|auc|rmse|mae|mse|reward|fitness|precision|recall|perplexity|bleu|"
    "coverage|failed|failures|passed"
)
_MEASURE_WORDS: Final = _MEASURES.split("|")
_NUMBER: Final = r"-?\d{1,12}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
_MEASURED: Final = normalize.PrefilteredPattern(
    rf"\b(\w{{0,20}}(?:{_MEASURES})s?)[\"']?\s{{0,3}}[:=]\s{{0,3}}({_NUMBER})(?![\w.]*\w)",
    rf"(?:{_MEASURES})s?[\"']?\s{{0,3}}[:=]\s{{0,3}}{_NUMBER}",
    of_bytes=True,
)
# With a # in front it is the number of a build.
_COUNTED: Final = re.compile(r"(?<!#)\b(\d{1,9}) (failed|failing|failures?|errors?)\b", re.ASCII)
_TRACEBACK: Final = "Traceback (most recent call last)"
# Several, as one for all of them has more states than the engine keeps: it then takes ten times as
# long on texts of people. So does any of these with a few patterns more; `make bench` times them.
MAY_TELL: Final = (
    normalize.prefilter(
        normalize.outline(pattern_of("refuses")),
        re.escape(_TRACEBACK),
        _PENDING.outline,
        normalize.outline(pattern_of("nothing", "en")),
        normalize.outline(_COUNTED.pattern),
        # An outcome has no space in front of it any more. Not `\w`: 42 times all of Unicode's
        # letters take 15 ms to compile.
        r"\A(?:error|exception|fatal|failed|failure|traceback|exit ?code|http[ /]|status|"
        r"e_[a-z]{3}|0x8|[0-9A-Za-z_]{1,42}(?:error|exception): )",
        of_bytes=True,
    ),
    normalize.prefilter(normalize.VOLATILE, of_bytes=True),
    normalize.prefilter(
        _REJECTS.outline,
        normalize.outline(_latin(pattern_of("nothing", *LANGUAGES - {"en"}))),
        _MEASURED.outline,
        of_bytes=True,
    ),
)


def _may_tell(text: str) -> bool:
    """True if one of the patterns for what an outcome says of itself may be found in it."""
    for stands_in in MAY_TELL:  # noqa: SIM110 - `any` over a generator costs more
        if stands_in(text):
            return True
    return False


class Outcome(NamedTuple):
    """The outcome of one call; its keys are None if it was not captured."""

    exact: int | None
    """Key of the outcome (or error) as it is."""
    key: int | None
    """Key of it with volatile values masked."""
    size: int
    raw: bytes
    """The bytes as they are, bounded."""
    masked: bytes
    tells: bool
    """True if it may say more than its content: that it waits, failed, found nothing, measured.
    Nothing has to be looked for in one that does not."""
    low: str
    """The head in lower case, a character for each byte; empty of a long one that tells nothing."""
    length: int
    """Characters of it, or of the longest text in what is no text."""
    cut: int
    """Characters after which a limit may have cut it: 0 if none has, `SURE` if one has."""


SURE: Final = 1 << 60
"""More characters than any text has."""
UNSEEN: Final = Outcome(None, None, 0, b"", b"", False, "", 0, 0)
_BARE: Final = Reading(None, None, False, None, 0, None, None, None, None, "", UNSEEN, _NO_LEAVES)
"""For a step without arguments and outcome, such as a model call."""


_FRAMES: Final = 4
"""Frames that are looked through: a part in a list, in a result, in an answer."""
_STATES: Final = WORDS["states"] | {""}
"""Names and values of fields that say how a call went, or nothing."""
_RESULT: Final = frozenset(("content", "structuredContent", "isError", "_meta"))
_PARTS: Final = (
    (frozenset(("type", "text", "annotations", "_meta")), "text"),
    (_RESULT, "content"),
)
"""Fields of a part of a message and of a result as MCP defines them, and what they are about."""


_SHORTEST_ID: Final = 8
"""Characters of a call's id that is looked for in its answer: a shorter one may be a word of it."""


def outcome_of(
    step: Step, limit: int, whole: object = None, said: object = None, failure: str = ""
) -> Outcome:
    """The outcome of a finished call, of a failed one what it said.

    `whole` is its JSON value, and `said` what the frame of that is put around: what is told apart
    is the whole, and what is read is what it says.
    """
    value = failure or step.outcome
    if step.error and (value is None or step.error_text):
        value = error_text(step)
    if value is None:
        return UNSEEN
    text = value if isinstance(value, str) else None
    if text is None:
        raw = normalize.bounded(canonical(value), limit)
        found = _read(raw, unescaped(raw), seen=len(raw) <= normalize.MASKED_BYTES)
    else:
        own = step.call_id or ""
        if len(own) >= _SHORTEST_ID and len(text) <= limit:
            # The id of the call itself makes no answer another one.
            text = text.replace(own, "")
        raw = normalize.bounded_text(text, limit)
        seen = len(raw) <= normalize.MASKED_BYTES and len(text) <= limit
        words = raw
        if seen and value is step.outcome and _is_nested(whole):
            # The same value is the same answer, whatever the order of its keys and its spaces.
            raw = canonical(whole)
            words = unescaped(raw)
        found = _read(raw, words, seen=seen, length=len(text), cut=_cut_after(text, raw))
        if seen and value is step.outcome and _ELEMENT.match(text):
            found = found._replace(size=_size_within(text, found.size))
    if value is step.outcome and _is_nested(whole):
        return _read_within(found, raw, whole, said)
    return found


def _read(raw: bytes, words: bytes, *, seen: bool, length: int = 0, cut: int = 0) -> Outcome:
    """Reads bytes; words are searched in `words`, unless not all of it is `seen`."""
    if seen and not raw.isascii():
        raw, words = normalize.plain_digits(raw), normalize.plain_digits(words)
    words = words if len(words) > _SENTENCE or words.isascii() else _composed(words)
    exact = key = key_of(raw)
    # One look for all that this module and the masks look for.
    tells = not seen or _may_tell(words.decode("latin-1"))
    if not tells and len(raw) > _NOTE:
        return Outcome(exact, key, size_of(raw), raw, raw, False, "", length, cut)
    masked = normalize.masked_outcome(raw) if tells else raw
    if masked is not raw:
        key = key_of(masked)
    low = words[:_LOOK].lower().decode("latin-1")
    size = size_of(raw if masked is raw else normalize.without_marks(raw))
    return Outcome(exact, key, size, raw, masked, tells, low, length, cut)


def _read_within(found: Outcome, raw: bytes, whole: object, said: object) -> Outcome:
    """Reads a JSON answer with the bytes `raw`; its identity is that of the whole."""
    if len(raw) > normalize.MASKED_BYTES:
        return found
    exact, key, length, cut = found.exact, found.key, found.length, found.cut
    inner = said if isinstance(said, str) else _longest(said)
    if inner and not cut:
        length, cut = len(inner), _cut_after(inner, text_bytes(inner))
    if said is not whole:
        shown = unescaped(raw)
        masked = normalize.masked_outcome(shown)
        key = exact if masked is shown else key_of(masked)
        raw = canonical(said)
        found = _read(raw, raw if isinstance(said, str) else unescaped(raw), seen=True)
        if isinstance(said, str):
            found = found._replace(size=_size_within(said, found.size))
    if key != exact and is_map(whole):
        # An id of the request itself makes no answer another one.
        exact = key_of(canonical(normalize.without_request_ids(whole)))
    _, _, size, raw, masked, tells, low, _, _ = found
    return Outcome(exact, key, size, raw, masked, tells, low, length, cut)


def _composed(words: bytes) -> bytes:
    """With each letter and its accent as one character: macOS writes them as two."""
    return unicodedata.normalize("NFC", words.decode("utf-8", "replace")).encode()


def _within(said: object, *, failed: bool = False) -> object:
    """The content of an answer without the frames around it, parsed.

    A frame is a list or an object of one entry, but for what says only how the call went, or what
    MCP answers and its parts: what a server or a shell puts around each of its answers makes none
    of them longer, and hides no word of it. What says that it failed, or what was wrong, is none,
    unless that is known.
    """
    for _ in range(_FRAMES):
        if is_map(said):
            if not failed and (_tells_failure(None, said) or lists_errors(said)):
                break
            parts = [value for name, value in said.items() if not _is_status(name, value)]
            if len(parts) > 1:
                about = (name for known, name in _PARTS if name in said and said.keys() <= known)
                parts = [said[name] for name in about]
            elif said and not parts:
                values = list(said.values())
                parts = [value for value in values if isinstance(value, str)] or values
        elif is_list(said):
            # Of a list a record that failed is data.
            if len(said) != 1 or _tells_failure(None, said[0]):
                break
            parts = said
        else:
            break
        if not parts or parts[0] is None:
            break
        said = normalize.parsed(parts[0])
    return said


def _longest(said: object) -> str:
    """The longest text in an answer's fields; empty of one that holds none that may be cut."""
    for _ in range(_FRAMES):
        if is_map(said):
            parts = list(islice(said.values(), _MOST))
        elif is_list(said):
            parts = said[:_MOST]
        else:
            break
        longest = max((part for part in parts if isinstance(part, str)), key=len, default="")
        if len(longest) >= _LEAST_CUT:
            return longest
        said = next(filter(_is_nested, parts), None)
    return ""


def _is_nested(part: object) -> bool:
    return isinstance(part, (dict, list))


_CODE: Final = re.compile(r"-?\d{1,9}", re.ASCII)
_ELEMENT: Final = re.compile(r"\s{0,100}<([A-Za-z][\w.-]{0,40})>", re.ASCII)
"""Start of a text of elements with any names; bounded because it runs on every text."""


def _size_within(text: str, size: int) -> int:
    """Letters of what elements are put around, as frames are; of any other text its size."""
    for _ in range(_FRAMES):
        fields = _elements(text)
        inner = fields if fields is None else _within(fields)
        if inner is fields:
            break
        if not isinstance(inner, str):
            return size_of(canonical(inner))
        text, size = inner, size_of(text_bytes(inner))
    return size


def _elements(text: str) -> dict[str, object] | None:
    """The elements of a text that is nothing but a few of them, each once, as fields of a map."""
    if not _ELEMENT.match(text):
        return None
    fields: dict[str, object] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        opened = _ELEMENT.match(text, at)
        if opened is None or opened[1] in fields or len(fields) == _FRAMES:
            return None
        closed = text.find(f"</{opened[1]}>", opened.end())
        if closed < 0:
            return None
        value = text[opened.end() : closed].strip()
        is_code = opened[1] in _CODES and _CODE.fullmatch(value) is not None
        fields[opened[1]] = int(value) if is_code else value
        at = closed + len(opened[1]) + len("</>")
    return fields


def _is_status(name: str, value: object) -> bool:
    """True if a field reports how the call went, as a number, several numbers, or a status word."""
    if is_map(value):
        return 0 < len(value) <= _FRAMES and all(
            isinstance(one, (int, float)) for one in value.values()
        )
    known = name in _STATES or name in _CODES or name in _OUTPUTS
    if isinstance(value, str):
        return known and value.lower() in _STATES
    return known and (not value or isinstance(value, (int, float)))


_RECORDS: Final = bytes.maketrans(b"[]{}", b"\n" * 4)
_SORTED: Final = 4_000
"""Bytes of an answer whose records are sorted: a page of results."""


def content_key(outcome: Outcome, page: object = None) -> int | None:
    """Key of the lines and records of an outcome, in whatever order; of a long one its own.

    Of a `page` with one list that is what it says: beside it stand its number, cursor and counts.
    """
    if is_map(page):
        lists = [one for one in islice(page.values(), _MOST) if is_list(one)]
        if len(lists) == 1 and lists[0]:
            return key_of(canonical(lists[0]))
    raw = outcome.masked
    if len(raw) > _SORTED or (b"\n" not in raw and raw[:1] not in (b"[", b"{")):
        return outcome.key
    records = {part.strip(b" ,") for part in raw.translate(_RECORDS).split(b"\n")}
    return key_of(b"\n".join(sorted(records)))


def says_nothing_found(outcome: Outcome) -> bool:
    """True if an outcome that tells reports that nothing was found."""
    return outcome.size <= _SENTENCE and _NOTHING.found_in(outcome.low)


def is_empty(said: object) -> bool:
    """True if the JSON value of an outcome is empty, or a record of empty values with a list."""
    if is_map(said):
        return not said or (
            any(value == [] for value in said.values())
            and all(
                not value or name in _STATES or isinstance(value, (int, float))
                for name, value in normalize.without_request_ids(said).items()
            )
        )
    return said == []


def is_null(said: object) -> bool:
    """True if the JSON value of an outcome is a record of nulls, of which one is no error."""
    if not is_map(said):
        return False
    named = normalize.without_request_ids(said)
    return all(value is None for value in named.values()) and any(
        not any(word in name.lower() for word in WORDS["failed"]) for name in named
    )


def lists_errors(said: object) -> bool:
    """True if the JSON value of an outcome has errors, and beside them words and numbers at most.

    A server or a check that answers so turns down what was tried; beside data, as GraphQL has them,
    errors are about a part of it.
    """
    return (
        is_map(said)
        and bool(said.get("errors"))
        and all(
            name == "errors" or not value or isinstance(value, (str, int, float))
            for name, value in islice(said.items(), _MOST)
        )
    )


def rejects(outcome: Outcome) -> bool:
    """True if an outcome that tells rejects what was tried, in words near its start or end."""
    ends = [outcome.low[:_SENTENCE]]
    if outcome.size > _SENTENCE:
        ends.append(outcome.raw[-_SENTENCE:].lower().decode("latin-1"))
    for end in ends:
        if _REJECTS.may_match(end) and _REJECTS.pattern.search(_NONE_FAILED.sub("", end)):
            return True
    return False


def score_of(outcome: Outcome) -> tuple[int, float] | None:
    """The last measurement in an outcome that tells: key of its name, and the number; None without.

    Names are common ones (score, accuracy, loss, ...), alone or at the end of a longer name and
    before a number, or a number of failures or errors. An `error` without a fraction is a code.
    """
    low = outcome.low
    if outcome.size > _LOOK:
        low = outcome.raw[-_LOOK:].lower().decode("latin-1")
    found: tuple[str, str] | None = None
    if _MEASURED.may_match(low):
        for match in _MEASURED.pattern.finditer(low):
            if not match[1].rstrip("s").endswith("error") or "." in match[2]:
                found = match[1], match[2]
    if found is None and (" fail" in low or " error" in low):
        for match in _COUNTED.finditer(low):
            found = match[2][:4], match[1]
        if found is not None and not any(name in low for name in _MEASURE_WORDS):
            return None
    return None if found is None else (key_of(found[0].encode("latin-1")), float(found[1]))


def _gives_a_code(text: str) -> bool:
    """True if the first or last line is that of a runner, and gives a code other than 0.

    A code of 1 may be a plain no, in whatever frame: it tells where a word names an error. Labels
    with nothing behind them may stand below it: `Signal: (none)`.
    """
    first, _, below = text[:_LOOK].lstrip().partition("\n")
    above, _, last = text[-_LOOK:].rstrip().rpartition("\n")
    while above and BY_THE_RUNNER.fullmatch(last) and not GIVES_A_CODE.search(last.lower()):
        above, _, last = above.rpartition("\n")
    for line, others in ((first, below), (last, above)):
        if GIVES_A_CODE.search(line[-_SENTENCE:].lower()):
            return not _ENDS_WITH_ONE.match(line.strip("[(< ")) or any(
                NAMES_ERROR.search(each.lower()) and not BY_THE_RUNNER.fullmatch(each.strip())
                for each in others.split("\n")
            )
    return False


def says_no(text: str) -> bool:
    """True if a program ended with 1 and printed nothing: a search, test or comparison said no."""
    if len(text) > _SENTENCE:
        return False
    return not any(letter.isalpha() for letter in _ENDS_WITH_ONE.sub("", text))


def reports_failure(
    step: Step, reading: Reading, *, shell: bool = False, quotes: bool = False
) -> bool:
    """True if an outcome reports failure, in its frame or text: an exit code, a traceback.

    In a shell, the last words of a program that gave up count too, and an error that is the whole
    answer. In output that `quotes` (a file that was read, a run after an edit) only the beginning
    counts: the rest is about something else.
    """
    whole, said = reading.whole, reading.said
    return _tells_failure(step.outcome, whole, shell=shell, quotes=quotes) or (
        said is not whole and _tells_failure(said, said, shell=shell, quotes=quotes)
    )


def _tells_failure(
    outcome: object, said: object, *, shell: bool = False, quotes: bool = False
) -> bool:
    fields = said if is_map(said) else _elements(outcome) if isinstance(outcome, str) else None
    if fields is None:
        if not isinstance(outcome, str):
            return False
        outcome = "\n".join(outcome[:_HEAD].split("\n")[:_LINES]) if quotes else outcome
        told = _SAYS_FAILED.match(outcome) is not None or _TRACEBACK in outcome[-4000:]
        if told or (shell and not quotes and _gives_a_code(outcome)):
            return not (shell and says_no(outcome))
        return shell and (
            _BROKE_OFF.found_in(outcome[-_LOOK:])
            or (len(outcome) <= _SENTENCE and _ONE_LINE.fullmatch(outcome) is not None)
        )
    for part in filter(is_map, (fields, *(() if quotes else islice(fields.values(), _MOST)))):
        for name in (*_CODES, _SHORT_CODE) if _is_of_process(part) else _CODES:
            code = part.get(name)
            if isinstance(code, int) and code != 0:
                texts = (text for text in fields.values() if isinstance(text, str))
                return code != 1 or not says_no("\n".join(texts))
    body = fields.get("body")
    # What an HTTP client gives back with status 200 may still refuse.
    return _says_failed(fields) or (is_map(body) and _says_failed(body))


def _is_of_process(fields: Mapping[str, object]) -> bool:
    """True if a record holds what a process wrote, and numbers."""
    return len(fields) <= _FRAMES and all(
        name in _OUTPUTS or isinstance(value, (int, float)) for name, value in fields.items()
    )


def _failure_in(step: Step, said: object) -> str:
    """The answer, if a field or its first word reports failure; otherwise empty.

    A record with further fields reports on something else that failed.
    """
    if isinstance(said, str):
        return said if len(said) <= _SENTENCE and _SAYS_FAILED.match(said) is not None else ""
    if not is_map(said) or not _says_failed(said):
        return ""
    if not all(
        name in _STATES or name in _OUTPUTS or name in _CODES or name in _RESULT
        for name in normalize.without_request_ids(said)
    ):
        return ""
    inner = _within(said, failed=True)
    return inner if isinstance(inner, str) else text_of(step, inner)


def _says_failed(fields: Mapping[str, object]) -> bool:
    """True if a field of a JSON object reports failure."""
    status = fields.get("status")
    return (
        (isinstance(status, str) and status.lower() in WORDS["failed"])
        or fields.get("success") is False
        or fields.get("ok") is False
        or fields.get("isError") is True  # of MCP's `CallToolResult`
        or bool(fields.get("error"))
        # Of GraphQL; beside data they are about a part of it, and alone what a check reports.
        or ("data" in fields and fields["data"] is None and bool(fields.get("errors")))
    )


_STATUS_LINE: Final = re.compile(
    r"\s{0,8}(?:HTTP(?:/\d(?:\.\d)?)?|status(?: ?code)?:) [45]\d\d\b", re.ASCII | re.IGNORECASE
)
_STATUS_NAMES: Final = frozenset(("status", "statuscode", "httpstatus"))
"""Fields, without underscores and in lower case, that HTTP clients put the status in."""


def is_error_status(said: object) -> bool:
    """True if an answer begins with the HTTP status of an error, or has one in a field.

    Of a call that changes something: to who looks at a page its status is the answer.
    """
    if is_map(said):
        return any(
            isinstance(value, int)
            and 400 <= value < 600
            and name.replace("_", "").lower() in _STATUS_NAMES
            for name, value in islice(said.items(), _MOST)
        )
    return isinstance(said, str) and _STATUS_LINE.match(said) is not None


def _cut_after(text: str, raw: bytes) -> int:
    """Characters of a text that ends where limits end texts; `SURE` of one that is marked as cut.

    JSON that does not end was cut as well. Text of one of these lengths by chance is rare, and no
    limit has it where another text is longer.
    """
    if raw[:1] in (b"{", b"[") and raw[-1:] in (b"}", b"]"):
        return 0
    size = len(text)
    if size >= _MARK and _CUT.found_in(raw[-_MARK:].decode("latin-1").lower()):
        return SURE
    # Only what begins as JSON is looked at to its end.
    if str(size) in _LIMITS or (raw[:1] in (b"{", b"[") and normalize.is_cut_json(raw)):
        return SURE
    return size if size >= _LEAST_CUT and (size % _ROUND == 0 or not size & (size - 1)) else 0
