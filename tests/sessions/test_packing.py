"""Sessions that were packed as bytes go on as if they had not been."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab import tables
from lab.recorded import steps
from otel_loopguard import LoopGuard, Settings, execution
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.core.milestones import Reached
from otel_loopguard.sessions import Session
from otel_loopguard.sessions import registry as table
from tests.calls import call, handle_of
from tests.documented.acting import Run

if TYPE_CHECKING:
    from lab.tables import Table
    from otel_loopguard.core import Detection, Step

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ALL = [
    table
    for name in ("stuck", "work", "everyday-work")
    for table in tables.load(SCENARIOS / f"{name}.txt")
]


def put_away(guard: LoopGuard) -> list[Session]:
    """Packs all sessions of a guard; returns those that could be packed."""
    return [session for session in guard._sessions.all if session.freeze()]


def outcome(given: Iterable[Step], *, packed: bool) -> tuple[list[object], object]:
    """Decisions about steps, and the report, with the session packed after each or not."""
    run = Run()
    for step in given:
        run.calls(step)
        if packed:
            assert put_away(run.guard)
    said = [(one.step, one.action, one.reason, one.message) for one in run.decisions]
    report = run.guard.report("run")
    assert report is not None
    return said, replace(report, alerts=())  # decisions have ids of their own


def same(table: Table, seed: int) -> bool:
    """Whether a run of a table is judged alike in both ways."""
    plain = outcome(steps(table.draw(seed)), packed=False)
    return plain == outcome(steps(table.draw(seed)), packed=True)


@pytest.mark.parametrize("table", ALL[::24], ids=lambda table: table.name)
def test_what_was_put_away_is_judged_alike(table: Table) -> None:
    """Decisions and report are the same, step by step, for some tables of runs."""
    assert same(table, 1)


@pytest.mark.rare
@pytest.mark.parametrize("table", ALL, ids=lambda table: table.name)
def test_every_table_is_judged_alike(table: Table) -> None:
    """For all tables of made-up runs, with and without model calls."""
    assert same(table, 2)
    assert same(table, 3)


def test_only_sessions_in_use_are_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that others were used after is packed, also after a report, and is known when it is back.

    It has a tenth of the objects.
    """
    monkeypatch.setattr(table, "_AT_HAND", 5)
    guard = LoopGuard(Settings())

    def work(first: int, last: int) -> list[str]:
        for number in range(first, last):
            for turn in range(20):
                guard.observe(call("search", {"q": turn}, f"answer {turn}"), f"s{number}")
        return [session.key for session in guard._sessions.all if session.frozen]

    guard.observe(call("search", {"q": "x"}, "nothing"), "loop")
    assert work(0, 50) == ["loop", *(f"s{number}" for number in range(45))]
    in_bytes, in_use = (len(_below(guard._sessions.find(key))) for key in ("s0", "s49"))
    assert in_bytes * 5 < in_use
    for number in range(50):
        assert guard.report(f"s{number}") is not None
    assert len(work(50, 100)) == 96
    for turn in range(6):
        guard.observe(call("search", {"q": "x"}, "nothing"), "loop")
        work(100 + 6 * turn, 106 + 6 * turn)
    flag = guard.flag_named("loop")
    assert flag.raised


def test_a_board_in_use_survives_packing() -> None:
    """What was reported before stays, and who has the board may write to it; else it is freed."""
    guard = LoopGuard(Settings())
    for key in ("before", "after", "unused"):
        guard.observe(call("search", {"q": "x"}, "found"), key)
    guard.flag_named("before").milestones.report("read", Reached.DONE)
    freed = weakref.ref(guard.flag_named("unused").milestones)
    board = guard.flag_named("after").milestones
    assert len(put_away(guard)) == 3
    gc.collect()
    assert freed() is None
    board.report("read", Reached.DONE)
    for key in ("before", "after"):
        guard.observe(call("search", {"q": "y"}, "found"), key)
        report = guard.report(key)
        assert report is not None
        assert report.milestones == 100


def test_what_is_asked_of_a_session_that_was_put_away_is_there() -> None:
    """Report, context, feedback and acceptance, as before."""
    guard = LoopGuard(Settings())
    for _ in range(4):
        guard.observe(call("search", {"q": "x"}, "nothing"), "one")
    handle_of(guard, "one").remember("insight", "the index is empty")
    given = execution.admit("search", {"q": "y"}, session="one")
    report = guard.report("one")
    assert report is not None
    before = report, handle_of(guard, "one").context()
    assert put_away(guard)
    assert (guard.report("one"), handle_of(guard, "one").context()) == before
    assert put_away(guard)
    assert guard.feedback(report.alerts[0].id, false_alarm=True)
    assert guard.answered(given.id, given.choice)
    after = guard.report("one")
    assert after is not None
    assert after.false_alarms == 1


class Own:
    """A detector of the user's."""

    name = "own"
    takes = Evidence

    def __init__(self, settings: Settings) -> None:
        self.seen = 0

    def observe(self, evidence: Any) -> Detection | None:
        self.seen += 1
        return None


def test_what_is_not_ours_is_not_put_away() -> None:
    """A session with a detector of the user's stays as it is: nobody copies their objects."""
    guard = LoopGuard(Settings(detectors=["tests.sessions.test_packing:Own"]))
    guard.observe(call("search", {"q": "x"}), "one")
    assert put_away(guard) == []
    (session,) = guard._sessions.all
    assert session.state.detectors


def test_values_of_the_users_do_not_matter() -> None:
    """Arguments and answers that are objects are not kept, so a session with them can be packed."""

    class Odd:
        pass

    guard, odd = LoopGuard(Settings()), Odd()
    gone = weakref.ref(odd)
    guard.observe(call("search", {"q": odd}, odd), "one")
    assert put_away(guard)
    del odd
    gc.collect()
    assert gone() is None


def _below(start: object) -> set[int]:
    """What is collected as garbage below an object, without what all sessions share."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        thing = todo.pop()
        shared = isinstance(thing, type) or type(thing).__name__ in {
            "Settings", "Registry", "Faults", "module", "function",
        }  # fmt: skip
        if id(thing) not in seen and gc.is_tracked(thing) and not shared:
            seen.add(id(thing))
            todo.extend(gc.get_referents(thing))
    return seen
