"""No regular expression of the package takes more than linear time, whatever it is shown.

All compiled patterns are found by importing all modules. Each is looked at for repetitions that
share what they hold, and is shown texts that pump each of its repetitions, its own words and signs,
and what patterns usually stumble over, in lengths of n and 8n.
"""

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from functools import cache, reduce
from typing import Any, Final, NamedTuple

import pytest

import otel_loopguard
from otel_loopguard._util.tables import read_table
from otel_loopguard.core import evidence
from otel_loopguard.evidence.normalize import PrefilteredPattern

if sys.version_info >= (3, 11):
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
else:
    import sre_constants as codes
    import sre_parse as parser

Chars = frozenset[str]

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
_CATEGORIES: Final = {
    codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_OUTLINED: Final = PrefilteredPattern.__module__
_TABLES: Final = ("error_classes.txt", "error_kinds.txt")
"""Tables whose patterns are text until an error is looked at."""


@cache
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
        for row in read_table(evidence.__name__, table):
            found[f"core.{row.place}"] = re.compile("|".join(row.lines))
    return found


def within(value: object) -> Iterator[re.Pattern[Any]]:
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
    signs = dict.fromkeys(re.findall(r"[^\w\s\\]", written))
    own = (*list(words)[:40], *list(signs)[:40])
    units = [*UNITS, *(unit for each in own for unit in (each, f"{each} "))]
    for unit in units:
        yield unit * (length // len(unit) + 1) + "\0"
    for head, unit in dict.fromkeys(part_of(pattern).pumps):
        yield head + unit * (length // len(unit)) + "\0"


class Part(NamedTuple):
    """What a part of a pattern matches, and what may take long in it."""

    sample: str = ""  # matches, as a rule; what repeats does so three times
    first: Chars = frozenset()
    holds: Chars = frozenset()
    ends: Chars = frozenset()  # what may go on an endless repetition at its end
    opens: Chars = frozenset()  # and begin one at its beginning
    empty: bool = False
    endless: bool = False
    faults: tuple[str, ...] = ()  # why it may take more than linear time, by its look
    pumps: tuple[tuple[str, str], ...] = ()  # what stands before a long repetition, and repeats


_NOTHING: Final = Part(empty=True)


def part_of(pattern: re.Pattern[Any]) -> Part:
    return _read(parser.parse(_text_of(pattern), pattern.flags & ~re.UNICODE))


def _read(tree: Any) -> Part:
    return reduce(_then, (_item(op, value) for op, value in tree), _NOTHING)


def _item(op: Any, value: Any) -> Part:
    if op in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
        return _repeated(value[0], value[1], _read(value[2]))
    if op is codes.SUBPATTERN:
        return _read(value[-1])
    if op is codes.BRANCH:
        return reduce(_or, map(_read, value[1]))
    if op in {codes.ASSERT, codes.ASSERT_NOT}:
        return Part(empty=True, pumps=_read(value[1]).pumps)
    if op in {codes.LITERAL, codes.IN, codes.NOT_LITERAL, codes.ANY}:
        chars = _chars(op, value)
        return Part(min(chars, key=_ALPHABET.find, default=""), chars, chars)
    return Part(empty=op is codes.AT)


def _then(one: Part, other: Part) -> Part:
    common = one.ends & other.opens
    fault = (f"two repetitions in a row of {sorted(common)[:3]}",) if common else ()
    return Part(
        one.sample + other.sample,
        one.first | other.first if one.empty else one.first,
        one.holds | other.holds,
        one.ends | other.ends if other.empty else other.ends,
        one.opens | other.opens if one.empty else one.opens,
        one.empty and other.empty,
        one.endless or other.endless,
        one.faults + fault + other.faults,
        one.pumps + tuple((one.sample + head, unit) for head, unit in other.pumps),
    )


def _or(one: Part, other: Part) -> Part:
    return Part(
        one.sample,
        one.first | other.first,
        one.holds | other.holds,
        one.ends | other.ends,
        one.opens | other.opens,
        one.empty or other.empty,
        one.endless or other.endless,
        one.faults + other.faults,
        one.pumps + other.pumps,
    )


def _repeated(least: int, most: int, body: Part) -> Part:
    endless = most is codes.MAXREPEAT
    nests = endless and body.endless and body.ends & body.first
    fault = (f"a repetition of a repetition, of {sorted(body.holds)[:3]}",) if nests else ()
    units = dict.fromkeys((body.sample, *sorted(body.first)[:3])) if most > _MANY else ()
    return body._replace(
        sample=body.sample * min(max(least, 1), 3),
        ends=body.ends | body.first if endless else body.ends,
        opens=body.first if endless else body.opens,
        empty=body.empty or not least,
        endless=body.endless or endless,
        faults=body.faults + fault,
        pumps=tuple(("", unit) for unit in units if unit) + body.pumps,
    )


def _chars(op: Any, value: Any) -> frozenset[str]:
    """Which of the alphabet, and of the letters of a pattern, an item matches."""
    if op is codes.LITERAL:
        return frozenset(chr(value))
    if op in {codes.ANY, codes.NOT_LITERAL}:
        return frozenset(_ALPHABET) - {"\n" if op is codes.ANY else chr(value)}
    found: set[str] = set()
    for kind, what in value:
        if kind is codes.LITERAL:
            found.add(chr(what))
        elif kind is codes.RANGE:
            found |= {char for char in _ALPHABET if what[0] <= ord(char) <= what[1]}
            found.add(chr(what[0]))
        elif kind is codes.CATEGORY:
            found |= set(re.findall(_CATEGORIES[what], _ALPHABET))
    return frozenset(_ALPHABET) - found if value[0][0] is codes.NEGATE else frozenset(found)


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


def slow(pattern: re.Pattern[str]) -> str:
    """The first text for which eight times the length takes much more than eight times the time."""
    for number, text in enumerate(attacks(pattern, LONG)):
        if took(pattern, text) > FLOOR_S and growth(pattern, number) >= GROWTH:
            return text[:60]
    return ""


def test_every_room_with_patterns_is_looked_at() -> None:
    """The walk through the modules finds those that judge, read, and speak to others."""
    rooms = {name.partition(".")[0] for name in patterns()}
    assert rooms >= {"_control", "core", "detectors", "evidence", "plans", "spans", "stores"}
    assert len(patterns()) > 100


def test_no_repetition_runs_over_into_another() -> None:
    """Two of them that hold one character share a text in as many ways as it is long."""
    faults = {name: part_of(pattern).faults for name, pattern in patterns().items()}
    assert {name: why for name, why in faults.items() if why} == {}


@pytest.mark.rare
def test_time_grows_with_the_length_only() -> None:
    """64 times the time for eight times the length would be quadratic."""
    texts = {name: slow(pattern) for name, pattern in patterns().items()}
    assert {name: text for name, text in texts.items() if text} == {}


SLEEP = r"^\s*sleep\s+[\d.]+\s*[smh]?\s*$"
"""It took 53 ms for 4,000 characters in 0.3.0."""


@pytest.mark.parametrize(
    ("pattern", "faults"),
    [
        *((bad, 1) for bad in (SLEEP, r"(?:a+)+b", r"(\w+\s*)+:", r"a(\s*|b*)\s*$")),
        # What must stand between two repetitions keeps them apart.
        *((good, 0) for good in (r"\s+(?:-\w+\s+)*-\w*i", r'"(?:[^"\\]|\\.)*"', r"a*ba*")),
        (r"\s*(?:[smh]\s*)?$", 0),
    ],
)
def test_a_bad_pattern_is_seen_by_its_look(pattern: str, faults: int) -> None:
    """The check itself."""
    assert len(part_of(re.compile(pattern)).faults) == faults


@pytest.mark.rare
@pytest.mark.parametrize("bad", [SLEEP, r"\s+x", r"\w+\d+="])
def test_a_bad_pattern_is_found_by_its_time(bad: str) -> None:
    """The check itself: repetitions are pumped behind what stands before them, as `sleep 1`."""
    assert slow(re.compile(bad))
