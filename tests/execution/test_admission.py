"""What a runtime asks before a call: the times that are added, the votes, and the answer."""

import asyncio
import gc
import json
import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    execution,
    resilience,
    session,
    sessions,
)
from otel_loopguard.core import Choice, Kind, Step
from otel_loopguard.core.admission import UNKNOWN_PRESSURE, Alert, Factors, ResourcePressure
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.core.task import Task
from otel_loopguard.execution.admission import FOLLOW_UPS, Answer, advise
from otel_loopguard.execution.resources import Reading
from otel_loopguard.execution.users import Preferences, default_preferences
from tests.agents import agent, provider_with, tool_call
from tests.execution.past import call
from tests.tables import rows

ROOT = Path(__file__).parents[2]
NOTHING = "No results found."
UNMEASURED: dict[str, Any] = {"resources": {"sample_s": 0}}
X = {"q": "x"}


def made(**settings: Any) -> LoopGuard:
    """A guard of its own, that measures nothing by itself."""
    gc.collect()
    return LoopGuard(Settings(tuning=UNMEASURED, **settings))


@pytest.fixture
def guard() -> LoopGuard:
    return made()


def past(guard: LoopGuard, tool: str, seconds: float) -> None:
    """Twenty calls of a tool that all took as long."""
    for number in range(20):
        guard.observe(call(number, seconds * 1e3, {"q": f"city {number}"}, tool=tool), "past")


def loop(guard: LoopGuard, times: int, key: str = "run") -> None:
    """Calls that are all the same."""
    for _ in range(times):
        guard.observe(Step(Kind.TOOL, "search", args=X, outcome=NOTHING), key)


def choice(tool: str, args: object = None, **given: Any) -> str:
    """What is chosen for a call."""
    return execution.admit(tool, args, **given).choice.value


