"""Doubt and apologies, text after text."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

DOUBTS = [
    "I'm not sure which of the files is meant.",
    "Perhaps the parser reads it.",
    "It seems the cache is old.",
    "Maybe the test is wrong instead.",
    "I suspect that the path is another one.",
    "It is unclear who writes this value.",
]
APOLOGIES = [
    "I apologize for the confusion, the column has another name.",
    "I'm sorry, that was the wrong table.",
    "My mistake: the index begins at one.",
    "Sorry about that, here is the right query.",
]


def say(text: str, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


@pytest.mark.parametrize(
    ("texts", "detector", "reason", "step"),
    [
        (DOUBTS, "hedging", "doubt_in_a_row", 4),
        (APOLOGIES, "apologising", "apologies_in_a_row", 2),
    ],
    ids=["doubt", "apologies"],
)
def test_phrases_in_a_row_are_noticed(
    texts: list[str], detector: str, reason: str, step: int
) -> None:
    """Five doubts, or three apologies, one after the other."""
    run = Run()
    run.calls(*map(say, texts))
    assert run.actions == ["hint"]
    found = run.decisions[0]
    assert (found.detector, found.reason, found.step) == (detector, reason, step)


def test_tries_in_between_do_not_hide_them() -> None:
    """Each try went wrong in another way."""
    run = Run()
    for number, text in enumerate(APOLOGIES):
        run.calls(say(text), call(f"tool{number}", {"n": number}, f"answer {number}"))
    assert "apologising" in [found.detector for found in run.decisions]


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_one_plain_text_in_between_ends_the_row(texts: list[str]) -> None:
    """One doubt, or one apology, says nothing (F12)."""
    run = Run()
    for text in texts * 2:
        run.calls(say(text), say(f"The value of {text[-9:]} is written by the loader."))
    assert run.actions == []


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_a_conversation_may_be_polite(texts: list[str]) -> None:
    """A user who complains gets an apology each time."""
    run = Run()
    for text in texts * 2:
        run.calls(say(text), Step(Kind.OTHER, "user", text="that is wrong"))
    assert run.actions == []


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_agents_are_different_speakers(texts: list[str]) -> None:
    """Each agent says it once."""
    run = Run()
    run.calls(*(say(text, f"agent {number}") for number, text in enumerate(texts)))
    assert run.actions == []


@pytest.mark.parametrize(
    "text",
    [
        "The package is installed and reinstalled; the stalled job was removed.",
        "The apologist of the unclearable mayhem supposedly sorrows.",
        "The sensors measure; unsure readings are dropped by the reassurance filter.",
        "The user is sorry that the shop is closed, says the ticket.",
    ],
    ids=["installed", "apologist", "unsure", "somebody else"],
)
def test_words_that_only_look_like_it_do_not_count(text: str) -> None:
    """Phrases stand on word boundaries (F12)."""
    run = Run()
    run.calls(*(say(f"{text} {'abcdefghij'[n] * 60}") for n in range(8)))
    assert run.actions == []


def test_a_long_text_with_one_doubt_is_not_full_of_it() -> None:
    """One phrase in 200 words is careful writing."""
    run = Run()
    for number in range(8):
        words = " ".join(str(hash((number, place)))[1:8] for place in range(200))
        run.calls(say(f"{words} perhaps"))
    assert run.actions == []


def test_the_numbers_are_settings() -> None:
    """`tuning.text.hedge_turns` and `tuning.text.apology_turns`."""
    run = Run(Settings(tuning={"text": {"hedge_turns": 2, "apology_turns": 4}}))
    run.calls(*map(say, DOUBTS[:2]))
    assert run.actions == ["hint"]
    run.calls(*map(say, APOLOGIES[:3]))
    assert run.actions == ["hint"]
