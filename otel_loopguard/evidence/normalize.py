"""Canonical JSON of values, and masks for what changes by itself.

A JSON text and the equal map are the same call; the order of keys and the way a number is written
do not matter (RFC 8785 in spirit). Text that is no JSON stays text.

Plain numbers are never masked: "37 %" -> "41 %" is progress, an offset is a place. The patterns
run only where one look for all of them says that they could match, because a regular expression
over a long outcome costs more than everything else the guard does.
"""

from __future__ import annotations

import gc
import json
import math
import re
import weakref
from collections import deque
from collections.abc import Mapping, Sized
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import orjson
import xxhash
from pydantic_core import SchemaValidator, core_schema

from otel_loopguard._util.bounded import VALUES, keep, loads
from otel_loopguard.evidence.vocabulary import WORDS, pattern_of

if TYPE_CHECKING:
    from collections.abc import Callable

NAMED: Final = 200
"""Characters of a name that count, of a tool, an agent, a file: longer ones are generated."""
AGENTS: Final = 32
"""Agents of a session that are told apart, the newest: teams are smaller."""
CALLS: Final = 64
"""Different calls, tools or arguments of a session that are remembered, the newest: a loop has
fewer, and each costs some hundred bytes."""
HOUR: Final = 3_600_000_000_000
"""An hour in nanoseconds: steps that seem to overlap by more do so because a clock was set."""

_DEPTH: Final = 32
"""Levels of a value that are written out: deeper ones are cycles."""
_BUDGET: Final = 10_000
"""Values that are written out in Python, for some 10 ms; what has more is equal to nothing."""
_LARGEST: Final = 1_000_000
"""Values and characters of an object that is written out, as of JSON that is parsed."""
_LEVELS: Final = 254
"""Levels that orjson goes down; what is deeper is a circle."""
_SIZED: Final = frozenset((str, dict, list, tuple))
"""Their length is no code of the application."""
_BYTES: Final = 4_096
"""Bytes of a binary value that are written out as they are."""
_REWRITTEN: Final = 8_192
"""Bytes of JSON in which 1.0 and 1 are made equal, at Python's speed."""
_PAGES: Final = 4_096
"""Bytes of a text that is long by any measure."""
_WHOLE: Final = 65_536
"""Characters that are encoded at once: what stays in the processor's cache."""
_TEXT: Final = 20
"""Characters of the text of an object that count as a value: to make them takes as long."""
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_UNLIKE: Final = count()
"""Numbers the values that are not looked at to their end: they are equal to nothing."""
_OBJECTS: Final = 256
"""Objects that are known again, the newest: more than an application hands to its tools."""
_alive: Final[dict[int, tuple[weakref.ref[object], int]]] = {}
"""Objects that say nothing of themselves, by their address, and their numbers."""

_DECODER: Final = json.JSONDecoder()
_WRITTEN: Final = frozenset((b'{"', b"{'", b'["', b"['", b"[{"))
_FIRST: Final = frozenset((*range(0x80), *range(0xC0, 0x100)))
_CHINESE: Final = frozenset(range(0xE4, 0xEA))
_SYLLABLES: Final = frozenset((0xE3, *range(0xEA, 0xEE)))  # kana, Korean
_SHORT: Final = frozenset((*range(0xD6, 0xDC), 0xE0))  # Hebrew, Arabic; Indic scripts, Thai, Lao
_THIRDS: Final = tuple(
    (bytes(sorted({*range(256)} - first)), thirds)
    for first, thirds in (
        (_FIRST - _CHINESE - _SYLLABLES - _SHORT, 3), (_SHORT, 4), (_SYLLABLES, 6), (_CHINESE, 9),
    )
)  # fmt: skip
"""Bytes that are no first one of a character of these scripts, and how many thirds of an English
letter such a character says: counted in sentences that say the same in nineteen languages. Hebrew
and Arabic leave vowels out."""
_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"ghijklmnopqrstuv")
_SORTED: Final = orjson.OPT_SORT_KEYS
_AS_JSON: Final = orjson.OPT_PASSTHROUGH_DATACLASS
"""What a dataclass shows is looked at here."""

key_of = xxhash.xxh3_64_intdigest
"""Key of bytes: 64 bits, the same in every process."""


