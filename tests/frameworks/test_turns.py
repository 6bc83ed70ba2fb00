"""Turns of conversations, live in real frameworks, with and without an instrumentation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

NAMES = ("langchain", "pydantic_ai", "openai_agents")
PROGRAM = Path(__file__).parent / "turns.py"


@cache
def said(name: str, *options: str) -> dict[str, Any]:
    """What every case came to."""
    return line_of(finished(started(FRAMEWORKS[name], name, *options, program=PROGRAM)))


PLACES = [
    *(("bare", where) for where in ("each", "once", "both")),
    # Without spans and without a name every run is a session of its own.
    *(("instrumented", where) for where in ("each", "once", "both", "outer")),
]


@pytest.mark.parametrize(("variant", "where"), PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_every_run_is_a_turn(name: str, variant: str, where: str) -> None:
    """In a session around each turn or all, below an outer span or not; a stuck turn is stopped."""
    options = ("--instrumented",) if variant == "instrumented" else ()
    expected = {"made": 12, "told": [], "stuck": True, "after": [1, 1]}
    assert said(name, *options)[where] == expected
