"""The execution choice: the times that are added, the votes, and who wins."""

from __future__ import annotations

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import UNKNOWN_PRESSURE, Alert, Choice, FollowUp, ResourcePressure, Source
from otel_loopguard.execution.advice import Advice, ExecutionAdvisor, Workload, execution_follow_ups
from otel_loopguard.settings.preferences import Preferences

SYNC, PROMPT = Choice.EXECUTE_SYNC, Choice.PROMPT_USER
BACKGROUND, DEFER = Choice.AUTO_BACKGROUND, Choice.DEFER
BUSY = ResourcePressure(load=0.9)


def work(
    seconds: float = 1, tasks: int = 1, *, parallel: bool = False, complexity: float = 0
) -> Workload:
    return Workload(tasks, ("t",), parallel, seconds * 1e3, complexity, 10, {"t": "profile"})


def choose(
    what: Workload,
    pressure: ResourcePressure = UNKNOWN_PRESSURE,
    remembered: Choice | None = None,
    wishes: Preferences | None = None,
) -> Advice:
    wishes = wishes or Preferences()
    return ExecutionAdvisor(Settings()).advise(what, wishes, pressure, remembered)


def votes(chosen: Advice) -> list[tuple[str, Choice, float]]:
    return [(vote.rule, vote.choice, vote.confidence) for vote in chosen.factors.votes]


@pytest.mark.parametrize(
    ("what", "added"),
    [
        (work(1), (2, 0, 0)),
        (work(1, 4), (8, 0, 0)),
        (work(1, 5), (10, 10, 0)),
        (work(1, 12, complexity=0.5), (24, 20, 2.5)),
        (work(1, 12, parallel=True), (6, 20, 0)),
        (work(1, complexity=1), (2, 0, 5)),
    ],
    ids=["one", "four", "five", "twelve and complex", "parallel", "complex"],
)
def test_the_total(what: Workload, added: tuple[float, float, float]) -> None:
    """Tools, changing between tasks, a checkpoint for every five, five seconds of complexity."""
    factors = choose(what).factors
    found = (factors.switching_ms, factors.checkpoints_ms, factors.complexity_ms)
    assert [value / 1e3 for value in found] == pytest.approx(added)
    assert factors.total_ms == pytest.approx(factors.tool_ms + sum(added) * 1e3)


@pytest.mark.parametrize(
    ("seconds", "cast"),
    [
        (12.9, ("time_sync", SYNC, 0.9)),
        (13, ("time_prompt", PROMPT, 0.8)),
        (42.9, ("time_prompt", PROMPT, 0.8)),
        (43, ("time_background", BACKGROUND, 0.85)),
    ],
    ids=["below 15 s", "15 s", "below 45 s", "45 s"],
)
def test_the_vote_on_time(seconds: float, cast: tuple[str, Choice, float]) -> None:
    """Below 15 s at once, from 45 s in the background, between the user is asked; 2 s are added."""
    chosen = choose(work(seconds))
    assert votes(chosen) == [cast]
    assert (chosen.choice, chosen.confidence) == cast[1:]
    assert chosen.source is Source.EXECUTION_CHOICE


def test_without_the_background_the_user_is_asked() -> None:
    """Every vote for it becomes a question, so that nothing goes there unasked."""
    chosen = choose(work(60, 30), wishes=Preferences(auto_background_enabled=False))
    assert {choice for _, choice, _ in votes(chosen)} == {PROMPT}
    assert chosen.confidence == 0.7


@pytest.mark.parametrize(
    ("what", "cast"),
    [
        (work(1, 15, parallel=True), []),
        (work(1, 16, parallel=True), [("tasks_prompt", PROMPT, 0.85)]),
        (work(1, 26, parallel=True), [("tasks_background", BACKGROUND, 0.9)]),
        (work(1, 10), []),
        (work(1, 11), [("sequential_background", BACKGROUND, 0.75)]),
        (work(1, complexity=0.7), []),
        (work(1, complexity=0.71), [("complexity_prompt", PROMPT, 0.8)]),
    ],
    ids=["15", "16", "26", "10 in sequence", "11 in sequence", "0.7 complex", "more complex"],
)
def test_votes_on_the_tasks(what: Workload, cast: list[object]) -> None:
    """Number, order and complexity of the tasks vote past their thresholds, and not at them."""
    assert votes(choose(what))[1:] == cast


