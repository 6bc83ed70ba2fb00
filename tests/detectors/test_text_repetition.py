"""The same text, word by word."""

from __future__ import annotations

import json

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

ANSWER = (
    "The table has four columns, and the third of them holds the price in euros without tax, so "
    "that the total has to be worked out by hand."
)
OTHER = "A second look at the first column shows that names are written in capitals all over it."
STUCK = "The result is not what I expected, so I have to look at it again. "
ENDS = {
    "a sentence": STUCK * 12,
    "a word": "the " * 200,
    "two lines": "I check the value.\nIt is wrong.\n" * 20,
    "a bullet": "- check the value of it\n" * 30,
    "cut in the middle": (STUCK * 20)[:-30],
    "after a healthy beginning": "An answer begins well, as they do. " + STUCK * 12,
    "after a block of code": "```\nx = 1\n```\n" + STUCK * 12,
}
DATA = {
    "JSON": json.dumps([{"text": "not translated"}] * 40),
    "JSON, cut": json.dumps([{"text": "not translated"}] * 40)[:-40],
    "a table": "| a cell | another cell |\n" * 40,
    "a block of code": "```\n" + "call the function\n" * 60,
    "a block of code, closed": "```\n" + "call the function\n" * 60 + "```",
    "a line": "-" * 2000,
    "zeros": "0, " * 500,
    "an exploit": "Send this: " + "A" * 2000,
    "markup": "<li> the item </li>\n" * 60,
    "spaces": "done" + " " * 5000,
}
LISTS = {
    "a numbered list": "".join(f"{n}. check the value\n" for n in range(60)),
    "a poem with a refrain": ("It rains on the hill. " * 3 + "And the wind blows on. ") * 2,
    "nine times": "I check. " * 9,
}


def say(text: str, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


def test_the_same_text_is_noticed_though_others_stand_between() -> None:
    """Four times of eight."""
    run = Run()
    for number in range(4):
        run.calls(say(ANSWER), say(f"{OTHER} {'abcdefgh'[number] * 90}"))
    assert [decision.reason for decision in run.decisions] == ["same_text"]
    assert run.decisions[0].step == 6
    assert "euros" not in run.decisions[0].message


def test_the_same_text_after_new_answers_is_healthy() -> None:
    """Nothing was wrong in any of the files."""
    run = Run()
    for number in range(8):
        content = " ".join(f"word{number}x{place}" for place in range(60))
        run.calls(call("read", {"path": f"f{number}"}, content), say(ANSWER))
    assert run.actions == []


def test_a_short_text_is_no_repetition() -> None:
    """At every end "Done." is said."""
    run = Run()
    run.calls(*[say("Done.")] * 20)
    assert run.actions == []


def test_the_same_answer_to_a_user_is_healthy() -> None:
    """It was asked again."""
    run = Run()
    for _ in range(8):
        run.calls(say(ANSWER), Step(Kind.OTHER, "user", text="what does the table hold?"))
    assert run.actions == []


def test_several_speakers_may_say_the_same() -> None:
    """Eight agents, one answer."""
    run = Run()
    run.calls(*(say(ANSWER, f"agent {number}") for number in range(8)))
    assert run.actions == []


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS.keys())
def test_a_text_that_does_not_end_is_noticed(text: str) -> None:
    """One text is enough: it says the same ten times at its end."""
    run = Run()
    run.calls(say(text))
    assert [decision.reason for decision in run.decisions] == ["repeating_end"]
    assert run.actions == ["hint"]


@pytest.mark.parametrize("text", (DATA | LISTS).values(), ids=(DATA | LISTS).keys())
def test_data_and_lists_may_repeat_themselves(text: str) -> None:
    """JSON, tables, code, markup, and texts of which each line differs (F11)."""
    run = Run()
    run.calls(say(text))
    assert run.actions == []


def test_the_same_end_is_one_loop() -> None:
    """It is said once, wherever the text was cut; then another way is asked for."""
    run = Run()
    run.calls(*(say((STUCK * 20)[: -7 * number - 1]) for number in range(12)))
    assert len({found.loop for found in run.decisions if found.reason == "repeating_end"}) == 1
    assert set(run.actions) <= {"allow", "hint", "steer"}


def test_the_numbers_are_settings() -> None:
    """`text_repeat_times`, `tuning.text.tail_times` and `tuning.text.chant_times`."""
    run = Run(Settings(text_repeat_times=2))
    run.calls(say(ANSWER), say(ANSWER))
    assert run.actions == ["hint"]
    run = Run(Settings(tuning={"text": {"tail_times": 50, "chant_times": 50}}))
    run.calls(say(ENDS["a sentence"]))
    assert run.actions == []


VERSE = "Let me check the value of the second column once more. "
CHANTS = {
    "a sentence, and then an end": VERSE * 8 + "Well, that is enough of it.",
    "two sentences": (VERSE + "It is not what I thought! ") * 7 + "So be it.",
    "a paragraph": ("I look at it.\nThe column holds names.\n" + VERSE + "\n\n") * 6 + "And so on.",
    "in other case and spaces": (VERSE + VERSE.upper() + "  ") * 5 + "Enough.",
    "between healthy parts": ANSWER + " " + VERSE * 9 + " " + OTHER,
    "after a block of code": "```\nx = 1\n```\n" + VERSE * 9 + "Done with it.",
}
SONG = "The river runs down to the sea\nAnd carries all my words from me\n"
NO_CHANTS = {
    "a song with its refrain": "".join(
        f"Verse {n}: the {word} is far away\n" + SONG * 2
        for n, word in enumerate(["hill", "moon", "house", "road"])
    ),
    "answers that are alike": "".join(
        f"Question {word}?\nThe context does not say anything about it.\n"
        for word in ["who", "when", "where", "why", "how", "which", "whose", "what for"] * 2
    ),
    "a numbered list": "".join(f"{n}. check the value of the column\n" for n in range(60)),
    "steps of a plan": "".join(
        f"- write the module number {n}\n- run all of the tests\n" for n in range(30)
    ),
    "a table": "| the same cell | the same other cell of the table |\n" * 30 + "That is all.",
    "a table, with prose": "Here it is.\n" + "| one cell | another cell |\n" * 9 + OTHER * 5,
    "a block of code": "Here it is.\n```\n"
    + "call the function with the value\n" * 30
    + "```\nOk.",
    "JSON": json.dumps([{"text": "the very same text. " * 3}] * 30),
    "records": "name: a value of it\ntype: string\n" * 5
    + "That is all of the schema. "
    + OTHER * 3,
    "a short cry": "Ho! " * 200 + "And that was that.",
    "a long answer": " ".join(f"{OTHER} {n}." for n in range(100)),
}


@pytest.mark.parametrize("text", CHANTS.values(), ids=CHANTS)
def test_sentences_said_over_and_over_are_noticed(text: str) -> None:
    """Six times in a row, anywhere in one text, whatever follows."""
    run = Run()
    run.calls(say(text))
    assert [decision.reason for decision in run.decisions] == ["chanting"]
    assert run.decisions[0].action == "hint"
    assert "column" not in run.decisions[0].message


@pytest.mark.parametrize("text", NO_CHANTS.values(), ids=NO_CHANTS)
def test_what_repeats_itself_for_a_reason_is_no_chant(text: str) -> None:
    """Refrains, lists, tables, code, data, and forms that are filled in."""
    run = Run()
    run.calls(say(text))
    assert run.decisions == []