_LOOK_AROUND: Final = re.compile(r"\(\?<?[!=](?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*\)")
_UNLIKE_RUST: Final = (
    ("(?i)", ""), (r"(?!\w)", r"(?:\W|\z)"), (r"\A", ""), (r"\Z", ""), (r"\b", ""),
    (r"[\w", "[0-9A-Za-z_"), (r"\w", "[0-9A-Za-z_]"), (r"\W", "[^0-9A-Za-z_]"),
    (r"[\d", "[0-9"), (r"\d", "[0-9]"), (r"\s", r"[\t-\r ]"),
)  # fmt: skip
_ENDS: Final = re.compile(r"(?<![\[\\])\^|(?<!\\)\$")
_NAMED: Final = re.compile(r"\(\?P<\w+>")
"""Groups of several outlines must not have one name."""
_BOUND: Final = re.compile(r"(\{\d+,)\d{2,}\}")
"""A long repetition. With its bound the engine has a state for each count of each that has begun,
more than it keeps: `no .{0,60} yet` alone made all of an outline take twelve times as long."""


def outline(pattern: str | bytes) -> str:
    r"""Loosens a Python pattern for Rust: no misses, some false hits.

    Rust's engine has no looks behind or ahead, so that they are left out, and so are ends and
    boundaries of words, and bounds of long repetitions. Only `(?!\w)`, which has to stand at the
    end, stays.
    """
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    for ours, theirs in _UNLIKE_RUST:
        text = text.replace(ours, theirs)
    text = _BOUND.sub(r"\1}", _LOOK_AROUND.sub("", text))
    return _NAMED.sub("(?:", _ENDS.sub("", text))


def prefilter(
    *outlines: str, of_bytes: bool = False, any_case: bool = True
) -> Callable[[str], bool]:
    """Returns a predicate: does any of these outlines occur, in `any_case` or as it is written?

    Rust's engine, which pydantic has, looks for all of them at once: ten instructions a character,
    where Python's takes hundreds. `of_bytes` if the texts are bytes, as Latin-1.
    """
    pattern = "|".join(f"(?:{one})" for one in outlines)
    # What it looks for in any case takes twice as long to compile.
    pattern = f"(?i){pattern}" if any_case else pattern
    schema = core_schema.str_schema(pattern=pattern, strict=True)
    stands_in = SchemaValidator(schema).isinstance_python
    if of_bytes:
        return stands_in
    # What has lone surrogates is no text to Rust, and such outlines are ASCII.
    return lambda text: stands_in(
        text if text.isascii() else text.encode("ascii", "replace").decode()
    )


class PrefilteredPattern:
    """A regex behind a cheap prefilter; expects lower case.

    The prefilter is a part that every match has; one that does not begin with a run of any length
    is found faster. Bytes are searched as Latin-1 text, which takes half the time. Both regexes are
    compiled at first use, or by `compile_patterns`.

    Attributes:
        may_match: Whether the outline stands in a text.
        outline: The outline.
        pattern: The pattern.
    """

    __slots__ = ("_of_bytes", "_source", "may_match", "outline", "pattern")

    may_match: Callable[[str], bool]
    pattern: re.Pattern[str]

    def __init__(self, pattern: str, core: str = "", *, of_bytes: bool = False) -> None:
        self._source = pattern
        self._of_bytes = of_bytes
        self.outline = outline(core or pattern)
        _outlined.append(self)

    def __getattr__(self, name: str) -> Any:
        # Asked for slots that are still empty.
        if name == "may_match":
            any_case = self._source.startswith("(?i)")
            self.may_match = prefilter(self.outline, of_bytes=self._of_bytes, any_case=any_case)
        elif name == "pattern":
            self.pattern = re.compile(self._source, re.ASCII if self._of_bytes else 0)
        else:
            raise AttributeError(name)
        return getattr(self, name)

    def found_in(self, low: str) -> bool:
        """True if the pattern is found in a text in lower case."""
        return self.may_match(low) and self.pattern.search(low) is not None


_outlined: Final[list[PrefilteredPattern]] = []


def compile_patterns() -> None:
    """Compiles what is not yet: 30 ms of CPU, which no span that ends shall wait for."""
    for one in _outlined:
        _ = one.may_match, one.pattern


def parsed(value: object, values: int = VALUES) -> object:
    """The JSON value of a text that is a JSON object or array; anything else as it is.

    Text that is too costly to parse, of more than `values` values, stays text (`bounded.loads`).
    """
    if isinstance(value, str) and value[:1] in "{[ \n" and value:
        try:
            return loads(value, values)
        except ValueError:
            return value
    return value