@pytest.mark.parametrize(
    ("seconds", "pressure", "cast"),
    [
        (28.1, BUSY, [("load_background", BACKGROUND, 0.75)]),
        (28, BUSY, [("load_defer", DEFER, 0.6)]),
        (28.1, ResourcePressure(load=0.8), []),
        (17.9, ResourcePressure(queue=11), [("queue_sync", SYNC, 0.7)]),
        (18, ResourcePressure(queue=11), []),
        (1, ResourcePressure(queue=10), []),
    ],
    ids=[
        "long under load",
        "short under load",
        "load",
        "queue",
        "long with a queue",
        "short queue",
    ],
)
def test_votes_on_what_is_busy(
    seconds: float, pressure: ResourcePressure, cast: list[object]
) -> None:
    """Under load the long goes to the background and the short waits; a queue keeps it here."""
    assert votes(choose(work(seconds), pressure))[1:] == cast


def test_the_highest_mean_wins() -> None:
    """Two votes for one option count as their mean, so that a weak one takes a strong one down."""
    chosen = choose(work(60, 11), BUSY)
    assert votes(chosen) == [
        ("time_background", BACKGROUND, 0.85),
        ("sequential_background", BACKGROUND, 0.75),
        ("load_background", BACKGROUND, 0.75),
    ]
    assert chosen.choice is BACKGROUND
    assert chosen.confidence == pytest.approx(0.783333)
    assert "11 tasks in sequence" in chosen.reason
    assert "90% of the CPUs are busy" in chosen.reason


@pytest.mark.parametrize("remembered", [SYNC, PROMPT, BACKGROUND, DEFER], ids=str)
@pytest.mark.parametrize("what", [work(1), work(20), work(60), work(90, 30)], ids=repr)
def test_a_remembered_answer_decides(what: Workload, remembered: Choice) -> None:
    """However sure the other rules are of theirs."""
    chosen = choose(what, remembered=remembered)
    assert (chosen.choice, chosen.factors.remembered) == (remembered, remembered)
    assert f"the user answered {remembered} before" in chosen.reason


def test_a_remembered_answer_has_its_confidence() -> None:
    """0.65 alone, and the mean with what else is for it."""
    assert choose(work(1), remembered=BACKGROUND).confidence == 0.65
    assert choose(work(60), remembered=BACKGROUND).confidence == 0.75


def test_what_is_busy_speaks_against_a_remembered_answer() -> None:
    """Then all votes count; where it is for the same option nothing speaks against it."""
    assert choose(work(60), BUSY, remembered=SYNC).choice is BACKGROUND
    assert choose(work(60), BUSY, remembered=BACKGROUND).choice is BACKGROUND
    short = ResourcePressure(1.0, None, (Alert("cpu", 99, 80, critical=True),))
    assert choose(work(1), short, remembered=SYNC).choice is DEFER


def test_nothing_goes_to_the_background_of_who_does_not_want_it() -> None:
    """Whatever was answered before."""
    wishes = Preferences(auto_background_enabled=False)
    assert choose(work(60), remembered=BACKGROUND, wishes=wishes).choice is PROMPT


def test_a_tie_goes_to_the_user_or_to_what_the_user_prefers() -> None:
    """Of equally sure options the user is asked, unless a default is preferred."""
    tied = work(60, 16, parallel=True)
    assert choose(tied).choice is PROMPT
    assert choose(tied, wishes=Preferences(default_choice=BACKGROUND)).choice is BACKGROUND
    assert choose(tied, wishes=Preferences(default_choice=DEFER)).choice is PROMPT


def test_a_machine_that_is_critically_short_goes_before_the_votes() -> None:
    """Resources are heard before the execution choice, with a certainty of 0.8."""
    short = ResourcePressure(1.0, None, (Alert("cpu", 99, 80, critical=True),))
    chosen = choose(work(1), short)
    assert (chosen.choice, chosen.confidence) == (DEFER, 0.8)
    assert chosen.source is Source.RESOURCES
    assert chosen.reason == "the machine is short of resources: cpu 99 %"
    assert chosen.factors.votes


@pytest.mark.parametrize("choice", list(Choice), ids=str)
def test_every_choice_has_follow_ups(choice: Choice) -> None:
    """No answer leaves the runtime without a word on what to do next."""
    assert execution_follow_ups(choice)
    assert FollowUp.NOTIFY_ON_COMPLETION not in execution_follow_ups(choice, notify=False)
