"""Digests that leave the process cannot be searched for, and compare where they should."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import pytest

from otel_loopguard.stores import Digests

PRINT = "from otel_loopguard.stores import Digests; print(Digests({!r}).of('a', 1).hex())"


def elsewhere(key: str) -> str:
    """The same digest as another process makes it."""
    command = [sys.executable, "-c", PRINT.format(key)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_same_key_gives_the_same_digest() -> None:
    """In every guard and every process."""
    made = Digests("k").of("a", 1)
    assert len(made) == 8
    assert made == Digests("k").of("a", 1)
    assert Digests("k").number("a", 1) == int.from_bytes(made, "big")
    assert Digests("k").shared
    assert elsewhere("k") == made.hex()


def test_without_a_key_processes_do_not_compare() -> None:
    """Within one process all guards do."""
    made = Digests().of("a", 1)
    assert made == Digests("").of("a", 1)
    assert not Digests().shared
    assert len(elsewhere("")) == 16
    assert elsewhere("") != made.hex()


@pytest.mark.parametrize("end", ["", "x" * 64, "y" * 500])
def test_another_key_gives_another_digest(end: str) -> None:
    """All of a long key counts, not its first 64 bytes."""
    keys = ["k", "k2", "x" * 70, "x" * 70 + "y", "\ud800"]
    assert len({Digests(key + end).of("a") for key in keys}) == len(keys)


def test_identities_that_differ_have_other_digests() -> None:
    """By type, by split, by order."""
    identities = [
        (), ("",), ("a",), (b"a",), ("a", "b"), ("ab",), ("b", "a"), (1,), ("1",), (-1,), (None,),
        ("i1:1",), (1 << 128,), ("a", None), ("\ud800",),
    ]  # fmt: skip
    made = Digests("k")
    for one, other in combinations(identities, 2):
        assert made.of(*one) != made.of(*other), (one, other)
