"""What is new in an outcome."""

from __future__ import annotations

import pytest

from otel_loopguard.evidence.model_text import Novelty


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
    assert Novelty().add(b"") == (0.0, False)
    assert Novelty().add(b"", b'{"q":"x"}') == (0.0, False)


def test_what_stood_in_the_arguments_is_not_new() -> None:
    """An answer that only repeats its call is an echo and brings nothing."""
    novelty = Novelty()
    asked = b'{"text":"the sum is the answer"}'
    assert novelty.add(b"The sum is the answer", asked) == (0.0, True)
    said = b"the sum is the answer\nand it is exactly 42\nas you thought"
    assert novelty.add(said, asked) == (pytest.approx(34 / 55), False)


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
