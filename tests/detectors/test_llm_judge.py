"""A judge of the user's: when it is asked, what follows, and that nothing waits for it."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice, pairwise
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.llm_judge import Opinion, Question
from tests.calls import call
from tests.detectors.judges import Bench, Judged, failing, healthy, talking
from tests.stores.servers import wait_for


def settings(**own: object) -> Settings:
    """With all other detectors off, so that the judge alone is heard."""
    names = {entry.name for entry in LoopGuard(clock="replay")._registry.entries}
    return Settings(switched_off=frozenset(names), **own)


def judged(steps: Iterator[Step], number: int, judge: Any, **own: object) -> Judged:
    """A session of so many steps, with a judge."""
    found = Judged(settings(**own), judge)
    found.steps(steps, number)
    return found


def test_it_is_asked_from_step_thirty_when_weak_signs_persist() -> None:
    """And then every 5 to 15 steps, the sooner the surer it is; on one thread without spans."""
    sure, unsure = Bench(0.9), Bench(0.1)
    for bench in (sure, unsure):
        found = judged(failing(), 29, bench)
        assert bench.questions == []
        found.steps(failing(), 16)
        asked = [question.step for question in bench.questions]
        assert asked[0] == 29
        assert all(5 <= later - sooner <= 16 for sooner, later in pairwise(asked))
        assert bench.threads == {("loopguard-judge", True)}
    assert len(sure.questions) > len(unsure.questions)


@pytest.mark.parametrize(
    ("steps", "own"),
    [
        (lambda: islice(healthy(), 120), {}),
        # Nine steps with signs, and then none.
        (lambda: chain(islice(healthy(), 30), islice(failing(), 14), islice(healthy(), 40)), {}),
        # What was not captured is not alike.
        (lambda: iter([call("search", None, None)] * 60), {}),
        # What is never judged is not shown to the judge either.
        (lambda: iter([call("poll", {"q": 1}, "the same")] * 60), {"exempt_tools": ["poll"]}),
    ],
    ids=["healthy", "signs that pass", "not captured", "an exempt tool"],
)
def test_it_is_not_asked_without_a_sign(
    steps: Callable[[], Iterator[Step]], own: dict[str, object]
) -> None:
    bench = Bench()
    given = list(steps())
    judged(iter(given), len(given), bench, **own)
    assert bench.questions == []


@pytest.mark.parametrize(
    ("most", "expected"),
    [("hint", ["hint"]), (None, ["hint", "steer", "ask"]), ("pause", ["hint", "pause"])],
    ids=str,
)
def test_two_confident_opinions_are_a_detection(most: str | None, expected: list[str]) -> None:
    """One is not; each further one confirms, up to `tuning.judge.max_action`."""
    own = {"tuning": {"judge": {"max_action": most}}} if most else {}
    found = judged(failing(), 36, Bench(0.95), **own)
    assert found.decisions == []
    found.steps(failing(), 84)
    assert list(dict.fromkeys(found.actions)) == expected
    first = found.decisions[0]
    assert (first.detector, first.reason, first.count) == ("judge", "judged_stuck", 2)
    assert "2 times in a row" in first.message


@pytest.mark.parametrize(
    "answers", [[0.95, 0.3], [0.89], [0], [None], [False], [Opinion(0.5)]], ids=repr
)
def test_an_opinion_that_is_not_sure_does_nothing(answers: list[object]) -> None:
    """Doubt in between starts again; below 0.9, or no opinion at all."""
    given = iter(answers * 60)
    bench = Bench(lambda _: next(given))
    assert judged(failing(), 120, bench).decisions == []
    assert len(bench.questions) > 3


def test_a_user_who_speaks_starts_anew() -> None:
    """What was seen and said before belongs to the turn before."""
    found = judged(failing(), 32, Bench(0.95))
    found.guard.observe(Step(Kind.OTHER, "user", text="try again"), "run")
    assert found.steps(failing(), 9) == []


def test_what_it_is_asked() -> None:
    """The newest 20 steps in short, what was noticed, and the same as text for a model."""
    bench = Bench()
    steps = list(islice(failing(), 40))
    big = call("tool9", {"text": "y" * 100_000}, error="x" * 100_000)
    judged(iter([*steps[:28], big, *steps[28:]]), 32, bench)
    question = bench.questions[0]
    assert question.step == 29
    assert [glance.number for glance in question.steps] == list(range(10, 30))
    assert any("calls failed" in sign for sign in question.signs)
    long = question.steps[-2]
    assert (long.kind, long.name, long.error) == ("tool", "tool9", True)
    assert len(long.said) == len(long.answer) == 300
    assert "Is it stuck" in question.text
    assert "28 tool tool9" in question.text
    assert len(question.text) < 14_000
    talk = Bench()
    judged(talking(), 32, talk)  # no tool is called at all
    assert "texts of the model were said before" in talk.questions[0].signs[0]


@pytest.mark.parametrize(
    "answer", [RuntimeError("no quota"), "stuck", 7, float("nan"), -1, [0.9]], ids=repr
)
def test_a_judge_that_fails_is_counted_and_off_for_that_session(answer: object) -> None:
    """Also one whose answer is of no use; other sessions go on asking."""
    raise_faults(False)
    bench = Bench(answer)
    found = judged(failing(), 60, bench)
    assert (len(bench.questions), found.decisions) == (1, [])
    assert sum(found.guard.faults.counts.values()) == 1
    bench.answer = 0.95
    assert "hint" in found.steps(failing(), 60, "other")


def test_an_async_judge_is_cancelled_at_its_limit() -> None:
    """And counted as a failure; one that answers in time is heard."""

    async def quick(question: Question) -> float:
        return 0.95

    assert judged(failing(), 60, quick).actions[:1] == ["hint"]
    raise_faults(False)
    cancelled = threading.Event()

    async def slow(question: Question) -> float:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1.0

    found = judged(failing(), 45, slow, tuning={"judge": {"timeout_s": 0.05}})
    assert cancelled.wait(60)
    assert sum(found.guard.faults.counts.values()) == 1
    assert found.decisions == []


def test_nothing_waits_for_a_judge_that_hangs() -> None:
    """It is left behind with its thread, three times at most; steps cost what they cost."""
    raise_faults(False)
    release = threading.Event()
    asked: list[int] = []
    answered: list[int] = []

    def judge(question: Question) -> float:
        asked.append(question.step)
        release.wait(120)
        answered.append(question.step)
        return 1.0

    found = Judged(settings(tuning={"judge": {"timeout_s": 0.02}}), judge, patience_s=0)
    for number in range(6):
        steps = failing()
        for _ in range(60):
            found.guard.observe(next(steps), f"s{number}")
            assert not answered
            if not found.settled() and len(asked) < 4:
                time.sleep(0.005)
    assert len(asked) == 3
    assert found.guard.faults.counts["judge:TimeoutError"] == 3
    assert found.decisions == []
    release.set()


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one question is with the judge, so many wait; the rest are not asked."""
    release = threading.Event()
    bench = Bench(lambda _: release.wait(60) and 0.5)
    monkeypatch.setattr("otel_loopguard.detectors.llm_judge._WAITING", 2)
    found = Judged(settings(), bench, patience_s=0)
    for number in range(8):
        found.steps(failing(), 31, f"s{number}")
        if number == 0:
            wait_for(lambda: found.worker._current is not None)
    assert len(found.worker._worker) == 2
    release.set()
    assert found.settled(60)
    assert len(bench.questions) == 3


def test_the_setting_names_a_judge_for_live_guards_only() -> None:
    """What was recorded may not be meant for a model; it can be switched off, there or not."""
    named, off = Settings(judge=f"{__name__}:certain"), Settings(switched_off={"judge"})
    guards = [
        LoopGuard(named), LoopGuard(named, clock="replay"),
        LoopGuard(off, clock="replay", judge=certain), LoopGuard(off, clock="replay"),
    ]  # fmt: skip
    there = ["judge" in {entry.name for entry in guard._registry.entries} for guard in guards]
    assert there == [True, False, False, False]


def certain(question: Question) -> float:
    return 1.0
