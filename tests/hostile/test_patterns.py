"""No regular expression of the package takes more than linear time, whatever it is shown.

All compiled patterns are found by importing all modules. Each is looked at for repetitions that
share what they hold, and is shown texts that pump each of its repetitions, its own words, and what
patterns usually stumble over, in lengths of n and 8n.
"""

import re

import pytest

from tests.hostile.patterns import FLOOR_S, GROWTH, LONG, attacks, growth, part_of, patterns, took


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
