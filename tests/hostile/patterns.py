"""Every compiled pattern of the package, and texts that would make a bad one slow."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import otel_loopguard
from otel_loopguard._util.tables import read_table
from otel_loopguard.core import error_kinds
from otel_loopguard.evidence.normalize import PrefilteredPattern

if sys.version_info >= (3, 11):
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as codes
    import sre_parse as parser

SHORT: Final = 1_000
LONG: Final = 8 * SHORT
FLOOR_S: Final = 0.01
"""What the longer text may take in any case."""
GROWTH: Final = 20
"""Eight times the length may take so many times the time; 64 times would be quadratic."""

UNITS: Final = (
    " ", "\n", "\t", "a", "A", "0", "1", "15", "_", "-", ".", ",", ":", ";", "/", "=", '"', "'",
    "`", "\\", "\\a", "{", "[", "(", "<", ">", "#", "*", "$", "a ", "a.", "1.", "1:", "a=", "a/",
    "aB", "a1", "0x", "a\n", "; ", "- ", "a, ", "\u00e9", "f0", "00000000-0000-", "2024-01-01T",
    "10:00:00.", "http://a/", "open(", "&&", "```", "```\n", '{"a":', '"a":"', " #", "[redacted",
)  # fmt: skip
"""What patterns usually stumble over, repeated."""
_ALPHABET: Final = " \n\taA0_-.:;,/='\"`\\{[(<>)]}#*$\u00e9!"
_MANY: Final = 30
_EMPTY: Final = frozenset[str]()
_OUTLINED: Final = PrefilteredPattern.__module__
_TABLES: Final = ("error_classes.txt", "error_kinds.txt")
"""Tables whose patterns are text until an error is looked at."""


def patterns() -> dict[str, re.Pattern[Any]]:
    """Every compiled pattern on a module of the package or on a class there, by its place."""
    found: dict[str, re.Pattern[Any]] = {}
    names = [one.name for one in pkgutil.walk_packages(otel_loopguard.__path__, "otel_loopguard.")]
    names = [name for name in names if not name.endswith("__main__")]
    for name in (*names, "otel_loopguard_propagator", "otel_loopguard_pytest"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # the adapter of a framework that is not installed
        for attribute, value in vars(module).items():
            owned = vars(value).items() if isinstance(value, type) else ()
            for inner, one in ((attribute, value), *((f"{attribute}.{x}", y) for x, y in owned)):
                for number, pattern in enumerate(within(one)):
                    if getattr(value, "__module__", name) in {name, "builtins", "re", _OUTLINED}:
                        found[f"{name.removeprefix('otel_loopguard.')}.{inner}[{number}]"] = pattern
    for table in _TABLES:
        for row in read_table(error_kinds.__name__, table):
            found[f"core.{row.place}"] = re.compile("|".join(row.lines))
    return found


def within(value: object) -> Iterator[re.Pattern[Any]]:
    """The patterns in a value, or in a table of them."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, PrefilteredPattern):
        yield value.pattern
    elif isinstance(value, dict):
        yield from within([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from within(item)


def attacks(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Texts of about a length: its own words and usual units, and each repetition pumped."""
    written = _text_of(pattern)
    words = dict.fromkeys(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]", " ", written)))
    units = [*UNITS, *(unit for word in list(words)[:40] for unit in (word, f"{word} "))]
    for unit in units:
        yield unit * (length // len(unit) + 1) + "\0"
    for head, unit in pumps(pattern):
        yield head + unit * (length // len(unit)) + "\0"


def pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """For each long repetition what stands before it, and what may be repeated."""
    yield from dict.fromkeys(_pumps(_parsed(pattern), ""))


def _pumps(tree: Any, head: str) -> Iterator[tuple[str, str]]:
    for op, value in tree:
        if op in _REPEATS:
            least, most, body = value
            unit = _sample(body)
            if most > _MANY and unit:
                yield head, unit
                first = sorted(_firsts(body))
                yield from ((head, char) for char in first[:3])
            yield from _pumps(body, head)
            head += unit * min(least, 3)
        elif op is codes.SUBPATTERN:
            yield from _pumps(value[-1], head)
            head += _sample(value[-1])
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _pumps(branch, head)
            head += _sample(value[1][0])
        elif op in {codes.ASSERT, codes.ASSERT_NOT}:
            yield from _pumps(value[1], head)
        else:
            head += _sample([(op, value)])


def _sample(tree: Any) -> str:
    """A text that a part of a pattern matches, as a rule."""
    out = ""
    for op, value in tree:
        if op in _REPEATS:
            least, most, body = value
            out += _sample(body) * max(least, min(most, 1))
        elif op is codes.SUBPATTERN:
            out += _sample(value[-1])
        elif op is codes.BRANCH:
            out += _sample(value[1][0])
        elif op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY}:
            out += next(iter(sorted(_chars(op, value), key=_ALPHABET.find)), "")
    return out


def _chars(op: Any, value: Any) -> frozenset[str]:
    """Which of the alphabet, and of the letters of a pattern, an item matches."""
    if op is codes.LITERAL:
        return frozenset(chr(value))
    if op is codes.ANY:
        return frozenset(_ALPHABET) - {"\n"}
    if op is codes.NOT_LITERAL:
        return frozenset(_ALPHABET) - {chr(value)}
    found: set[str] = set()
    negated = False
    for kind, what in value:
        if kind is codes.NEGATE:
            negated = True
        elif kind is codes.LITERAL:
            found.add(chr(what))
        elif kind is codes.RANGE:
            found |= {char for char in _ALPHABET if what[0] <= ord(char) <= what[1]}
            found.add(chr(what[0]))
        elif kind is codes.CATEGORY:
            found |= {char for char in _ALPHABET if _CATEGORIES[what](char)}
    return frozenset(_ALPHABET) - found if negated else frozenset(found)


_REPEATS: Final = {codes.MAX_REPEAT, codes.MIN_REPEAT}
_CATEGORIES: Final[dict[Any, Any]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


def _firsts(tree: Any) -> frozenset[str]:
    """What a part of a pattern may begin with."""
    found: frozenset[str] = _EMPTY
    for op, value in tree:
        if op in _REPEATS:
            found |= _firsts(value[2])
            if value[0]:
                return found
        elif op is codes.SUBPATTERN:
            found |= _firsts(value[-1])
            if not _nullable(value[-1]):
                return found
        elif op is codes.BRANCH:
            for branch in value[1]:
                found |= _firsts(branch)
            if not any(_nullable(branch) for branch in value[1]):
                return found
        elif op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY}:
            return found | _chars(op, value)
    return found


def _nullable(tree: Any) -> bool:
    return all(
        (op in _REPEATS and (not value[0] or _nullable(value[2])))
        or (op is codes.SUBPATTERN and _nullable(value[-1]))
        or (op is codes.BRANCH and any(_nullable(branch) for branch in value[1]))
        or op in {codes.AT, codes.ASSERT, codes.ASSERT_NOT}
        for op, value in tree
    )


def faults(pattern: re.Pattern[Any]) -> list[str]:
    """Why a pattern may take more than linear time, by its look.

    A repetition without an end inside of another one that begins with what it holds; or two of them
    in a row, with nothing that must stand between them, that hold a common character.
    """
    return list(dict.fromkeys(_faults(_parsed(pattern))))


def _faults(tree: Any) -> Iterator[str]:  # noqa: C901
    open_ends: frozenset[str] = _EMPTY
    for op, value in tree:
        if op in _REPEATS:
            _, most, body = value
            endless = most is codes.MAXREPEAT
            held = _holds(body) if endless else _EMPTY
            common = open_ends & _firsts(body) if endless else _EMPTY
            if common:
                yield f"two repetitions in a row of {sorted(common)[:3]}"
            if endless and _varies(body) and _nests(body):
                yield f"a repetition of a repetition, of {sorted(held)[:3]}"
            yield from _faults(body)
            if value[0] and not endless and not _nullable(body):
                open_ends = _EMPTY
            elif endless:
                open_ends = held if value[0] and not open_ends & held else open_ends | held
        elif op is codes.SUBPATTERN:
            yield from _faults(value[-1])
            open_ends = (open_ends if _nullable(value[-1]) else _EMPTY) | _ends(value[-1])
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _faults(branch)
            kept = open_ends if any(_nullable(branch) for branch in value[1]) else _EMPTY
            open_ends = kept.union(*(_ends(branch) for branch in value[1]))
        elif op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY}:
            open_ends = _EMPTY


def _ends(tree: Any) -> frozenset[str]:
    """What the endless repetitions hold that a part of a pattern ends with."""
    found: frozenset[str] = _EMPTY
    for op, value in tree:
        if op in _REPEATS and value[1] is codes.MAXREPEAT:
            found |= _holds(value[2])
        elif op is codes.SUBPATTERN:
            found = (found if _nullable(value[-1]) else _EMPTY) | _ends(value[-1])
        elif op is codes.BRANCH:
            kept = found if any(_nullable(branch) for branch in value[1]) else _EMPTY
            found = kept.union(*(_ends(branch) for branch in value[1]))
        elif op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY} or (
            op in _REPEATS and value[0]
        ):
            found = _EMPTY
    return found


def _holds(tree: Any) -> frozenset[str]:
    found: frozenset[str] = _EMPTY
    for op, value in tree:
        if op in _REPEATS:
            found |= _holds(value[2])
        elif op is codes.SUBPATTERN:
            found |= _holds(value[-1])
        elif op is codes.BRANCH:
            found = found.union(*(_holds(branch) for branch in value[1]))
        elif op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY}:
            found |= _chars(op, value)
    return found


def _varies(tree: Any) -> bool:
    return any(
        (op in _REPEATS and value[1] is codes.MAXREPEAT)
        or (op is codes.SUBPATTERN and _varies(value[-1]))
        or (op is codes.BRANCH and any(_varies(branch) for branch in value[1]))
        for op, value in tree
    )


def _nests(tree: Any) -> bool:
    """Whether the end of what is repeated runs over into its next beginning."""
    return bool(_ends(tree) & _firsts(tree))


def _parsed(pattern: re.Pattern[Any]) -> Any:
    return parser.parse(_text_of(pattern), pattern.flags & ~re.UNICODE)


def _text_of(pattern: re.Pattern[Any]) -> str:
    source = pattern.pattern
    return source.decode("latin-1") if isinstance(source, bytes) else source


def took(pattern: re.Pattern[Any], text: str) -> float:
    """Seconds of this thread for a search through a text, and a match at its start."""
    shown: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    start = time.thread_time()
    for _ in pattern.finditer(shown):
        pass
    pattern.fullmatch(shown)
    return time.thread_time() - start


def growth(pattern: re.Pattern[Any], number: int) -> float:
    """By how much the time grows with eight times the length of an attack; the best of three."""
    short, long = (list(attacks(pattern, length))[number] for length in (SHORT, LONG))
    least = min(took(pattern, short) for _ in range(3))
    return min(took(pattern, long) for _ in range(3)) / max(least, 1e-5)
