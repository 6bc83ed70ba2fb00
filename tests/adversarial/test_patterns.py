"""No pattern of the thinking rooms takes more than linear time, whatever it is shown.

Every compiled pattern is found by looking through the modules, so that a new one is tested by
itself. It is shown texts made of its own words and of what patterns usually stumble over, in three
lengths; four times the length may take about four times the time.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

import otel_loopguard.detectors
import otel_loopguard.evidence
import otel_loopguard.policy
from tests.attacks.patterns import within

ROOMS = (otel_loopguard.evidence, otel_loopguard.detectors, otel_loopguard.policy)
LENGTH = 2_000
FLOOR_S = 0.01
"""What 8,000 characters may take in any case: quadratic time would be ten times as long."""
UNITS = (
    " ", "\n", "\t", "a", "A", "0", "1", "15", "_", "-", ".", ",", ":", ";", "/", "=", '"', "'",
    "{", "[", "(", "<", ">", "#", "a ", "a.", "1.", "1:", "a=", "a/", "aB", "a1", "0x", "a\n", "; ",
    "- ", "a, ", "\u00e9", "f0", "00000000-0000-", "2024-01-01T", "10:00:00.", "http://a/", "open(",
    "&&",
)  # fmt: skip


def patterns() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Every compiled pattern of the rooms, with its place."""
    for room in ROOMS:
        for found in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            module = importlib.import_module(found.name)
            for name, value in vars(module).items():
                for number, one in enumerate(within(value)):
                    yield f"{found.name.removeprefix('otel_loopguard.')}.{name}[{number}]", one


PATTERNS = dict(patterns())


def texts(pattern: re.Pattern[Any]) -> Iterator[str]:
    """What a pattern is shown, as units that are repeated."""
    source = pattern.pattern
    written = source.decode() if isinstance(source, bytes) else source
    words = dict.fromkeys(re.findall(r"[A-Za-z]{2,}", re.sub(r"\\[A-Za-z]", " ", written)))
    yield from UNITS
    for word in list(words)[:60]:
        yield from (word, f"{word} ")


def took(pattern: re.Pattern[Any], unit: str, length: int, tail: str = "!") -> float:
    """Seconds of this thread for one look at a text of some length."""
    text: Any = (unit * (length // len(unit) + 1))[:length] + tail
    shown = text.encode() if isinstance(pattern.pattern, bytes) else text
    start = time.thread_time()
    for _ in pattern.finditer(shown):
        pass
    pattern.match(shown)
    return time.thread_time() - start


def grows(pattern: re.Pattern[Any], unit: str) -> float:
    """By how much the time grows from a length to four times that length; the best of three."""
    ratios = []
    for _ in range(3):
        short = min(took(pattern, unit, LENGTH) for _ in range(3))
        ratios.append(took(pattern, unit, 4 * LENGTH) / max(short, 1e-6))
    return min(ratios)


@pytest.mark.rare
@pytest.mark.parametrize("name", PATTERNS)
def test_time_grows_with_the_length_only(name: str) -> None:
    """Four times the length takes about four times the time; sixteen times would be quadratic."""
    pattern = PATTERNS[name]
    for unit in texts(pattern):
        if took(pattern, unit, 4 * LENGTH) > FLOOR_S:
            assert grows(pattern, unit) < 8, unit


def test_there_are_patterns() -> None:
    """The search through the modules finds what is there."""
    assert len(PATTERNS) >= 20
    assert {name.partition(".")[0] for name in PATTERNS} >= {"evidence"}


@pytest.mark.rare
@pytest.mark.parametrize(
    ("bad", "unit"), [(r" +!", " "), (r"(?:a+)+b", "a"), (r"\w+\d+=", "a1")], ids=str
)
def test_a_bad_pattern_would_be_found(bad: str, unit: str) -> None:
    """The check itself: patterns that take quadratic time and more are seen to."""
    pattern, length = re.compile(bad), 20 if "+)+" in bad else 4 * LENGTH
    assert took(pattern, unit, length, "x") > FLOOR_S
    assert took(pattern, unit, length, "x") > 8 * took(pattern, unit, length // 4, "x")
