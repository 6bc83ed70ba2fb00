"""A model that only talks."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call

OBJECTS = ["the weather", "the hotel list", "the flight table", "the invoice", "the test log"]
BEGINNINGS = [
    "I will now begin working on the task.",
    "Let me get started on this right away.",
    "I'm going to start with the task you gave me.",
    "Sure! I'll proceed with the assigned work now.",
    "Okay, I am ready to begin the task.",
    "I\u2019ll start working on it immediately.",
]
TALK = {
    "the same, numbered": [f"I will now begin working on the task ({n})." for n in range(8)],
    "the same, word by word": ["I'll look up the weather in Oslo now."] * 8,
    "to begin, in other words": BEGINNINGS,
    "one thing, in other words": [
        "Let me search for the weather in Oslo.",
        "I'll check the weather in Oslo first.",
        "I am going to look at the weather in Oslo.",
        "Next, I will fetch the weather in Oslo.",
        "I need to query the weather in Oslo now.",
    ],
    "at work": ["Working on the task now, please wait."] * 8,
    "still at it": [f"I am still working on your request (attempt {n})." for n in range(8)],
    "nothing announced": [f"I understand the task, thank you. ({n})" for n in range(8)],
}
HEALTHY = {
    "a chat": [
        "Paris is the capital of France.",
        "I think you mean Lyon, which lies further south.",
        "Its old town is a world heritage site. I can tell you more about it.",
        "My favourite dish from there is quenelles. Let me know if you want a recipe.",
        "You need flour, butter and pike. I would begin with the dough.",
        "It takes about an hour in all. Enjoy!",
        "You are welcome. I am happy to help.",
    ],
    "explanations": [f"Let me now explain the {thing} to you." for thing in OBJECTS * 2],
    "verdicts of a batch": ["The document is relevant to the question."] * 20,
    "labels of a batch": ["billing"] * 20,
    "records of a batch": ['{"label": "I will begin", "score": 1}'] * 20,
    "a pipeline": [
        "I will answer in three steps: the facts, their causes, what follows.",
        "The facts: sales fell by a tenth, costs rose by a fifth.",
        "The causes are the new tariff and the strike in May.",
        "It follows that prices have to rise. I would wait until autumn.",
        "A reviewer would ask for numbers by region; I have none.",
        "In short: wait until autumn, then raise prices.",
    ],
    "different announcements, tools out of sight": [
        "Let me read the configuration file.",
        "Now I'll run the tests.",
        "I need to fix the import in the parser.",
        "Let me check the changelog.",
        "I'll update the version number.",
        "Let's open a pull request.",
        "I will write the release notes.",
        "Let me build the package.",
        "I'll upload the wheel.",
        "Let me verify the download page.",
        "I will send a mail to the team.",
    ],
}


def say(text: str | None, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


@pytest.mark.parametrize("texts", TALK.values(), ids=TALK.keys())
def test_talk_without_action_is_noticed(texts: list[str]) -> None:
    """Text after text announces the same, or says the same of itself, and nothing is done."""
    run = Run()
    run.calls(*map(say, texts))
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "talk_without_action"


@pytest.mark.parametrize("texts", HEALTHY.values(), ids=HEALTHY.keys())
def test_texts_that_promise_nothing_again_are_left_alone(texts: list[str]) -> None:
    """A chat, a batch and a pipeline are made of texts only."""
    run = Run()
    run.calls(*map(say, texts))
    assert run.actions == []


def test_the_same_announcement_before_each_call_is_no_talk() -> None:
    """It does what it says."""
    run = Run()
    for city in ("Oslo", "Rome", "Bonn", "Kiev", "Bern", "Riga"):
        run.calls(say("Let me check the weather."), call("weather", {"city": city}, f"sun {city}"))
    assert run.actions == []


def test_a_handoff_is_an_action() -> None:
    """The work went to another agent."""
    run = Run()
    for city in ("Oslo", "Rome", "Bonn", "Kiev", "Bern", "Riga"):
        task = f"Find the tallest building of {city} and its year, then stop {city * 3}"
        run.calls(say("I will ask for it."), Step(Kind.HANDOFF, "finder", args=task))
    assert run.actions == []


def test_a_model_call_without_a_text_may_have_called_a_tool() -> None:
    """Where only models are instrumented, that is all there is to see of a call."""
    run = Run()
    for _ in range(8):
        run.calls(say("Let me check the weather."), say(None))
    assert run.actions == []


def test_a_failed_model_call_does_nothing() -> None:
    """A rate limit in between is not an action."""
    run = Run()
    failed = Step(Kind.MODEL, "chat", agent="writer", model="m", error=True)
    for text in TALK["the same, numbered"]:
        run.calls(say(text), failed)
    assert run.actions == ["hint"]


def test_different_announcements_count_where_tools_are_seen() -> None:
    """One thing after the other is announced, and none of the tools is called."""
    run = Run()
    run.calls(call("list_tools", {}, "weather, hotels, flights"))
    run.calls(*map(say, HEALTHY["different announcements, tools out of sight"]))
    assert [decision.reason for decision in run.decisions] == ["only_announced"]


def test_a_user_in_between_makes_it_a_chat() -> None:
    """Each text answers somebody."""
    run = Run()
    for text in TALK["the same, numbered"]:
        run.calls(say(text), Step(Kind.OTHER, "user", text="go on"))
    assert run.actions == []


def test_agents_are_different_speakers() -> None:
    """Each of six agents says once that it begins."""
    run = Run()
    run.calls(*(say("I will now begin working on the task.", f"agent {n}") for n in range(6)))
    assert run.actions == []


@pytest.mark.parametrize(
    ("gap", "actions"), [(30, []), (0.5, ["hint"])], ids=["a user's pause", "at once"]
)
def test_a_trace_after_a_pause_may_answer_a_user(gap: float, actions: list[str]) -> None:
    """Nobody types within a second; after a pause in another trace somebody may have."""
    run = Run()
    for number, text in enumerate(TALK["the same, numbered"]):
        step = say(text)
        step.start = EPOCH + round(number * (gap + 1) * SECOND)
        step.end = step.start + SECOND
        step.trace_id = number + 1
        run.calls(step)
    assert run.actions == actions


def test_samples_taken_beside_each_other_are_one() -> None:
    """Eight answers to one question, asked at once."""
    run = Run()
    for number, text in enumerate(TALK["the same, numbered"]):
        step = say(text)
        step.start, step.end = EPOCH + number, EPOCH + SECOND + number
        run.calls(step)
    assert run.actions == []


def test_it_hints_once_and_no_more() -> None:
    """However long it talks."""
    run = Run()
    run.calls(*(say(f"I will now begin working on the task ({n}).") for n in range(200)))
    assert [action for action in run.actions if action != "allow"] == ["hint"]


def test_it_can_be_switched_off() -> None:
    """By its name, or with its family."""
    for off in ("talk_without_action", "text"):
        run = Run(Settings(switched_off=frozenset({off})))
        run.calls(*map(say, TALK["the same, numbered"]))
        assert run.actions == []


def test_the_message_holds_no_content() -> None:
    """What was measured, and nothing of what was written."""
    run = Run()
    run.calls(*(say("I'll look up the secret of Oslo now.") for _ in range(4)))
    assert "Oslo" not in run.decisions[0].message
    assert run.decisions[0].message == (
        "'writer' announced the same 4 times in a row, and no tool call or hand-off was seen in "
        "between"
    )
