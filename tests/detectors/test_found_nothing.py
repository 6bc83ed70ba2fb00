"""Search after search that finds nothing."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

WORDS = "parser lexer token grammar syntax tree node leaf branch root".split()
USER = Step(Kind.OTHER, "user", text="look for something else")


def searched(word: str, said: str | None = "No results found.", **given: Any) -> Step:
    """A search for one word."""
    return call("search", {"q": word}, said, **given)


def test_four_searches_that_find_nothing_give_a_hint() -> None:
    """The agent is told once, and never stopped: to look may be what was asked for."""
    decisions = alone("found_nothing", *[searched(word) for word in WORDS])
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 3
    assert decisions[0].message == "4 different calls, of 'search' the last, found nothing"


@pytest.mark.parametrize(
    "said",
    [
        "No results found for parser.",
        "0 matches",
        "no such table",
        "Nothing found",
        "No files matching the pattern were found",
        "The query returned no rows",
        "empty set",
        "did not match any documents",
        '{"total": 0, "message": "no records found"}',
    ],
)
def test_nothing_is_said_in_many_words(said: str) -> None:
    """Tools have many ways to say it, and each may say it in its own."""
    assert actions(alone("found_nothing", *[searched(word, said) for word in WORDS])) == ["hint"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([searched("parser") for _ in range(12)], id="the same search again"),
        pytest.param([searched(word, "3 results") for word in WORDS], id="something is found"),
        pytest.param([searched(word, None) for word in WORDS], id="answers not captured"),
        pytest.param(
            [call("search", None, "No results found.") for _ in WORDS], id="arguments not captured"
        ),
        pytest.param(
            [searched(word, None, error="no such table") for word in WORDS], id="failures"
        ),
        pytest.param(
            [
                searched(word, f"No results found in part one. {'But much in part two. ' * 30}")
                for word in WORDS
            ],
            id="long answers",
        ),
        pytest.param(
            [searched(word, at=0.01 * n, took=1) for n, word in enumerate(WORDS)],
            id="one parallel round",
        ),
        pytest.param(
            [
                step
                for n, word in enumerate(WORDS)
                for step in (
                    searched(word),
                    call("edit", {"path": "a.py", "new": f"v{n}"}, "the file was changed"),
                )
            ],
            id="a change in between",
        ),
        pytest.param(
            [
                searched(word, "No results found." if n % 2 else f"a.py:{n}: {word} is here")
                for n, word in enumerate(WORDS * 3)
            ],
            id="every second one finds something",
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """Repeats, failures, fan-outs, changes and searches that find something do not add up."""
    assert alone("found_nothing", *steps) == []


def test_a_user_turn_halves_it() -> None:
    """What was looked for before a user spoke counts half."""
    steps = [searched(word) for word in WORDS]
    assert alone("found_nothing", *steps[:3], USER, steps[3]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"nothing_threshold": 2}}}, 1),
        ({"tuning": {"calls": {"nothing_threshold": 6}}}, 5),
        ({"sensitivity": 0.5}, 7),
    ],
    ids=["fewer", "more", "less sensitive"],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.nothing_threshold` searches, divided by `sensitivity`."""
    decisions = alone("found_nothing", *[searched(word) for word in WORDS], **settings)
    assert decisions[0].step == first