def test_without_a_guard_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may ask whether or not a guard is installed."""
    monkeypatch.setattr("otel_loopguard._control.context._guards", ())
    before = execution.admit("search", X)
    assert (before.choice, before.confidence, before.id) == (Choice.EXECUTE_SYNC, 0, "")
    assert execution.prefer("ada", prompt_threshold_s=3) is None
    assert resilience.problems("search", X) == ()
    assert not sessions.feedback("0" * 16, choice="defer")


@pytest.mark.parametrize(
    ("seconds", "expected"), [(1, "execute_sync"), (25, "prompt_user"), (90, "auto_background")]
)
def test_the_past_of_a_tool_decides(guard: LoopGuard, seconds: float, expected: str) -> None:
    """By the estimate from its own calls, with everything it was made of."""
    past(guard, "crawl", seconds)
    found = execution.admit("crawl", {"q": "city 3"})
    assert (found.choice.value, found.source) == (expected, Source.EXECUTION_CHOICE)
    assert found.estimate_ms == pytest.approx(seconds * 1e3, rel=0.2)
    assert (found.factors.records, found.factors.estimates) == (20, {"crawl": "profile"})
    assert found.factors.total_ms == pytest.approx(found.estimate_ms + 2175)
    assert found.follow_ups
    assert len(found.id) == 16


def test_a_batch_is_answered_as_one(guard: LoopGuard) -> None:
    """Names, pairs, maps and tasks may be mixed."""
    calls = ["file_read", ("file_write", {"p": 1}), {"tool": "api_call"}, Task("x", "file_read")]
    found = execution.admit_batch(calls)
    assert found.factors.tools == ("api_call", "file_read", "file_write")
    assert (found.factors.tasks, found.factors.switching_ms) == (4, 8000)
    assert found.estimate_ms == 500 + 1000 + 4000 + 500
    assert found.choice is Choice.EXECUTE_SYNC
    assert execution.admit_batch([*calls, "file_read"]).choice is Choice.PROMPT_USER


def test_a_batch_runs_in_parallel_where_it_may() -> None:
    """No call needs another, the tools are declared safe, and the user prefers it."""
    kept = made(read_tools="file_process")
    calls = [("file_process", {"p": number}) for number in range(3)]
    found = execution.admit_batch(calls)
    assert found.factors.parallel
    assert (found.estimate_ms, found.factors.switching_ms) == (5000, 1500)
    linked = [{"id": "a", "tool": "file_process"}, {"tool": "file_process", "depends_on": ["a"]}]
    assert not execution.admit_batch(linked).factors.parallel
    assert execution.admit_batch(linked, parallel=True).factors.parallel
    kept.admissions.users.prefer("", {"parallel_execution_preferred": False})
    assert not execution.admit_batch(calls).factors.parallel


def test_a_denied_call_is_refused_and_others_are_not(guard: LoopGuard) -> None:
    """A loop goes before the choice and what is remembered; an aborted session makes no call."""
    given = execution.admit("search", X, user="ada", session="run")
    sessions.feedback(given.id, choice="execute_sync")
    loop(guard, 4)
    assert choice("search", X, user="ada", session="run") == "deny"
    found = execution.admit("search", X, session="run")
    assert found.decision is not None
    assert (found.choice, found.confidence, found.source) == (Choice.DENY, 0.95, Source.TOOL_LOOP)
    assert (found.reason, found.session) == (found.decision.message, "run")
    assert found.follow_ups == found.decision.follow_ups
    assert choice("search", {"q": "y"}, session="run") == "execute_sync"
    assert choice("search", session="run") == "deny"
    assert choice("read", session="run") == "execute_sync"
    assert choice("search", X, session="other") == "execute_sync"
    batch = execution.admit_batch(["read", ("search", X)], session="run")
    assert batch.choice is Choice.DENY
    assert sessions.feedback(found.id, false_alarm=True)
    assert sessions.report("run").false_alarms == 1  # type: ignore[union-attr]
    loop(guard, 3)
    found = execution.admit("read", {"path": "a"}, session="run")
    assert found.choice is Choice.DENY
    assert FollowUp.ABORT_EXECUTION in found.follow_ups


def test_what_a_person_set_is_heard_first(guard: LoopGuard) -> None:
    """A paused session waits, and the answer says what a runtime does about it."""
    loop(guard, 1)
    control.pause("run", "looking into it")
    found = execution.admit("search", {"q": "y"}, session="run")
    assert (found.choice, found.confidence, found.reason) == (Choice.DEFER, 1, "looking into it")
    assert FollowUp.PAUSE_EXECUTION in found.follow_ups
    control.abort("run")
    assert choice("search", {"q": "y"}, session="run") == "deny"


def test_where_the_user_is_to_be_asked() -> None:
    """An `ask` about a loop is a question about its calls only."""
    guard = made(ask_after=1, max_action="ask")
    loop(guard, 5, key="asked")
    found = execution.admit("search", X, session="asked")
    assert found.choice is Choice.PROMPT_USER
    assert FollowUp.WAIT_FOR_USER_INPUT in found.follow_ups
    assert choice("search", {"q": "y"}, session="asked") == "execute_sync"


def test_the_session_and_the_agent_come_from_the_context(guard: LoopGuard) -> None:
    """The call is looked up under the agent whose span is current, as its spans are."""
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with agent(tracer):
        for _ in range(6):
            tool_call(tracer, result=NOTHING)
        found = execution.admit("search", '{"q": "x"}')
        assert found.choice is Choice.DENY
        assert found.session == control.current().session
    with session("named"):
        assert execution.admit("search").session is None  # no guard knows it yet


def test_resources_go_before_the_choice_and_loops_before_resources(guard: LoopGuard) -> None:
    """The order of sources, and more workers are advised where two resources are short."""
    guard.admissions.resources.add(Reading(cpu=99, queue=20))
    found = execution.admit("search", X)
    assert (found.choice, found.confidence, found.source) == (Choice.DEFER, 0.8, Source.RESOURCES)
    assert found.reason == "the machine is short of resources: cpu 99 %, queue 20"
    assert found.scale_workers
    assert FollowUp.RETRY_WHEN_RESOURCES_AVAILABLE in found.follow_ups
    loop(guard, 4)
    found = execution.admit("search", X, session="run")
    assert (found.choice, found.source) == (Choice.DENY, Source.TOOL_LOOP)
    assert execution.resource_use()["cpu"].peak == 99


def test_profiles_get_what_was_measured(guard: LoopGuard) -> None:
    """The newest reading goes with every finished call."""
    guard.admissions.resources.add(Reading(cpu=77, rss=600, io_wait=3))
    past(guard, "heavy", 1)
    assert guard.profiler.resources("heavy").cpu_intensive  # type: ignore[union-attr]


def test_an_open_breaker_and_a_check_refuse(guard: LoopGuard) -> None:
    """As long as it is open, and asking begins no trial; a check says what to change."""
    for _ in range(3):
        resilience.breakers().ended("flaky", "tool", ConnectionError())
    resilience.checks().register("exists", resilience.file_exists(), tool="edit_here")
    for tool, objection, said in (
        ("flaky", "breaker_open", "'flaky' is open after 3 failures"),
        ("edit_here", "check_failed", "does not exist"),
    ):
        found = execution.admit(tool, '{"path": "/no/such/file"}')
        assert (found.choice, found.objection) == (Choice.DENY, objection)
        assert said in found.reason
    resilience.breakers().reset("flaky")
    assert choice("flaky", {"q": 1}) == "execute_sync"


def test_preferences_count(guard: LoopGuard) -> None:
    """Of the user who is named; others have their own."""
    execution.prefer("ada", prompt_threshold_s=1, notification_channels=("mail",))
    found = execution.admit("web_search", user="ada")
    assert (found.choice, found.channels) == (Choice.PROMPT_USER, ("mail",))
    assert choice("web_search", user="bob") == "execute_sync"
    assert dict(execution.preferences("ada") or {})["prompt_threshold_s"] == 1


def test_answers_are_counted_and_remembered(guard: LoopGuard) -> None:
    """Overrides, accepted backgrounds, and a vote the next time."""
    loop(guard, 1)
    tools = ("video_process", "video_process", "data_analysis")
    given = [execution.admit(tool, user="ada", session="run") for tool in tools]
    for one, taken in zip(given, ("execute_sync", "auto_background", "defer"), strict=True):
        assert sessions.feedback(one.id, choice=taken)
    found = sessions.report("run").execution  # type: ignore[union-attr]
    assert found == execution.acceptance()
    assert found is not None
    assert found.choices == {"auto_background": 2, "prompt_user": 1}
    assert (found.answered, found.overridden, found.background_acceptance_rate) == (3, 1, 0.5)
    assert found.override_rate == pytest.approx(1 / 3)
    assert execution.admit("data_analysis", user="ada").factors.remembered is Choice.DEFER
    assert execution.admit("data_analysis", user="bob").factors.remembered is None


def test_overrides_count(guard: LoopGuard) -> None:
    """One decides where nothing was agreed to, three after that; to agree again changes nothing."""

    def answer(user: str, taken: str) -> str:
        given = execution.admit("video_process", user=user)
        sessions.feedback(given.id, choice=taken)
        return given.choice.value

    assert {answer("bob", "auto_background") for _ in range(16)} == {"auto_background"}
    for taken in ("execute_sync", "defer"):
        for _ in range(3):
            answer("ada", taken)
        assert choice("video_process", user="ada") == taken
    assert choice("video_process", user="bob") == "auto_background"


def test_who_speaks_last_is_right(guard: LoopGuard) -> None:
    """An answer may change, and is counted once."""
    given = execution.admit("video_process")
    for taken in ("execute_sync", "execute_sync", "auto_background"):
        assert sessions.feedback(given.id, choice=taken)
    found: Any = execution.acceptance()
    assert (found.answered, found.overridden, found.background_acceptance_rate) == (1, 0, 1)
    for wrong, told in (({"choice": "x"}, "one of execute_sync, .*'x'"), ({}, "must say")):
        with pytest.raises(ValueError, match=told):
            sessions.feedback(given.id, **wrong)
    assert not sessions.feedback("0" * 16, choice="defer")


def test_every_answer_is_one_structured_record(
    guard: LoopGuard, caplog: pytest.LogCaptureFixture
) -> None:
    """Session, decision, confidence, estimate, loop or not, alerts, number of tools."""
    loop(guard, 1)
    guard.admissions.resources.add(Reading(cpu=85))
    with caplog.at_level(logging.DEBUG, "otel_loopguard"):
        given = execution.admit_batch(["file_read", "web_search"], session="run")
        loop(guard, 3)
    said = "otel-loopguard: execute_sync file_read, web_search in session run: "
    assert caplog.records[0].levelno == logging.DEBUG
    assert caplog.messages[0].startswith(said)
    told, decided = caplog.records[0].__dict__, caplog.records[1].__dict__
    expected = {
        "session.id": "run", "decision.id": given.id, "execution.confidence": given.confidence,
        "execution.estimate_ms": 3500, "execution.loop": False, "execution.alerts": ("cpu",),
        "execution.tools": 2,
    }  # fmt: skip
    assert {name: told[f"loopguard.{name}"] for name in expected} == expected
    assert decided["loopguard.decision.action"] == "hint"
    assert decided["loopguard.execution.loop"] is True


def test_it_is_safe_on_an_event_loop_and_between_threads(guard: LoopGuard) -> None:
    """A thousand answers from tasks and threads at once: each its own id, all counted."""

    async def ask() -> str:
        return execution.admit("web_search", X).id

    async def several() -> list[str]:
        return await asyncio.gather(*(ask() for _ in range(250)))

    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: asyncio.run(several()), range(4))
        assert len({one for some in found for one in some}) == 1000
    counted = execution.acceptance()
    assert counted is not None
    assert counted.choices == {"execute_sync": 1000}


def test_a_long_tool_is_sent_to_the_background() -> None:
    """The agent goes on with the next call, and has its result at the end, on an idle machine."""
    done = subprocess.run(
        [sys.executable, "examples/background_tool.py"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT), "LOOPGUARD_TUNING__RESOURCES__SAMPLE_S": "0"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "; ".join(line.partition(",")[0] for line in done.stdout.splitlines()) == (
        "file_read: execute_sync; file_read is done; video_process: auto_background; "
        "file_write: execute_sync; file_write is done; video_process is done"
    )


SYNC, PROMPT = Choice.EXECUTE_SYNC, Choice.PROMPT_USER
BACKGROUND, DEFER = Choice.AUTO_BACKGROUND, Choice.DEFER
BUSY = ResourcePressure(load=0.9)
SHORT = ResourcePressure(1.0, None, (Alert("cpu", 99, 80, critical=True),))
PRESSURES = {"": UNKNOWN_PRESSURE, "busy": BUSY, "short": SHORT}
PLAIN = Preferences()


def work(
    seconds: float = 1, tasks: int = 1, parallel: bool = False, complexity: float = 0
) -> Factors:
    return Factors(tasks, ("t",), parallel, seconds * 1e3, complexity, 10, {"t": "profile"})


def choose(
    what: Factors,
    pressure: ResourcePressure = UNKNOWN_PRESSURE,
    remembered: Choice | None = None,
    wishes: Preferences = PLAIN,
) -> Answer:
    return advise(what, wishes, pressure, remembered)[0]


@pytest.mark.parametrize(("what", "added"), rows(__file__, "total"))
def test_the_total(what: str, added: str) -> None:
    """Tools, changing between tasks, a checkpoint for every five, five seconds of complexity."""
    _, factors = advise(work(**json.loads(what)), PLAIN, UNKNOWN_PRESSURE)
    found = (factors.switching_ms, factors.checkpoints_ms, factors.complexity_ms)
    wanted = [float(value) * 1e3 for value in added.split()]
    assert found == pytest.approx(wanted)
    assert factors.total_ms == pytest.approx(factors.tool_ms + sum(wanted))


@pytest.mark.parametrize(("what", "votes", "pressure"), rows(__file__, "votes"))
def test_votes(what: str, votes: str, pressure: str) -> None:
    """Past a threshold and not at it; 2 s are added to a call. One is always about the time."""
    busy = ResourcePressure(**json.loads(pressure or "{}"))
    _, factors = advise(work(**json.loads(what)), PLAIN, busy)
    time, *others = [f"{vote.rule} {vote.choice} {vote.confidence}" for vote in factors.votes]
    assert time.startswith("time_")
    assert votes in (others or [time, ""])
    assert len(others) <= 1


def test_nothing_goes_to_the_background_of_who_does_not_want_it() -> None:
    """Every vote for it becomes a question, whatever was answered before."""
    settings = Settings(tuning={"execution": {"background_s": 0}})
    for wishes in (default_preferences(settings), Preferences(auto_background_enabled=False)):
        chosen, factors = advise(work(60, 30), wishes, UNKNOWN_PRESSURE, BACKGROUND)
        assert {vote.choice for vote in factors.votes} == {PROMPT}
        assert (chosen.choice, chosen.confidence) == (PROMPT, 0.7)


def test_the_highest_mean_wins() -> None:
    """Votes for one option count as their mean, so that a weak one takes a strong one down."""
    chosen = choose(work(60, 11), BUSY)
    assert (chosen.choice, chosen.source) == (BACKGROUND, Source.EXECUTION_CHOICE)
    assert chosen.confidence == pytest.approx((0.85 + 0.75 + 0.75) / 3)
    assert "11 tasks in sequence" in chosen.reason
    assert "90% of the CPUs are busy" in chosen.reason


@pytest.mark.parametrize("remembered", [SYNC, PROMPT, BACKGROUND, DEFER], ids=str)
@pytest.mark.parametrize("what", [work(1), work(20), work(60), work(90, 30)], ids=repr)
def test_a_remembered_answer_decides(what: Factors, remembered: Choice) -> None:
    """However sure the other rules are of theirs."""
    chosen, factors = advise(what, PLAIN, UNKNOWN_PRESSURE, remembered)
    assert (chosen.choice, factors.remembered) == (remembered, remembered)
    assert f"the user answered {remembered} before" in chosen.reason


@pytest.mark.parametrize(
    ("seconds", "remembered", "expected", "sure", "pressure"), rows(__file__, "busy")
)
def test_what_is_busy_speaks_against_a_remembered_answer(
    seconds: str, remembered: str, expected: str, sure: str, pressure: str
) -> None:
    """Then all votes count; where it is for the same option nothing speaks against it."""
    chosen = choose(work(float(seconds)), PRESSURES[pressure], Choice(remembered))
    assert (chosen.choice, chosen.confidence) == (expected, pytest.approx(float(sure)))


def test_a_tie_goes_to_the_user_or_to_what_the_user_prefers() -> None:
    """Of equally sure options the user is asked, unless a default is preferred."""
    tied = work(60, 16, parallel=True)
    for preferred, choice in ((None, PROMPT), (BACKGROUND, BACKGROUND), (DEFER, PROMPT)):
        assert choose(tied, wishes=Preferences(default_choice=preferred)).choice is choice


def test_every_choice_has_follow_ups() -> None:
    """No answer leaves the runtime without a word on what to do next."""
    assert all(FOLLOW_UPS[choice] for choice in Choice)
    for notify in (True, False):
        chosen = choose(work(60), wishes=Preferences(notify_on_completion=notify))
        assert (FollowUp.NOTIFY_ON_COMPLETION in chosen.follow_ups) is notify
