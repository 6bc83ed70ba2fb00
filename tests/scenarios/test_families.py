"""Made-up runs of many kinds: who gets somewhere is left alone, who does not is noticed.

Every family is drawn from 5 seeds, or 20 with `--rare`: another beginning, other words, other
tools, lengths and times, with and without model calls. What a family is stands in its docstring.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import pytest

from otel_loopguard.core import Kind, Step
from tests.documented.acting import Run
from tests.scenarios.families import EVERYDAY, HEALTHY, HINTED, OPEN, STUCK, Family
from tests.scenarios.healthy_everyday import CLOCKED, CUT

STOPPED = (
    "nonce_by_name volatile_answer short_cycle cycle_with_nonce same_failing_call wrong_arguments "
    "unknown_tool retry_storm dead_button_on_a_screen usage_again command_in_wrong_syntax "
    "refused_without_a_flag commands_that_do_nothing passwords_by_hand forty_hand_offs_of_a_swarm "
    "a_worker_with_one_answer a_ring_without_end ping_pong ring_of_agents handed_over_again "
    "nonce_in_value middle_cycle long_cycle two_answers_by_turns same_error_other_arguments "
    "edit_that_does_not_match edit_and_undo dead_button scroll_at_the_bottom "
    "several_tools_one_outage each_agent_in_its_own_loop"
).split()
"""Families whose loop is stopped, not only noticed, if the hint is not heeded."""


@dataclass(frozen=True)
class Result:
    """What the guard did in one run: when it noticed, whether it stopped, what it said."""

    noticed: tuple[int, ...]
    stopped: bool
    onset: int
    said: tuple[str, ...]


TIMED = CLOCKED | frozenset(
    "pods_that_start log_that_stands_still_for_a_while sleep_inside_of_the_command "
    "retries_with_patience retries_that_back_off side_by_side_alike".split()
)
"""Of all families, those that only a clock distinguishes from a loop."""
UNNOTICED = [family for family in EVERYDAY if family.name not in HINTED]
Change = Callable[[Step, random.Random], None]


def as_it_is(step: Step, dice: random.Random) -> None:
    """Nothing is changed."""


def without_times(step: Step, dice: random.Random) -> None:
    """Recordings may have no times."""
    step.start = step.end = 0


def without_outcomes(step: Step, dice: random.Random) -> None:
    """Instrumentations leave results out by default."""
    step.outcome = None


def without_arguments(step: Step, dice: random.Random) -> None:
    """Some leave the arguments out."""
    step.args = None


def names_only(step: Step, dice: random.Random) -> None:
    """And some give nothing but names."""
    step.args = step.outcome = step.error_text = None


def with_volatile_values(step: Step, dice: random.Random) -> None:
    """A fresh id in all arguments, a clock before and a duration behind every outcome."""
    if isinstance(step.args, dict):
        step.args = {**step.args, "request_id": str(uuid.UUID(int=dice.getrandbits(128)))}
    if isinstance(step.outcome, str):
        clock = f"10:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        step.outcome = f"{clock} {step.outcome} (took {dice.randrange(900)} ms)"


@lru_cache(maxsize=1000)
def result(family: Family, seed: int, change: Change = as_it_is) -> Result:
    """What the guard does in one run of a family."""
    steps, onset = family.run(seed)
    run, dice = Run(), random.Random(seed)
    for step in steps:
        if step.kind is Kind.TOOL:
            change(step, dice)
    run.calls(*steps)
    seen = [one for one in run.decisions if one.action.rank]
    return Result(
        tuple(one.step for one in seen),
        any(one.action.stops for one in seen),
        onset,
        tuple(f"{one.step} {one.action.value} {one.reason}" for one in seen),
    )


def families(of: list[Family], only: list[str] | None = None) -> list[object]:
    """Families as parameters."""
    return [
        pytest.param(family, id=family.name) for family in of if only is None or family.name in only
    ]


@pytest.mark.parametrize("family", families([*HEALTHY, *UNNOTICED]))
def test_who_gets_somewhere_is_not_noticed(family: Family, seeds: range) -> None:
    """In none of the runs of a healthy family is a hint given."""
    said = {seed: result(family, seed).said for seed in seeds}
    assert {seed: what for seed, what in said.items() if what} == {}


CHANGES = [without_times, without_outcomes, without_arguments, names_only, with_volatile_values]


@pytest.mark.parametrize(
    ("family", "change"),
    [
        pytest.param(family, change, id=f"{family.name}-{change.__name__}")
        for family in [*HEALTHY, *EVERYDAY, *OPEN]
        for change in CHANGES
        if not (change is without_times and family.name in TIMED)
        and not (change is with_volatile_values and family.name in CUT)
    ],
)
def test_who_gets_somewhere_is_not_stopped(family: Family, change: Change, seeds: range) -> None:
    """Whatever the spans carry, in none of the runs of a healthy family is anything stopped."""
    said = [result(family, seed, change) for seed in seeds[: max(3, len(seeds) // 3)]]
    assert [one.said for one in said if one.stopped] == []


@pytest.mark.parametrize(
    "family", families([*OPEN, *(one for one in EVERYDAY if one.name in HINTED)])
)
def test_where_nobody_can_tell_nothing_is_stopped(family: Family, seeds: range) -> None:
    """What may be work or a loop leads to a hint at most."""
    said = [result(family, seed) for seed in seeds]
    assert [one.said for one in said if one.stopped] == []


@pytest.mark.parametrize("family", families(STUCK))
def test_who_gets_nowhere_is_noticed(family: Family, seeds: range) -> None:
    """In every run of a stuck family there is a hint, and none before the loop begins."""
    results = {seed: result(family, seed) for seed in seeds}
    early = [one for one in results.values() if one.noticed and one.noticed[0] < one.onset]
    assert early == []
    assert [seed for seed, one in results.items() if not one.noticed] == []


@pytest.mark.parametrize("family", families(STUCK))
def test_volatile_values_hide_no_loop(family: Family, seeds: range) -> None:
    """With fresh ids, clocks and durations everywhere the same runs are noticed, but for one."""
    noticed = sum(bool(result(family, seed, with_volatile_values).noticed) for seed in seeds)
    assert noticed >= len(seeds) - 1


@pytest.mark.parametrize("family", families(STUCK, STOPPED))
def test_who_does_not_listen_is_stopped(family: Family, seeds: range) -> None:
    """Where the loop is plain and goes on after the hint, at least half of the runs are stopped."""
    assert sum(result(family, seed).stopped for seed in seeds) >= len(seeds) / 2


def test_there_are_families_enough() -> None:
    """No family was lost on the way from its module."""
    assert len(HEALTHY) >= 60
    assert len(STUCK) >= 40
    names = [family.name for family in (*HEALTHY, *EVERYDAY, *STUCK, *OPEN)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "family", [*HEALTHY, *EVERYDAY, *STUCK, *OPEN], ids=lambda family: family.name
)
def test_a_seed_is_a_run(family: Family) -> None:
    """The same seed makes the same run, other seeds make others."""
    assert family.run(3) == family.run(3)
    assert family.run(3) != family.run(4)
