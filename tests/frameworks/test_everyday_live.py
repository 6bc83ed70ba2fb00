"""Everyday work, live in real frameworks with their adapters, a scripted model and no spans."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started

NAMES = ("langchain", "pydantic_ai", "openai_agents")
PROGRAM = Path(__file__).parent / "everyday_run.py"
HINTED = {
    "poll": {"hint polled_too_soon"},
    "declared poll": {"hint polled_too_soon"},
    "lookups": {"hint found_nothing"},
}
"""What may be said: the model takes no time, and fifty items that are not there are many."""


@cache
def said(name: str) -> dict[str, Any]:
    """What every case came to."""
    return line_of(finished(started(FRAMEWORKS[name], name, program=PROGRAM)))


@pytest.mark.parametrize(
    "case", ["poll", "declared poll", "schedule", "outage", "keys", "lookups", "long run"]
)
@pytest.mark.parametrize("name", NAMES)
def test_the_work_is_done(name: str, case: str) -> None:
    """Every call is made, the agent comes to its end, and nothing but an allowed hint is said."""
    found = said(name)[case]
    assert (found["left"], found["fault"]) == (0, "")
    assert set(found["told"]) <= HINTED.get(case, set())