def _writable(value: object) -> object:
    """The value, or in place of one that is too large to be written out what is equal to nothing.

    What YAML makes of its aliases has one list in many places: a few hundred bytes of it may be
    gigabytes of JSON.
    """
    level: list[Any] = [value] if type(value) in _SIZED else []
    left = _LARGEST
    for _ in range(_LEVELS):
        if not level:
            break
        left -= sum(map(len, level))
        if left < 0:
            return f"…{next(_UNLIKE)}"
        # At C speed: each result is looked at.
        level = [one for one in gc.get_referents(*level) if type(one) in _SIZED]
    return value


def canonical(value: object) -> bytes:
    """Canonical bytes of a value that was `parsed`. Never throws, whatever the value is."""
    if isinstance(value, str):
        return text_bytes(value)
    try:
        raw = orjson.dumps(value, option=_SORTED)
    except (TypeError, RecursionError):
        return orjson.dumps(_plain(value, _DEPTH, [_BUDGET]), option=_SORTED)
    if raw.find(b".0") >= 0 and len(raw) <= _REWRITTEN:
        # Python's speed, and of long data all of it is written in one way.
        return orjson.dumps(_plain(value, _DEPTH, [_BUDGET]), option=_SORTED)
    return raw


def text_bytes(text: str) -> bytes:
    """UTF-8 of a text without the space around it; lone surrogates are kept apart."""
    try:
        return text.strip().encode()
    except UnicodeEncodeError:
        return text.strip().encode("utf-8", "surrogatepass")


def unescaped(raw: bytes) -> bytes:
    """JSON with its line ends, tabs and quotes as they are, so that no escape begins a word."""
    if b"\\" not in raw:
        return raw
    return raw.replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b'\\"', b'"')


_DIGIT: Final = re.compile(
    rb"\xd9[\xa0-\xa9]|\xdb[\xb0-\xb9]|\xe0[\xa5\xa7\xa9\xab\xad\xaf\xb1\xb3\xb5][\xa6-\xaf]|"
    rb"\xe0[\xb9\xbb][\x90-\x99]|\xe0\xbc[\xa0-\xa9]|\xe1\x81[\x80-\x89]|\xe1\x9f[\xa0-\xa9]|"
    rb"\xef\xbc[\x90-\x99]"
)
"""Digits in UTF-8: Arabic, Indic, Thai and Lao, Tibetan, Burmese, Khmer, and full-width ones."""
_may_hold_digits: Final = prefilter(_DIGIT.pattern.decode("ascii"), of_bytes=True, any_case=False)


def plain_digits(raw: bytes) -> bytes:
    """UTF-8 with the digits of other scripts as plain ones."""
    if raw.isascii() or not _may_hold_digits(raw.decode("latin-1")):
        return raw
    return _DIGIT.sub(lambda digit: b"%d" % int(digit[0].decode()), raw)


def size_of(raw: bytes) -> int:
    """Letters of a text in UTF-8, as many as it would have in English; of a long one its bytes."""
    if raw.isascii() or len(raw) > _PAGES:
        return len(raw)
    return sum(thirds * len(raw.translate(None, others)) for others, thirds in _THIRDS) // 3


def key_of_text(text: str, start: int = 0, end: int | None = None) -> int:
    """Key of the UTF-8 of a text, or of a part; of a long one it is never made as a whole."""
    end = len(text) if end is None else end
    if end - start <= _WHOLE:
        return key_of(text[start:end].encode("utf-8", "surrogatepass"))
    # In parts that stay in the processor's cache: new memory for megabytes costs five times more.
    digest = xxhash.xxh3_64()
    for place in range(start, end, _WHOLE):
        part = text[place : min(place + _WHOLE, end)]
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.intdigest()


def bounded(raw: bytes, limit: int) -> bytes:
    """At most about `limit` bytes of `raw`; of what is longer its ends, and a key of the rest.

    What differs anywhere is different.
    """
    if len(raw) <= limit:
        return raw
    half = limit // 2
    return _ends(raw[:half], len(raw), key_of(memoryview(raw)[half:-half]), raw[-half:])


