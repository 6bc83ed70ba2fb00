"""No regular expression of the package takes more than linear time, whatever it is shown.

All compiled patterns are found by importing all modules. Each is shown texts that pump each of its
repetitions, its own words, and what patterns usually stumble over, in lengths of n and 8n.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

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
ALPHABET: Final = " \n\taA0_-.:;,/='\"`\\{[(<>)]}#*$\u00e9!"
MANY: Final = 30
"""A repetition of fewer than this is too short to be pumped."""
OUTLINED: Final = PrefilteredPattern.__module__
TABLES: Final = ("error_classes.txt", "error_kinds.txt")
REPEATS: Final = {codes.MAX_REPEAT, codes.MIN_REPEAT}
CATEGORIES: Final[dict[Any, Any]] = {
    codes.CATEGORY_DIGIT: str.isdigit,
    codes.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    codes.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    codes.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}
AT_ITS_START: Final = {"evidence.normalize._REQUEST_ID[0]", "policy.diagnosis._IS_COMMAND[0]"}
"""Patterns that are matched at the start of a text only: where to search costs them nothing."""


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
                    if getattr(value, "__module__", name) in {name, "builtins", "re", OUTLINED}:
                        found[f"{name.removeprefix('otel_loopguard.')}.{inner}[{number}]"] = pattern
    for table in TABLES:
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


def text_of(pattern: re.Pattern[Any]) -> str:
    source = pattern.pattern
    return source.decode("latin-1") if isinstance(source, bytes) else source


def attacks(pattern: re.Pattern[Any], length: int) -> Iterator[str]:
    """Texts of about a length: its own words and usual units, and each repetition pumped."""
    words = re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]", " ", text_of(pattern)))
    own = [unit for word in list(dict.fromkeys(words))[:40] for unit in (word, f"{word} ")]
    for unit in (*UNITS, *own):
        yield unit * (length // len(unit) + 1) + "\0"
    for head, unit in pumps(pattern):
        yield head + unit * (length // len(unit)) + "\0"


def pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """For each long repetition what stands before it, and what may be repeated."""
    tree = parser.parse(text_of(pattern), pattern.flags & ~re.UNICODE)
    yield from dict.fromkeys(_pumps(tree, ""))


def _pumps(tree: Any, head: str) -> Iterator[tuple[str, str]]:
    for op, value in tree:
        if op in REPEATS:
            least, most, body = value
            unit = _sample(body)
            if most > MANY and unit:
                yield from ((head, one) for one in (unit, *_chars(*body[0])[:4]))
            yield from _pumps(body, head)
            head += unit * min(least, 3)
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _pumps(branch, head)
            head += _sample(value[1][0])
        elif op in {codes.SUBPATTERN, codes.ASSERT, codes.ASSERT_NOT}:
            yield from _pumps(value[-1], head)
            head += _sample(value[-1]) if op is codes.SUBPATTERN else ""
        else:
            head += _sample([(op, value)])


def _sample(tree: Any) -> str:
    """A text that a part of a pattern matches, as a rule."""
    out = ""
    for op, value in tree:
        if op in REPEATS:
            least, most, body = value
            out += _sample(body) * max(least, min(most, 1))
        elif op is codes.SUBPATTERN:
            out += _sample(value[-1])
        elif op is codes.BRANCH:
            out += _sample(value[1][0])
        else:
            out += "".join(_chars(op, value)[:1])
    return out


def _chars(op: Any, value: Any) -> list[str]:
    """Which of the alphabet, and of the letters of a pattern, an item matches."""
    if op is codes.LITERAL:
        return [chr(value)]
    if op is codes.ANY:
        return [char for char in ALPHABET if char != "\n"]
    if op is codes.NOT_LITERAL:
        return [char for char in ALPHABET if char != chr(value)]
    if op is not codes.IN:
        return []
    found: list[str] = []
    for kind, what in value:
        if kind is codes.LITERAL:
            found.append(chr(what))
        elif kind is codes.RANGE:
            found += [chr(what[0]), *(char for char in ALPHABET if what[0] <= ord(char) <= what[1])]
        elif kind is codes.CATEGORY:
            found += filter(CATEGORIES[what], ALPHABET)
    negated = value[0][0] is codes.NEGATE
    return [char for char in ALPHABET if char not in found] if negated else found


def took(pattern: re.Pattern[Any], text: str, *, search: bool = True) -> float:
    """Seconds of this thread for a search through a text, and a match at its start."""
    shown: Any = text.encode() if isinstance(pattern.pattern, bytes) else text
    start = time.thread_time()
    for _ in pattern.finditer(shown) if search else ():
        pass
    pattern.match(shown)
    pattern.fullmatch(shown)
    return time.thread_time() - start


def slow(pattern: re.Pattern[Any], *, search: bool = True) -> str | None:
    """An attack whose time grows faster than its length, by the best of three."""
    for texts in zip(attacks(pattern, SHORT), attacks(pattern, LONG), strict=True):
        least, most = (took(pattern, text, search=search) for text in texts)
        for _ in range(2):
            if most > max(FLOOR_S, GROWTH * least):
                again = (took(pattern, text, search=search) for text in texts)
                least, most = map(min, (least, most), again)
        if most > max(FLOOR_S, GROWTH * least):
            return texts[1][:60]
    return None


PATTERNS = patterns()


def test_every_room_with_patterns_is_looked_at() -> None:
    """The walk through the modules finds those that judge, read, and speak to others."""
    rooms = {name.partition(".")[0] for name in PATTERNS}
    assert rooms >= {
        "_control", "core", "detectors", "evidence", "plans", "spans", "stores",
    }  # fmt: skip
    assert len(PATTERNS) > 100


@pytest.mark.parametrize(
    "name",
    [
        # Blank lines: `^\\s*` runs over all of them from each; of at most 2,000 characters.
        pytest.param(one, marks=pytest.mark.xfail(strict=False) if "_IS_PYTHON" in one else ())
        for one in PATTERNS
    ],
)
def test_time_grows_with_the_length_only(name: str) -> None:
    """Eight times the length takes about eight times the time; 64 times would be quadratic."""
    assert slow(PATTERNS[name], search=name not in AT_ITS_START) is None


@pytest.mark.parametrize("bad", [r"^\s*sleep\s+[\d.]+\s*[smh]?\s*$", r"\s+x", r"\w+\d+="])
def test_a_bad_pattern_is_found(bad: str) -> None:
    """The check itself; the first is the one that took 53 ms for 4,000 characters in 0.3.0."""
    assert slow(re.compile(bad))
