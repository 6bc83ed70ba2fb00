"""What models write, and what is new in what tools answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ModelText
from otel_loopguard.core.progress import Progress
from otel_loopguard.evidence.model_text import ModelTextExtractor, Novelty
from otel_loopguard.evidence.plans import PlanExtractor
from tests.calls import Run

MB = 1_000_000
TEXTS: dict[str, Callable[[int], str]] = {
    "prose": lambda size: "The value is read again and it differs from before. " * (size // 52),
    "one letter": lambda size: "a" * size,
    "spaces": lambda size: " " * size,
    "lines": lambda size: "\n" * size,
    "fences": lambda size: "```" * (size // 3),
    "boxes": lambda size: "- [ ] a task\n" * (size // 13),
    "half boxes": lambda size: "- [ " * (size // 4),
    "announcements": lambda size: "i will now just then " * (size // 21),
    "apologies": lambda size: "i am so very really " * (size // 20),
    "doubts": lambda size: "i am not quite it is " * (size // 21),
    "headings": lambda size: "plan " * (size // 5),
    "ticks": lambda size: "(" * size,
}


def say(text: str | None, agent: str | None = "writer", model: str | None = "m") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model=model, text=text)


def seen(*steps: Step) -> list[ModelText]:
    sense = ModelTextExtractor(Settings(), Progress())
    return [found for step in steps if (found := sense.extract(step)) is not None]


@pytest.mark.parametrize("text", [None, ""], ids=["not captured", "empty"])
def test_no_text_is_no_evidence(text: str | None) -> None:
    """Missing is equal to nothing, and an empty text says nothing."""
    assert seen(say(text), say(text)) == []


def test_texts_are_compared_with_the_speakers_own() -> None:
    """Agent, node and model make a speaker."""
    text = "The same words, by everyone."
    steps = [say(text), say(text, "critic"), say(text, model="n"), say(text)]
    steps[2].node = "review"
    found = seen(*steps)
    assert [one.alike for one in found] == [0.0, 0.0, 0.0, 1.0]
    assert len({one.speaker for one in found}) == 3


@pytest.mark.parametrize(
    ("first", "second", "alike", "renumbered"),
    [
        ("It is 37 % done by now.", "It is 41 % done by now.", True, True),
        ("It is done by now.", "IT IS  DONE\nby now.", True, False),
        ("It is done by now.", "Something else is the case here.", False, False),
        ("", "", False, False),
    ],
    ids=["numbers", "case and space", "other words", "nothing"],
)
def test_how_much_two_texts_have_in_common(
    first: str, second: str, alike: bool, renumbered: bool
) -> None:
    """By their samples: case and space do not matter, numbers are told apart."""
    found = seen(say("."), say(first or None), say(second or None))[-1]
    assert (found.alike >= 0.85) is alike
    assert found.renumbered is renumbered


def test_a_long_text_has_done_what_it_announces() -> None:
    text = "I will run the tests. " + "They are described in the manual, chapter by chapter. " * 20
    assert seen(say(text))[0].promise is None


def test_samples_are_kept_of_few_speakers() -> None:
    """Four samples of 2,000 characters, however many speakers and texts there are."""
    sense = ModelTextExtractor(Settings(), Progress())
    for number in range(500):
        sense.extract(say("x y " * 10_000, agent=f"agent {number}"))
    kept = list(sense._last.values())  # pyright: ignore[reportPrivateUsage]
    assert len(kept) == 4
    assert sum(len(last.sample) for last in kept) <= 8_000


def test_what_is_kept_of_a_session_does_not_hold_the_texts() -> None:
    """Evidence is numbers, apart from the name of the agent."""
    saying = seen(say("A secret word is said. " * 40))[0]
    texts = [
        value for name in ModelText.__slots__ if isinstance(value := getattr(saying, name), str)
    ]
    assert texts == ["'writer'"]


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS.keys())
def test_odd_texts_do_no_harm(make: Callable[[int], str]) -> None:
    """Whatever they are made of, nothing throws and nothing is stopped."""
    run = Run()
    run.calls(*[say(make(MB // 20))] * 6, say("\ud800 lone surrogate " * 50))
    assert run.guard.faults.counts == {}
    assert set(run.actions) <= {"allow", "hint", "steer"}


def test_a_task_that_is_done_is_the_same_task() -> None:
    """Ticking it changes the count, not the plan."""
    sense = PlanExtractor(Settings(), Progress())
    before = sense.extract(say("- [ ] read it\n- [ ] write it"))
    after = sense.extract(say("- [x] read it\n- [ ] write it"))
    assert before is not None
    assert after is not None
    assert before.items == after.items
    assert (before.done, after.done) == (0, 1)


def shares(*outcomes: str) -> list[float]:
    """What part of each outcome was new."""
    novelty = Novelty()
    return [round(novelty.add(outcome.encode()).share, 2) for outcome in outcomes]


def test_what_was_seen_before_is_not_new() -> None:
    """Piece by piece, whatever the order."""
    assert shares("alpha\nbeta", "beta\nalpha", "alpha\ngamma", "delta") == [1.0, 0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    "again",
    [
        "ALPHA beta",
        "  alpha beta  ",
        '"alpha beta"',
        "{'alpha beta'}",
        "alpha beta.",
        "alpha beta\r\n",
    ],
)
def test_case_and_punctuation_do_not_matter(again: str) -> None:
    """A piece is what stands between two marks, in lower case."""
    assert shares("alpha beta", again) == [1.0, 0.0]


def test_a_number_that_moved_is_new() -> None:
    """Of a percentage, 37 and 41 are two pieces."""
    assert shares("37 % done", "41 % done") == [1.0, 1.0]


def test_short_answers_are_told_apart_as_a_whole() -> None:
    """What has no piece of three characters is one piece."""
    assert shares("ok", "no", "ok", "[]") == [1.0, 1.0, 0.0, 1.0]


def test_an_empty_answer_brings_nothing() -> None:
    """And it is no echo."""
    assert Novelty().add(b"") == (0.0, False, False)
    assert Novelty().add(b"", b'{"q":"x"}') == (0.0, False, False)


def test_what_stood_in_the_arguments_is_not_new() -> None:
    """An answer that only repeats its call is an echo and brings nothing."""
    novelty = Novelty()
    asked = b'{"text":"the sum is the answer"}'
    assert novelty.add(b"The sum is the answer", asked) == (0.0, True, False)
    said = b"the sum is the answer\nand it is exactly 42\nas you thought"
    assert novelty.add(said, asked) == (pytest.approx(34 / 55), False, False)


def test_a_piece_weighs_as_much_as_it_is_long() -> None:
    """The frame around an answer is not its news."""
    frame = "result\nstatus\n"
    assert shares(frame, f"{frame}{'x' * 36}", f"{frame}{'y' * 12}") == [1.0, 0.75, 0.5]


def test_lines_of_arguments_are_pieces_of_their_own() -> None:
    """A program's lines stand in JSON with their line ends escaped."""
    novelty = Novelty()
    assert novelty.add(b"first line\nsecond line", rb'{"code":"first line\nsecond line"}').echo


def test_of_long_outcomes_head_and_tail_count() -> None:
    """What changes in the middle of a long text is not seen; its ends are."""
    head, tail = "head of it\n" * 200, "\ntail of it" * 200
    novelty = Novelty()
    novelty.add(f"{head}{'m' * 5000}{tail}".encode())
    assert novelty.add(f"{head}{'n' * 5000}{tail}".encode()).share == 0.0
    assert novelty.add(f"{head}{'n' * 5000}{tail}\nthe very end".encode()).share > 0


def test_a_huge_outcome_is_known_again() -> None:
    """Ten million bytes; `make bench` says what they cost."""
    novelty = Novelty()
    huge = b"line of text, \n" * 700_000
    novelty.add(huge, b"x" * 256)
    assert novelty.add(huge, b"x" * 256).share == 0.0
