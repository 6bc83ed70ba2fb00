"""Runs written down as text: who gets somewhere is let through, who does not is noticed in time.

Each table is played as it is written. Those of `DRAWN` are also drawn from other seeds: they begin
with other work, have other words, lengths and paces, with and without model calls.
"""

import logging
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab import tables
from lab.recorded import replayed
from lab.runs import Scenario
from lab.scenarios import play
from lab.tables import Table
from otel_loopguard.core import Action, Kind, Step

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = {path.stem: tables.load(path) for path in sorted(FOLDER.glob("*.txt"))}
DRAWN = ("everyday-work", "stuck", "work")
STILL = {
    "poll while a model thinks: fetch_report(id=7f2)": "denied at the 19th look, 3 to 7 s apart",
    "poll that spins for a while: Job j-7 is being processed, please check back later.":
        "denied at the 9th look without a pause: no word acquits a line",
}  # fmt: skip
"""What is wanted of a run and not so yet, in some run of it. What is mended leaves this list."""
TIMED = (
    "look on a schedule", "several looks on a schedule", "log that stands still for a while",
    "poll and a look at the log", "retries with patience", "retries that back off",
    "side by side alike", "pods that start", "sleep inside of the command",
    'approval by a person: {"approved": null, "state": "in_review"}',
)  # fmt: skip
"""What only a clock distinguishes from a loop."""
LENGTHENED = ("cut result of a growing log", "move step by step: Moved forward by 0.5 m.")
"""What a clock and a duration make equal behind the cut, or a line: sixty of those are a loop."""
HIDDEN = "paging past the end: page"
"""`[]` between a clock and a duration is not seen to be empty yet."""


def parameters(*files: str, wanted: Callable[[Scenario], bool] = lambda _: True) -> list[object]:
    return [
        pytest.param(table, file in DRAWN, id=f"{file}: {table.name}")
        for file in files or FILES
        for table in FILES[file]
        if wanted(table.wanted)
    ]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is decided is seen by the test, and need not be printed for each run."""
    caplog.set_level(logging.CRITICAL, "otel_loopguard")


@pytest.mark.parametrize(("table", "drawn"), parameters())
def test_it_is_judged_as_wanted(table: Table, drawn: bool, seeds: range) -> None:
    """At every seed; a stop that has no number at half of them, if the hint is not heeded."""
    runs = [table.draw(seed) for seed in (seeds[: len(seeds) * 3 // 5] if drawn else seeds[:1])]
    faults = [play(run).faults(run) for run in runs]
    late = sum("never stopped" in each for each in faults)
    if 2 * late <= len(faults) > 1:
        faults = [[one for one in each if one != "never stopped"] for each in faults]
    assert not any(faults) or table.name in STILL, list(zip(seeds, faults, strict=False))


_FRAMES = ('{"exit_code"', '{"exit_status"', '{"rc"', '{"content"', '{"type"')


def with_volatile_values(step: Step, dice: random.Random) -> None:
    """A fresh id in all arguments, a clock before and a duration behind every outcome."""
    if isinstance(step.args, dict):
        step.args = {**step.args, "request_id": str(uuid.UUID(int=dice.getrandbits(128)))}
    # The record of a program stays one, and so does the frame of a server; what was said is in it.
    if isinstance(step.outcome, str) and not step.outcome.startswith(_FRAMES):
        clock = f"10:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        step.outcome = f"{clock} {step.outcome} (took {dice.randrange(900)} ms)"


CHANGES: dict[str, dict[str, Any]] = {
    "without times": {"start": 0, "end": 0}, "without outcomes": {"outcome": None},
    "without arguments": {"args": None},
    "names only": {"args": None, "outcome": None, "error_text": None}, "volatile": {},
}  # fmt: skip
"""Recordings may have no times; instrumentations leave results out by default, some the arguments,
and some give nothing but names."""


def of_tools(change: str, seed: int) -> Callable[[Step], None]:
    """The change for tool calls alone."""
    dice = random.Random(seed)

    def changed(step: Step) -> None:
        if step.kind is Kind.TOOL and change == "volatile":
            with_volatile_values(step, dice)
        elif step.kind is Kind.TOOL:
            for name, value in CHANGES[change].items():
                setattr(step, name, value)

    return changed


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("table", "drawn"), parameters("everyday-work", "work", wanted=lambda one: one.let_through)
)
def test_who_gets_somewhere_is_not_stopped(
    table: Table, drawn: bool, change: str, seeds: range
) -> None:
    """Whatever the spans carry."""
    names = {table.name, table.name.partition(":")[0]}
    if (
        not names.isdisjoint(STILL)
        or (change == "without times" and not names.isdisjoint(TIMED))
        or (change == "volatile" and not names.isdisjoint(LENGTHENED))
    ):
        pytest.skip("nothing else tells it from a loop")
    for seed in seeds[1 : 1 + len(seeds) // 5]:
        found = replayed(table.draw(seed), of_tools(change, seed))
        assert found.stopped is None, found.decisions[-1]


@pytest.mark.parametrize(("table", "drawn"), parameters("stuck"))
def test_volatile_values_hide_no_loop(table: Table, drawn: bool, seeds: range) -> None:
    """With fresh ids, clocks and durations everywhere the same runs are noticed, but for one."""
    found = [
        replayed(table.draw(seed), of_tools("volatile", seed)).noticed is not None
        for seed in seeds[:3]
    ]
    assert sum(found) >= len(found) - 1 or table.name == HIDDEN


def alike(table: Table) -> bool:
    """True if its spans end in the order of its calls, and no agent runs inside of another."""
    return not any(
        line.text == "together:" or line.text.startswith("agent ") or " >> " in line.text
        for line in tables.every(table.lines)
    )


@pytest.mark.parametrize(
    "table", [one for name in DRAWN for one in FILES[name] if alike(one)], ids=lambda one: one.name
)
def test_it_is_decided_as_in_a_recording(table: Table) -> None:
    """Noticed for the same reason, and stopped or not; only a live pause needs somebody."""
    run = table.draw(1)
    live, recorded = play(run), replayed(run)
    first, other = (
        [(one.action, one.reason) for _, one in found.decisions][:1] for found in (live, recorded)
    )
    assert first == other
    paused = any(one.action is Action.PAUSE for _, one in recorded.decisions)
    assert paused or (live.stopped is None) == (recorded.stopped is None)
