"""A judge of the user's: when it is asked, what follows, and that nothing waits for it."""

from __future__ import annotations

import threading
import time
from itertools import islice, pairwise

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.llm_judge import Opinion, Question
from tests.calls import call
from tests.detectors.judges import Bench, Judged, failing, healthy, talking, wait_until

NO_JUDGE = "a text"


def settings(**own: object) -> Settings:
    """With all other detectors off, so that the judge alone is heard."""
    names = {entry.name for entry in LoopGuard(clock="replay")._registry.entries}
    return Settings(switched_off=frozenset(names), **own)


def test_it_is_asked_from_step_thirty_when_weak_signs_persist() -> None:
    """And then every 5 to 15 steps, the sooner the surer it is."""
    sure, unsure = Bench(0.9), Bench(0.1)
    for bench, steps in ((sure, [29, 35, 42]), (unsure, [29, 44])):
        judged = Judged(bench, settings())
        judged.steps(failing(), 29)
        assert bench.questions == []
        judged.steps(failing(), 16)
        asked = [question.step for question in bench.questions]
        assert asked[0] == steps[0]
        assert all(5 <= later - sooner <= 16 for sooner, later in pairwise(asked))
    assert len(sure.questions) > len(unsure.questions)


def test_it_is_not_asked_without_a_sign() -> None:
    """However long the run is: other calls with other answers."""
    bench = Bench()
    Judged(bench, settings()).steps(healthy(), 120)
    assert bench.questions == []


def test_signs_that_pass_are_no_reason_to_ask() -> None:
    """Nine steps with signs, and then none."""
    bench = Bench()
    judged = Judged(bench, settings())
    judged.steps(healthy(), 30)
    judged.steps(failing(), 14)
    judged.steps(healthy(), 40)
    assert bench.questions == []


def test_two_confident_opinions_are_a_detection() -> None:
    """One is not; each further one confirms, up to `ask`."""
    judged = Judged(Bench(0.95), settings())
    judged.steps(failing(), 36)
    assert judged.decisions == []
    actions = judged.steps(failing(), 60)
    assert actions[:3] == ["hint", "steer", "ask"]
    assert set(actions) == {"hint", "steer", "ask"}
    first = judged.decisions[0]
    assert (first.detector, first.reason, first.count) == ("judge", "judged_stuck", 2)
    assert "2 times in a row" in first.message


def test_doubt_in_between_starts_again() -> None:
    """Confident, in doubt, confident, in doubt: nothing follows."""
    answers = iter([0.95, 0.3] * 50)
    judged = Judged(Bench(lambda _: next(answers)), settings())
    assert judged.steps(failing(), 200) == []


@pytest.mark.parametrize("answer", [0.89, 0, None, False, Opinion(0.5)], ids=repr)
def test_an_opinion_that_is_not_sure_does_nothing(answer: object) -> None:
    """Below 0.9, or no opinion at all."""
    bench = Bench(answer)
    assert Judged(bench, settings()).steps(failing(), 120) == []
    assert len(bench.questions) > 3


def test_the_strongest_action_is_a_setting() -> None:
    """`tuning.judge.max_action`; and `max_action` still bounds everything."""
    hints = Judged(Bench(1), settings(tuning={"judge": {"max_action": "hint"}}))
    assert hints.steps(failing(), 120) == ["hint"]
    pauses = Judged(Bench(1), settings(tuning={"judge": {"max_action": "pause"}}))
    assert "pause" in pauses.steps(failing(), 120)


def test_a_user_who_speaks_starts_anew() -> None:
    """What was seen and said before belongs to the turn before."""
    judged = Judged(Bench(0.95), settings())
    judged.steps(failing(), 32)
    judged.guard.observe(Step(Kind.OTHER, "user", text="try again"), "run")
    assert judged.steps(failing(), 9) == []


def test_what_it_is_asked() -> None:
    """The newest 20 steps in short, what was noticed, and the same as text for a model."""
    bench = Bench()
    judged = Judged(bench, settings())
    steps = list(islice(failing(), 40))
    big = call("tool9", {"text": "y" * 100_000}, error="x" * 100_000)
    judged.steps(iter([*steps[:28], big, *steps[28:]]), 32)
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


def test_talk_that_repeats_itself_is_a_weak_sign() -> None:
    """No tool is called at all."""
    bench = Bench()
    Judged(bench, settings()).steps(talking(), 32)
    assert "texts of the model were said before" in bench.questions[0].signs[0]


def test_what_was_not_captured_is_no_sign() -> None:
    """Calls without arguments or answers are not alike."""
    bench = Bench()
    steps = iter([call("search", None, None)] * 60)
    Judged(bench, settings()).steps(steps, 60)
    assert bench.questions == []


def test_an_exempt_tool_shows_no_sign() -> None:
    """What is never judged is not shown to the judge either."""
    bench = Bench()
    steps = iter([call("poll", {"q": 1}, "still the same old answer")] * 60)
    Judged(bench, settings(exempt_tools=["poll"])).steps(steps, 60)
    assert bench.questions == []


