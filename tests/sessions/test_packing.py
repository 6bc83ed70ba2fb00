"""Sessions that were packed as bytes go on as if they had not been."""

import gc
import weakref
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from lab import tables
from lab.recorded import steps
from lab.tables import Table
from otel_loopguard import LoopGuard, Settings, execution
from otel_loopguard.core import Step
from otel_loopguard.core.progress import Reached
from otel_loopguard.sessions import Session
from otel_loopguard.sessions import registry as table
from tests.calls import Run, call, handle_of

SCENARIOS, RUNS = Path(__file__).parents[2] / "scenarios", ("stuck", "work", "everyday-work")
ALL = [*chain(*(tables.load(SCENARIOS / f"{name}.txt") for name in RUNS))]


def put_away(guard: LoopGuard) -> list[Session]:
    """Packs all sessions of a guard; returns those that could be packed."""
    return [session for session in guard._sessions.all if session.freeze()]


def outcome(given: Iterable[Step], *, packed: bool) -> tuple[object, object]:
    """Decisions about steps, and the report, with the session packed after each or not."""
    run = Run()
    for step in given:
        run.calls(step)
        if packed:
            assert put_away(run.guard)
    said = [(one.step, one.action, one.reason, one.message) for one in run.decisions]
    return said, replace(handle_of(run.guard).report(), alerts=())  # decisions have own ids


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(table, id=table.name, marks=[] if number % 24 == 0 else pytest.mark.rare)
        for number, table in enumerate(ALL)
    ],
)
def test_what_was_put_away_is_judged_alike(table: Table, seeds: range) -> None:
    """Decisions and report are the same, step by step, with and without model calls."""
    for seed in (1, 2)[: len(seeds) // 5]:
        plain = outcome(steps(table.draw(seed)), packed=False)
        assert plain == outcome(steps(table.draw(seed)), packed=True)


def test_only_sessions_in_use_are_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that others were used after is packed, after a report too, and known when it is back."""
    monkeypatch.setattr(table, "_AT_HAND", 5)
    guard = LoopGuard(Settings())

    def work(first: int, last: int) -> list[str]:
        for number in range(first, last):
            for turn in range(20):
                guard.observe(call("search", {"q": turn}, f"answer {turn}"), f"s{number}")
        return [session.key for session in guard._sessions.all if session.frozen]

    guard.observe(call("search", {"q": "x"}, "nothing"), "loop")
    assert work(0, 50) == ["loop", *(f"s{number}" for number in range(45))]
    for number in range(50):
        assert guard.report(f"s{number}") is not None
    assert len(work(50, 100)) == 96
    for turn in range(6):
        guard.observe(call("search", {"q": "x"}, "nothing"), "loop")
        work(100 + 6 * turn, 106 + 6 * turn)
    assert guard.flag_named("loop").raised


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
        assert handle_of(guard, key).report().milestones == 100


def test_what_is_asked_of_a_session_that_was_put_away_is_there() -> None:
    """Report, context, feedback and acceptance, as before."""
    guard = LoopGuard(Settings())
    for _ in range(4):
        guard.observe(call("search", {"q": "x"}, "nothing"), "one")
    one = handle_of(guard, "one")
    one.remember("insight", "the index is empty")
    given = execution.admit("search", {"q": "y"}, session="one")
    before = one.report(), one.context()
    assert put_away(guard)
    assert (one.report(), one.context()) == before
    assert put_away(guard)
    assert guard.feedback(before[0].alerts[0].id, false_alarm=True)
    assert guard.admissions.answered(given.id, given.choice)
    assert one.report().false_alarms == 1


class Own:
    """A detector of the user's."""

    def __init__(self, settings: Settings) -> None:
        pass

    def observe(self, evidence: object) -> None:
        return None


def test_what_is_the_users_is_not_put_away() -> None:
    """A session with their detector stays as it is; arguments and answers are not kept at all."""

    class Odd:
        pass

    guard = LoopGuard(Settings(detectors=["tests.sessions.test_packing:Own"]))
    guard.observe(call("search", {"q": "x"}), "one")
    assert put_away(guard) == []
    guard, odd = LoopGuard(Settings()), Odd()
    gone = weakref.ref(odd)
    guard.observe(call("search", {"q": odd}, odd), "one")
    assert put_away(guard)
    del odd
    gc.collect()
    assert gone() is None