def bounded_text(text: str, limit: int) -> bytes:
    """Returns `bounded` of a text's `text_bytes`, without copying all of a long text."""
    half = limit // 2
    if len(text) > _WHOLE and half and text.isascii():
        text = text.strip()
        if len(text) > limit:
            middle = key_of_text(text, half, len(text) - half)
            return _ends(text[:half].encode(), len(text), middle, text[-half:].encode())
    return bounded(text_bytes(text), limit)


def _ends(head: bytes, size: int, middle: int, tail: bytes) -> bytes:
    # In letters that no mask takes for an id.
    return b"%b|%d %b|%b" % (head, size, (b"%x" % middle).translate(_LETTERS), tail)


def is_cut_json(raw: bytes) -> bool:
    """True if the text of a map or list is incomplete, as an attribute limit leaves it.

    That two such values are equal is only a guess.
    """
    if raw[:2] not in _WRITTEN or raw.rstrip()[-1:] in b"}]":
        return False
    if len(raw) > _WHOLE:
        return True
    try:
        _DECODER.raw_decode(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return True
    return False  # a whole value, and text behind it


def as_data(value: object) -> object:
    """A value in JSON's types; the very same one if it is that already. Never throws.

    Anything else, such as a model, a path or an amount, becomes what a user sees of it: its fields
    or its text. That runs code of the application: call it where the value is, and hold no lock.
    """
    if value is None or type(value) is str:
        return value
    value = _writable(value)
    try:
        orjson.dumps(value, option=_AS_JSON)
    except (TypeError, RecursionError):
        return _plain(value, _DEPTH, [_BUDGET])
    return value


def _plain(value: object, depth: int, left: list[int]) -> object:
    """The value in JSON's types; a cycle ends at the depth, what has too many items is unlike."""
    left[0] -= 1
    if left[0] < 0:
        return f"…{next(_UNLIKE)}"
    try:
        # A proxy raises when it is asked for its class.
        if value is None or isinstance(value, (bool, int, float)):
            return _number(value)
        if isinstance(value, str):
            return _sound(value)
        if isinstance(value, (bytes, bytearray)):
            return _written(bytes(value))
        return _contained(value, depth, left) if depth else "…"
    except Exception:  # noqa: BLE001  # of the application's own code
        return f"…{next(_UNLIKE)}"


def _sound(text: str) -> str:
    """A text without the space around it, and without lone surrogates."""
    return text_bytes(text).decode("utf-8", "backslashreplace")


def _written(raw: bytes) -> str:
    try:
        return raw.decode().strip()
    except UnicodeDecodeError:
        return "bytes:" + bounded(raw, _BYTES).hex()


def _contained(value: object, depth: int, left: list[int]) -> object:
    if isinstance(value, (list, tuple, set, frozenset, deque, Mapping)):
        if len(cast("Sized", value)) > left[0]:
            return f"…{next(_UNLIKE)}"
        if isinstance(value, Mapping):
            named = cast("Mapping[object, object]", value)
            return {
                str(_plain(name, depth - 1, left)): _plain(item, depth - 1, left)
                for name, item in named.items()
            }
        return [_plain(item, depth - 1, left) for item in cast("list[object]", value)]
    fields = _fields(value)
    if fields is None:
        return _shown(value, depth, left)
    return {
        name: _plain(item, depth - 1, left) if shown else _digest(item, depth, left)
        for name, item, shown in fields
    }


def _fields(value: object) -> list[tuple[str, object, bool]] | None:
    """The fields of a model or a dataclass, and whether it shows them; None of anything else."""
    kind: Any = type(value)
    known: dict[str, Any] | None = getattr(kind, "__pydantic_fields__", None)
    if known is not None:
        given = vars(value)
        more: dict[str, object] = getattr(value, "__pydantic_extra__", None) or {}
        shown = {name: field.repr and not field.exclude for name, field in known.items()}
        fields = [(name, given[name], shown[name]) for name in known if name in given]
        return fields + [(name, item, True) for name, item in more.items()]
    if not is_dataclass(kind):
        return None
    return [(field.name, getattr(value, field.name), field.repr) for field in fields_of(kind)]


def _shown(value: object, depth: int, left: list[int]) -> object:
    """The text of an object; its class and what tells it apart, if it has no text of its own."""
    kind = type(value)
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        own = getattr(value, "__dict__", None)
        told = _digest(own, depth, left) if own else _number_of(value)
        return f"<{kind.__name__} {told}>"
    try:
        return orjson.loads(orjson.dumps(value, option=_AS_JSON))  # a date, an id, a member
    except TypeError:
        text = str(value)
    left[0] -= len(text) // _TEXT
    # A collection shortens its text, and an address is soon that of another object.
    if _ADDRESS.search(text) is None and not ("..." in text and hasattr(kind, "__len__")):
        return _sound(text)
    return f"{_sound(_ADDRESS.sub('', text))} {_number_of(value)}"


def _digest(value: object, depth: int, left: list[int]) -> str:
    """Stands for what a value does not show; in letters that no mask takes for an id."""
    raw = canonical(_plain(value, depth - 1, left))
    return (b"%x" % key_of(raw)).translate(_LETTERS).decode()


def _number_of(value: object) -> str:
    """A number that an object has as long as it lives, where that can be told, and no other has."""
    known = _alive.get(id(value))
    if known is None or known[0]() is not value:
        try:
            known = weakref.ref(value), next(_UNLIKE)
        except TypeError:
            return f"…{next(_UNLIKE)}"
        keep(_alive, id(value), known, _OBJECTS)
    return f"…{known[1]}"


def _number(value: float | None) -> object:
    if isinstance(value, int):
        # `str` refuses more than 4300 digits.
        return value if abs(value) < 2**63 else hex(value)
    if value is None:
        return None
    if math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return str(value)


_NAMES: Final = 1_000
"""Arguments of a call that are looked at: one of more is a table."""
_VOLATILE: Final = 6
"""Characters of the shortest value that is masked: a file in a temporary folder."""
MASKED_BYTES: Final = 16_000
"""Bytes of a text that are masked, half from its head and half from its tail."""

_RIND: Final = b"# \t\r\n\"'{}[]().,:;|"

_FLAT: Final = bytes.maketrans(b"123456789", b"000000000")
_HEX: Final = bytes.maketrans(b"123456789abcdefABCDEF", b"0" * 21)

_TIMES: Final = re.compile(
    rb"\d(?<![\w.]\d)(?:"
    rb"\d{3}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|GMT)|[+-]\d\d:?\d\d)?"
    rb"|\d?:\d\d:\d\d(?:[.,]\d+)?(?: ?[AaPp][Mm])?"
    rb"|\d*(?:[dhm] ?\d{1,4}){0,3}(?:\.\d+)? ?"
    rb"(?:ms|us|ns|s|secs?|seconds?|milliseconds?|minutes?|mins?|hours?)(?!\w)"
    rb"|\d*(?:[dh] ?\d{1,4}){1,2}[hm](?!\w)"
    rb"|(?<=1)[4-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)"
    rb")"
)
_TIME_SIGN: Final = re.compile(r"0(?:0{9}|:00| ?[smunh])")
"""Shape of all matches of `_TIMES` once their digits are zeros."""

_IDS: Final = re.compile(
    rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|"
    rb"(?<![0-9a-fA-F])(?:0x)?[0-9a-fA-F]{16,128}(?![0-9a-fA-F])"
)
"""No longer than SHA-512: what has more digits is data, such as the bytes of an image."""
_SHORT_ID: Final = re.compile(rb"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,15}\b")
"""A shorter id than those of `_IDS`, of a commit, a container, a request: git shortens to seven. It
may be the news of an answer: failures are compared without it, and what is equal but for digits."""
_POINTER: Final = re.compile(rb"0x[0-9a-fA-F]{6,16}(?![0-9a-fA-F])")
_PROCESS: Final = re.compile(rb"(?i)\bpid\W{1,3}\d+")
_TEMPORARY: Final = re.compile(rb"/(?:tmp|var/tmp|var/folders)/[\w.@+-]+")
_FIELDS: Final = re.compile(
    rb'(?i)"?\b(?:took|elapsed|duration|latency|uptime|timestamp|created_at|updated_at|request_?id|'
    rb"correlation_?id|trace_?id|nonce)(?:_?(?:ms|us|ns|s|secs?|seconds|time))?\"?\s{0,2}[:=]\s{0,2}"
    rb'(?:"[^"\n]{0,64}"|(?=[^\s\d]{0,64}\d)[\w.:+-]+)'
    rb"|\[ref=\w{1,16}\]"
)
"""A mark in brackets is what a snapshot of a page gives its elements, anew with each snapshot."""
_may_hold_fields: Final = prefilter(outline(_FIELDS.pattern), of_bytes=True)
_STAMPS: Final = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|GMT)|[+-]\d\d:?\d\d)?"
    rb"|1[4-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