def test_a_judge_that_throws_is_counted_and_off_for_that_session() -> None:
    """Other sessions go on asking."""
    raise_faults(False)
    bench = Bench(RuntimeError("no quota"))
    judged = Judged(bench, settings())
    judged.steps(failing(), 90)
    assert len(bench.questions) == 1
    assert judged.guard.faults.counts["judge:RuntimeError"] == 1
    bench.answer = 0.95
    assert "hint" in judged.steps(failing(), 60, "other")


@pytest.mark.parametrize("answer", ["stuck", 7, float("nan"), -1, [0.9]], ids=repr)
def test_an_answer_of_no_use_is_a_fault(answer: object) -> None:
    """It says what was expected, once; the session is not judged any more."""
    raise_faults(False)
    bench = Bench(answer)
    judged = Judged(bench, settings())
    assert judged.steps(failing(), 60) == []
    assert len(bench.questions) == 1
    assert sum(judged.guard.faults.counts.values()) == 1


def test_it_may_be_async() -> None:
    """A coroutine is run on the judge's thread."""

    async def judge(question: Question) -> float:
        return 0.95

    judged = Judged(judge, settings())
    assert judged.steps(failing(), 60)[:1] == ["hint"]


def test_an_async_judge_is_cancelled_at_its_limit() -> None:
    """And counted as a failure."""
    import asyncio

    raise_faults(False)
    cancelled = threading.Event()

    async def judge(question: Question) -> float:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return 1.0

    judged = Judged(judge, settings(tuning={"judge": {"timeout_s": 0.05}}))
    judged.steps(failing(), 45)
    assert cancelled.wait(60)
    assert sum(judged.guard.faults.counts.values()) == 1
    assert judged.decisions == []


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

    judged = Judged(judge, settings(tuning={"judge": {"timeout_s": 0.02}}), patience_s=0)
    for number in range(6):
        steps = failing()
        for _ in range(60):
            judged.guard.observe(next(steps), f"s{number}")
            assert not answered
            if not judged.settled() and len(asked) < 4:
                time.sleep(0.005)
    assert len(asked) == 3
    assert judged.guard.faults.counts["judge:TimeoutError"] == 3
    assert judged.decisions == []
    release.set()


def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one question is with the judge, so many wait; the rest are not asked."""
    release = threading.Event()
    bench = Bench(lambda _: release.wait(60) and 0.5)
    monkeypatch.setattr("otel_loopguard.detectors.llm_judge._WAITING", 2)
    judged = Judged(bench, settings(), patience_s=0)
    for number in range(8):
        judged.steps(failing(), 31, f"s{number}")
        if number == 0:
            wait_until(lambda: judged.worker._current is not None)
    assert len(judged.worker._worker) == 2
    release.set()
    assert wait_until(judged.settled)
    assert len(bench.questions) == 3


def test_it_never_runs_on_the_agents_thread() -> None:
    """One daemon thread, and none without a judge."""
    bench = Bench()
    Judged(bench, settings()).steps(failing(), 60)
    assert bench.threads == {"loopguard-judge"}


def test_its_own_spans_are_suppressed() -> None:
    """Instrumentations honour the key of the OpenTelemetry context."""
    from opentelemetry import context

    seen: list[object] = []
    bench = Bench(lambda _: seen.append(context.get_value("suppress_instrumentation")) or 0.5)
    Judged(bench, settings()).steps(failing(), 40)
    assert seen[0] is True


def test_the_setting_names_a_judge_for_live_guards_only() -> None:
    """What was recorded may not be meant for a model."""
    named = Settings(judge="tests.detectors.test_llm_judge:certain")
    live, replay = LoopGuard(named), LoopGuard(named, clock="replay")
    assert "judge" in [entry.name for entry in live._registry.entries]
    assert "judge" not in [entry.name for entry in replay._registry.entries]


def certain(question: Question) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("no.such.module:judge", "cannot be imported"),
        ("tests.detectors.test_llm_judge:nobody", "cannot be imported"),
        ("tests.detectors.test_llm_judge:NO_JUDGE", "expected a callable"),
    ],
)
def test_a_judge_that_is_not_there_fails_at_once(place: str, said: str) -> None:
    """With the setting, its variable and its value."""
    with pytest.raises(LoopGuardSettingsError, match=f"LOOPGUARD_JUDGE.*{said}"):
        LoopGuard(Settings(judge=place))


def test_it_can_be_switched_off() -> None:
    """Like any detector, whether there is one or not."""
    bench = Bench()
    Judged(bench, settings()).steps(failing(), 40)
    off = LoopGuard(Settings(switched_off={"judge"}), clock="replay", judge=bench)
    assert "judge" not in [entry.name for entry in off._registry.entries]
    assert LoopGuard(Settings(switched_off={"judge"}), clock="replay")


@pytest.mark.parametrize("confidence", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_confidence_is_between_zero_and_one(confidence: float) -> None:
    """The message has the value."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        Opinion(confidence)
