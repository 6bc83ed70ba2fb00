"""No regular expression of the package takes more than linear time, whatever it is shown.

All compiled patterns are found by importing all modules. Each is looked at for repetitions that
share what they hold, and is shown texts that pump each of its repetitions, its own words, and what
patterns usually stumble over, in lengths of n and 8n.
"""

from __future__ import annotations

import re

import pytest

from tests.hostile.patterns import (
    FLOOR_S,
    GROWTH,
    LONG,
    attacks,
    faults,
    growth,
    patterns,
    pumps,
    took,
)

PATTERNS = patterns()


def test_every_room_with_patterns_is_looked_at() -> None:
    """The walk through the modules finds those that judge, read, and speak to others."""
    rooms = {name.partition(".")[0] for name in PATTERNS}
    assert rooms >= {
        "_control",
        "core",
        "detectors",
        "evidence",
        "plans",
        "spans",
        "stores",
    }
    assert len(PATTERNS) > 100


@pytest.mark.parametrize("name", PATTERNS)
def test_no_repetition_runs_over_into_another(name: str) -> None:
    """Two of them that hold one character share a text in as many ways as it is long."""
    assert faults(PATTERNS[name]) == []


@pytest.mark.rare
@pytest.mark.parametrize("name", PATTERNS)
def test_time_grows_with_the_length_only(name: str) -> None:
    """Eight times the length takes about eight times the time; 64 times would be quadratic."""
    pattern = PATTERNS[name]
    for number, text in enumerate(attacks(pattern, LONG)):
        if took(pattern, text) > FLOOR_S:
            assert growth(pattern, number) < GROWTH, text[:60]


@pytest.mark.parametrize(
    "bad", [r"^\s*sleep\s+[\d.]+\s*[smh]?\s*$", r"(?:a+)+b", r"(\w+\s*)+:", r"a(\s*|b*)\s*$"]
)
def test_a_bad_pattern_is_seen_by_its_look(bad: str) -> None:
    """The check itself; the first is the one that took 53 ms for 4,000 characters in 0.3.0."""
    assert faults(re.compile(bad))


@pytest.mark.parametrize(
    "good", [r"\s+(?:-\w+\s+)*-\w*i", r"\s*(?:[smh]\s*)?$", r'"(?:[^"\\]|\\.)*"', r"a*ba*"]
)
def test_a_good_pattern_is_let_pass(good: str) -> None:
    """What must stand between two repetitions keeps them apart."""
    assert faults(re.compile(good)) == []


@pytest.mark.rare
@pytest.mark.parametrize("bad", [r"^\s*sleep\s+[\d.]+\s*[smh]?\s*$", r"\s+x", r"\w+\d+="])
def test_a_bad_pattern_is_found_by_its_time(bad: str) -> None:
    """The check itself: patterns that take quadratic time are seen to."""
    pattern = re.compile(bad)
    assert any(
        took(pattern, text) > FLOOR_S and growth(pattern, number) >= GROWTH
        for number, text in enumerate(attacks(pattern, LONG))
    )


def test_repetitions_are_pumped_behind_what_stands_before_them() -> None:
    """`sleep 1` and many spaces, which no text of one unit would be."""
    found = {head for head, unit in pumps(re.compile(r"sleep\s+\d+\s*$")) if unit.isspace()}
    assert any(head.startswith("sleep") and head.rstrip()[-1].isdigit() for head in found)
