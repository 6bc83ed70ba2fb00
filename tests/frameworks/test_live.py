"""Turns of conversations and everyday work, live in real frameworks with their adapters."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.harness import FRAMEWORKS, finished, line_of, started
from tests.frameworks.simple_agents import AGENTS

HERE = Path(__file__).parent
PLACES = [
    *(("bare", where) for where in ("each", "once", "both")),
    # Without spans and without a name every run is a session of its own.
    *(("instrumented", where) for where in ("each", "once", "both", "outer")),
]
HINTED = {
    "poll": {"hint polled_too_soon"},
    "poll in JSON": {"hint polled_too_soon"},
    "declared poll": {"hint polled_too_soon"},
    "lookups": {"hint found_nothing"},
    "keys": {"hint identical_call"},
    "scroll": {"hint identical_call"},
    "schedule": {"allow agent_limit"},
}
"""What may be said: the model takes no time, fifty items that are not there are many, and a run of
three hours is noted where a span tells of the run."""


@cache
def said(program: str, name: str, *options: str) -> dict[str, Any]:
    """What every case of a program came to."""
    process = started(FRAMEWORKS[name], name, *options, program=HERE / program)
    return line_of(finished(process))


@pytest.mark.parametrize(("variant", "where"), PLACES)
@pytest.mark.parametrize("name", AGENTS)
def test_every_run_is_a_turn(name: str, variant: str, where: str) -> None:
    """In a session around each turn or all, below an outer span or not; a stuck turn is stopped.

    Twelve turns at once with the same call and answer may earn a word.
    """
    options = ("--instrumented",) if variant == "instrumented" else ()
    found = dict(said("turns.py", name, *options)[where])
    # Whether a run of the same words is one per step depends on what its spans say of them.
    assert found.pop("told") in ([], ["hint"])
    assert found == {"made": 12, "stuck": True, "after": [1, 1]}


@pytest.mark.parametrize("case", [*HINTED, "outage", "long run"])
@pytest.mark.parametrize("name", AGENTS)
def test_the_work_is_done(name: str, case: str) -> None:
    """Every call is made, the agent comes to its end, and nothing but an allowed hint is said."""
    found = said("everyday_run.py", name)[case]
    assert (found["left"], found["fault"]) == (0, "")
    assert set(found["told"]) <= HINTED.get(case, set())
