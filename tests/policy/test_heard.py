"""A loop is aborted after a refusal of it was heard, or nobody ever asked about its session."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Action, Decision, Kind, Step
from tests.calls import EPOCH, SECOND, Run, call
from tests.sessions.journals import JournalsInMemory

_CALLS = some.tuples(some.sampled_from(["x", "y", "other"]), some.integers(1, 4))
_OTHERS = some.sampled_from([(name, 0) for name in ("read", "late", "lost", "turn", "restart")])
_EVENTS = some.lists(some.one_of(_CALLS, _OTHERS), min_size=5, max_size=60)


class Agent:
    """A session whose spans may come late, whose runtime asks, and whose guard may be replaced."""

    def __init__(self) -> None:
        self.made: list[Decision] = []
        self.journals = JournalsInMemory()
        self.begin()
        self.late: list[Step] = []
        self.is_late = False
        self.at = 0.0
        self.heard: set[str] = set()
        self.unwarned: list[Decision] = []

    def begin(self) -> None:
        self.guard = LoopGuard(
            Settings(digest_key="a key of all processes"), clock="replay", manual_journals=True,
            journal_store=self.journals, on_decision=lambda _, one: self.made.append(one),
        )  # fmt: skip
        self.guard.recall("run", 0)
        self.guard.flag_named("run").asked = True

    def call(self, name: str, count: int) -> None:
        """Makes calls side by side, equal ones or one that finds something."""
        self.at += 1
        for place in range(count):
            query = f"{name} {self.at} {place}" if name == "other" else name
            found = f"Page {hash(query)} of the book." if name == "other" else "No results at all."
            step = call("search", {"q": query}, found, at=self.at, took=0.5)
            self.late.append(step)
        if not self.is_late:
            self.judge()

    def judge(self) -> None:
        steps, self.late = self.late, []
        for step in steps:
            known = len(self.made)
            self.guard.observe(step, "run")
            for made in self.made[known:]:
                if made.action is Action.ABORT and made.loop not in self.heard:
                    self.unwarned.append(made)

    def read(self, *, delivered: bool = True) -> None:
        flag = self.guard.flag_named("run")
        self.at += 1
        flag.asked = True
        decision = flag.control.decision
        if delivered and decision is not None:
            flag.hear(decision.id, EPOCH + round(self.at * SECOND))
            if decision.action is Action.DENY:
                self.heard.add(decision.loop)

    def play(self, events: list[tuple[str, int]]) -> None:
        for name, count in events:
            if name == "late":
                self.is_late = not self.is_late
                self.judge()
            elif name == "turn":
                self.guard.observe(Step(Kind.OTHER, "user"), "run")
            elif name == "restart":
                self.guard.write_journals()
                self.begin()
            elif name in {"read", "lost"}:
                self.read(delivered=name == "read")
            else:
                self.call(name, count)


@given(_EVENTS)
def test_an_abort_has_a_refusal_before_it_that_was_heard(events: list[tuple[str, int]]) -> None:
    agent = Agent()
    agent.play(events)
    assert agent.unwarned == []


@given(_EVENTS)
def test_an_agent_that_goes_on_is_stopped_all_the_same(events: list[tuple[str, int]]) -> None:
    """Whatever was late or lost before: nothing that is owed holds the ladder for ever."""
    agent = Agent()
    agent.play([one for one in events if one[0] != "turn"])
    agent.is_late = False
    agent.judge()
    for _ in range(100):  # after news it takes forty
        agent.call("x", 1)
        agent.read()
    assert Action.ABORT in {one.action for one in agent.made}


@pytest.mark.parametrize("told", ["hint", "deny"])
def test_a_clock_that_was_set_back_holds_no_rung(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was heard by a clock that is an hour ahead was heard before all that comes after it."""
    guard, said = LoopGuard(), list[str]()

    def calls(until: str) -> None:
        for _ in range(20):
            now = time.time_ns()
            guard.observe(
                Step(Kind.TOOL, "search", args={}, outcome="No results.", start=now - 1, end=now),
                "run",
            )
            said.append(guard.flag_named("run").read().action.value)
            if said[-1] == until:
                return

    true = time.time_ns
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time_ns", lambda: true() + 3600 * 10**9)
        calls(told)
    calls("abort")
    assert list(dict.fromkeys(said)) == ["allow", "hint", "deny", "abort"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_limit_that_somebody_set_is_not_held_up(asks: bool) -> None:
    run = Run(Settings(budget_steps=10, budget_action="abort"))
    for number in range(11):
        run.calls(call("read", {"n": number}, f"Page {number} of {hash(number)}"))
        run.guard.flag_named("run").asked |= asks
    assert run.actions[-1] == "abort"
