"""Outputs of ten megabytes: judged like others, in bounded time, and nothing of them is kept."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from tests.calls import call
from tests.documented.acting import Run

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
    """Three equal answers of 10 MB are three equal answers, and each costs less than a second."""
    run = Run()
    began = time.perf_counter()
    run.calls(*(call("dump", {"of": "db"}, text) for _ in range(3)))
    assert run.actions == ["hint"]
    assert time.perf_counter() - began < 3


@pytest.mark.parametrize("place", [0, SIZE // 2, SIZE - 1], ids=["head", "middle", "tail"])
def test_one_letter_in_ten_megabytes(place: int) -> None:
    """What is longer than is compared is told by head, tail and length: the middle is not seen."""
    run = Run()
    for number in range(8):
        text = "x" * place + "abcdefgh"[number] + "x" * (SIZE - place - 1)
        run.calls(call("dump", {"of": "db"}, text))
    assert bool(run.actions) == (place == SIZE // 2)


def test_growing_answers_are_no_loop() -> None:
    """A log that grows is another one each time, however long it is."""
    run = Run()
    run.calls(*(call("cat", {"of": "log"}, "x" * (SIZE + number)) for number in range(8)))
    assert run.actions == []


def test_nothing_of_them_is_kept() -> None:
    """After twenty different answers of 2 MB a session has not grown by a hundredth of one."""
    run = Run()
    run.calls(*(call("dump", {"n": n}, f"{n}" * 2_000_000) for n in range(3)))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20):
        run.calls(call("dump", {"n": number + 9}, f"{number % 10}" * 2_000_000))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 64_000