VOLATILE: Final = "|".join(
    outline(each.pattern) for each in (_TIMES, _IDS, _POINTER, _PROCESS, _TEMPORARY, _FIELDS)
)
"""Found in every text in which a mask replaces anything."""
_may_be_volatile: Final = prefilter(VOLATILE, of_bytes=True)
_may_hold_short_id: Final = prefilter(outline(_SHORT_ID.pattern), of_bytes=True, any_case=False)


def replace_short_ids(raw: bytes, by: bytes | Callable[[re.Match[bytes]], bytes] = b"#") -> bytes:
    """Replaces ids of 7 to 15 hexadecimal digits, which mark a commit or a request."""
    return _SHORT_ID.sub(by, raw) if _may_hold_short_id(raw.decode("latin-1")) else raw


_NUMBERS: Final = re.compile(rb"\d+")

_MARKS: Final = re.compile(pattern_of("marks"))


def masked_outcome(raw: bytes) -> bytes:
    """An outcome with volatile values replaced. Linear in its length."""
    masked = _masked(raw)
    # Of an answer that is nothing but a time its mask leaves nothing: it is told by the time.
    return masked if masked is raw or masked.strip(_RIND) else raw


def without_marks(raw: bytes) -> bytes:
    """An outcome without id and time of its request, which make it no longer: by their names."""
    marked = len(raw) <= MASKED_BYTES and _may_hold_fields(raw.decode("latin-1"))
    return _FIELDS.sub(b"", raw) if marked else raw


