"""Calls that are nearly the same, and bring nothing new."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from tests.calls import call
from tests.detectors.alone import actions, alone

WORDS = "quick slow simple long deep broad early late".split()
SAID = "Lisbon is the capital of Portugal, and its largest city; it lies on the Tagus."
USER = Step(Kind.OTHER, "user", text="and of the next city?")


def asked(word: str, tool: str = "search", said: object = SAID) -> Step:
    """A question that differs from the others in one word."""
    query = f"what is the population of the {word} city of Lisbon in Portugal today"
    return call(tool, {"query": query}, said)


def found(*steps: Step, **settings: Any) -> list[tuple[int, str]]:
    """Step and action of each decision of this detector."""
    decisions = alone("similar_repeat", *steps, **settings)
    return [(decision.step, decision.action.value) for decision in decisions]


def test_reworded_questions_that_bring_nothing_new_are_noticed() -> None:
    """Five of them after the first give a hint, two more ask for another way, and no more."""
    decisions = alone("similar_repeat", *[asked(word) for word in WORDS])
    assert actions(decisions) == ["hint", "steer"]
    assert [decision.step for decision in decisions] == [5, 7]
    assert decisions[0].reason == "similar_call"
    assert "nearly the same arguments" in decisions[0].message
    assert "Lisbon" not in decisions[0].message


def test_one_question_with_more_and_more_words_is_similar() -> None:
    """One has the words of the other and more: that is alike, however long it grows."""
    query = "population of Lisbon in Portugal"
    steps = []
    for word in ("today", "exactly", "official", "census", "latest", "total", "now", "really"):
        query = f"{query} {word}"
        steps.append(call("search", {"query": query}, SAID))
    assert found(*steps)[:1] == [(5, "hint")]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [
                asked(word, said=f"Page {n} tells of subject {n * 7919:x}; see chapter {n}.")
                for n, word in enumerate(WORDS * 3)
            ],
            id="each answer is new",
        ),
        pytest.param([asked(word, said=None) for word in WORDS * 3], id="answers not captured"),
        pytest.param(
            [asked(word, tool="update_note") for word in WORDS * 3], id="calls that change things"
        ),
        pytest.param(
            [asked(word, tool="frobnicate") for word in WORDS * 3], id="calls of unknown effect"
        ),
        pytest.param(
            [
                call("bash", {"command": f"grep -r the {word} city of Lisbon docs"}, SAID)
                for word in WORDS * 3
            ],
            id="commands that the agent wrote",
        ),
        pytest.param(
            [call("get_user", {"id": f"user-{n}", "full": True}, SAID) for n in range(24)],
            id="the same asked of many items",
        ),
        pytest.param(
            [
                step
                for n, word in enumerate(WORDS * 3)
                for step in (asked(word), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"))
            ],
            id="a change in between",
        ),
        pytest.param(
            [
                call("search", {"query": text}, SAID)
                for text in (
                    "population of Lisbon by year",
                    "rivers that flow through Portugal",
                    "who founded the oldest university",
                    "when was the great earthquake",
                    "best known writers of that time",
                    "how large is the harbour now",
                    "which bridges cross the Tagus",
                )
            ],
            id="different questions",
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """News, changes, items of a list and other questions are no repetition."""
    assert found(*steps) == []


def test_failures_do_not_count() -> None:
    """What fails has another detector."""
    steps = [asked(word, said=None) for word in WORDS * 2]
    for step in steps:
        step.error, step.error_text = True, "the index is not there"
    assert found(*steps) == []


def test_a_user_begins_anew() -> None:
    """What was asked before was asked for something else."""
    steps = [asked(word) for word in WORDS]
    assert found(*steps[:4], USER, *steps[4:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        pytest.param({"similar_threshold": 3}, 3, id="fewer"),
        pytest.param({"similar_threshold": 7}, 7, id="more"),
        pytest.param({"tools": {"search": {"similar_threshold": 3}}}, 3, id="for this tool"),
        pytest.param({"tools": {"other": {"similar_threshold": 3}}}, 5, id="for another tool"),
        pytest.param({"sensitivity": 2}, 3, id="twice as sensitive"),
        pytest.param(
            {"tuning": {"calls": {"similar_novelty": 1}}}, 4, id="novelty does not matter"
        ),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`similar_threshold`, also of one tool, `tuning.calls.similar_novelty`, `sensitivity`."""
    assert found(*[asked(word) for word in WORDS], **settings)[0] == (first, "hint")


def test_the_likeness_is_a_setting() -> None:
    """`tuning.calls.similar_ratio` 1 leaves equal arguments only."""
    topics = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    steps = [
        call("search", {"query": f"tell me all about {topic} please"}, SAID) for topic in topics
    ]
    assert found(*steps, tuning={"calls": {"similar_ratio": 0.6}})[:1] == [(5, "hint")]
    assert found(*steps, tuning={"calls": {"similar_ratio": 1}}) == []
