"""Outputs of ten megabytes are judged like others; `make bench` says what they cost."""

from __future__ import annotations

import pytest

from tests.calls import call
from tests.documented.acting import Run

pytestmark = pytest.mark.rare
SIZE = 10_000_000
TEXTS = {
    "one letter": "x" * SIZE,
    "words": "lorem ipsum dolor " * (SIZE // 18),
    "lines": "a line of a log, like any other\n" * (SIZE // 32),
    "numbers": "1234567890 " * (SIZE // 11),
    "ids": "550e8400-e29b-41d4-a716-446655440000 " * (SIZE // 37),
    "errors": "Error: it failed\n" * (SIZE // 17),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_loop_of_huge_answers_is_found(text: str) -> None:
    """Three equal answers of 10 MB are three equal answers."""
    run = Run()
    run.calls(*(call("dump", {"of": "db"}, text) for _ in range(3)))
    assert run.actions == ["hint"]


@pytest.mark.parametrize("place", [0, SIZE // 2, SIZE - 1], ids=["head", "middle", "tail"])
def test_one_letter_in_ten_megabytes(place: int) -> None:
    """What differs anywhere is different: of a long text the ends, and a key of the rest."""
    run = Run()
    for number in range(8):
        text = "x" * place + "abcdefgh"[number] + "x" * (SIZE - place - 1)
        run.calls(call("dump", {"of": "db"}, text))
    assert run.actions == []


def test_growing_answers_are_no_loop() -> None:
    """A log that grows is another one each time, however long it is."""
    run = Run()
    run.calls(*(call("cat", {"of": "log"}, "x" * (SIZE + number)) for number in range(8)))
    assert run.actions == []