def masked_call(raw: bytes) -> bytes:
    """Arguments with ids, full timestamps, pointers and temporary paths replaced.

    Durations, dates, numbers and places stay: they are what a call asks for.
    """
    return _masked(raw, call=True)


def masked_numbers(raw: bytes) -> bytes:
    """An error line with every number replaced: its shape, whatever the arguments were."""
    return _NUMBERS.sub(b"#", _masked(plain_digits(raw)))


def without_volatile(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments without those that are volatile by name, if any others remain."""
    if WORDS["volatile"].isdisjoint(arguments):
        return arguments
    kept = {name: item for name, item in arguments.items() if name not in WORDS["volatile"]}
    return kept or arguments


def without_nonces(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments with the values masked that look volatile; the very same dict if none does.

    Of more than a thousand arguments none is looked at. An id or a time says what is asked for,
    unless the argument's name says that it marks the asking, and others stand beside it.
    """
    if not 1 < len(arguments) <= _NAMES:
        return arguments
    masked: dict[str, object] | None = None
    for name, value in arguments.items():
        if not isinstance(value, str) or len(value) < _VOLATILE:
            continue
        # Keys that are no text come from what is no JSON.
        if _MARKS.search(str(name)):
            raw = value.encode("utf-8", "surrogatepass")
            found = masked_call(raw)
            if found is not raw:
                masked = masked or dict(arguments)
                masked[name] = found.decode("utf-8", "replace")
    return arguments if masked is None else masked


def _masked(raw: bytes, *, call: bool = False) -> bytes:
    """Replaces volatile values in bytes; in a call, only those that nobody asks for.

    The middle of a long text is compared unmasked. Returns the same object if nothing is replaced.
    """
    if len(raw) > MASKED_BYTES:
        half = MASKED_BYTES // 2
        head, tail = raw[:half], raw[-half:]
        ends = _masked(head, call=call), _masked(tail, call=call)
        if ends[0] is head and ends[1] is tail:
            return raw
        return b"%b|%x|%b" % (ends[0], key_of(memoryview(raw)[half:-half]), ends[1])
    text = raw.decode("latin-1")
    if not _may_be_volatile(text):
        return raw
    # As text: to ask bytes for bytes raises, and drops, an exception within.
    flat = raw.translate(_FLAT).decode("latin-1")
    return _replaced(raw, text, flat, call=call) if "0" in flat else raw


def _replaced(raw: bytes, text: str, flat: str, *, call: bool) -> bytes:
    out = raw
    if call:
        if "0:00:00" in flat or "0000000000" in flat:
            out = _STAMPS.sub(b"#", out)
    elif ":" in flat or "=" in flat:
        # Its name says what it is, so that an answer of it alone is more than a time.
        out = _FIELDS.sub(b"_", out) if _may_hold_fields(text) else out
    if not call and ("pid" in text or "PID" in text):
        out = _PROCESS.sub(b"#", out)
    if not call and _TIME_SIGN.search(flat):
        out = _TIMES.sub(b"#", out)
    if len(raw) >= 16:
        digits = raw.translate(_HEX).decode("latin-1")
        if "00000000-0000-" in digits or "0000000000000000" in digits:
            out = _IDS.sub(b"#", out)
    if "x" in flat and "0x" in flat:
        out = _POINTER.sub(b"#", out)
    if "/" in flat and ("/tmp/" in flat or "/var/" in flat):  # noqa: S108
        out = _TEMPORARY.sub(b"#", out)
    return out


_ENOUGH: Final = 4
"""New values in a row after which an argument is learned; three also occur by chance."""
_MOST: Final = 32
"""Arguments per call that can be learned: each costs one more key of all the others."""
_NONCE: Final = re.compile(r"(?=[\w:#-]{8,64}$)(?:[A-Za-z_#:-]*\d+[A-Za-z]+\d+[A-Za-z])[\w:#-]*")


_THING: Final = re.compile(pattern_of("thing"))
SEARCHES: Final = re.compile(pattern_of("searches"))
"""Names of arguments that say what is asked for, and what is searched for."""

_may_hold_nonce: Final = prefilter(VOLATILE, "[0-9][a-z]+[0-9]+[a-z]", of_bytes=True)


def may_hold_nonces(raw: bytes) -> bool:
    """True if one of the arguments, given as bytes, may look like a nonce."""
    return len(raw) > MASKED_BYTES or _may_hold_nonce(raw.decode("latin-1"))


_REQUEST_ID: Final = re.compile(
    rf"\A(?:{_NONCE.pattern}|{_SHORT_ID.pattern.decode()}|{_IDS.pattern.decode()})\Z"
)


def without_request_ids(fields: dict[str, object]) -> dict[str, object]:
    """The fields of an answer, or arguments, without ids that by their name mark the request."""
    return {
        name: value
        for name, value in fields.items()
        if not (isinstance(value, str) and _MARKS.search(str(name)) and _REQUEST_ID.match(value))
    }


class VolatileArguments:
    """Learns, per tool, which arguments are nonces.

    An argument is learned when its value was new in each of four calls that were equal in all
    else, outcome included, to the letter: a page of other ids is another page. Only values in which
    letters and digits change about, in 8 characters or more, can be learned, never the only
    argument and none that is named like a thing (`id`, `path`) or a question (`query`): a page, a
    date, a number counted up or a file name says what is asked for. It is a guess all the same.
    """

    __slots__ = ("_runs", "learned")

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], tuple[int, frozenset[int]]] = {}
        # By tool and name.
        self.learned = frozenset[tuple[int, str]]()

    def without(
        self, tool: int, arguments: dict[str, object], outcome: int | None
    ) -> dict[str, object]:
        """The arguments without what was learned; the very same dict if nothing was."""
        if not 2 <= len(arguments) <= _MOST or outcome is None:
            return arguments
        for name, value in arguments.items():
            if (
                isinstance(value, str)
                and 8 <= len(value) <= 64
                and _NONCE.match(value)
                and _THING.search(str(name)) is None
                and SEARCHES.search(str(name)) is None
                and (tool, name) not in self.learned
            ):
                rest = {other: item for other, item in arguments.items() if other != name}
                self._note(
                    (tool, name), key_of(text_bytes(value)), key_of(canonical(rest)) ^ outcome
                )
        if not self.learned:
            return arguments
        kept = {name: item for name, item in arguments.items() if (tool, name) not in self.learned}
        return kept if kept and len(kept) < len(arguments) else arguments

    def _note(self, place: tuple[int, str], value: int, rest: int) -> None:
        known, values = self._runs.pop(place, (rest, frozenset[int]()))
        values = values | {value} if known == rest and value not in values else frozenset((value,))
        if len(values) >= _ENOUGH and len(self.learned) < CALLS:
            self.learned |= {place}
        else:
            keep(self._runs, place, (rest, values), CALLS)
