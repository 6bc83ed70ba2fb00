"""What a runtime asks before a call, and what it says of the answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.admission import Choice
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.core.task import Task
from otel_loopguard.execution.resources import Reading
from tests.agents import Ended, agent, provider_with, tool_call

ROOT = Path(__file__).parents[2]
ANSWER = "light rain in the west, twenty degrees, and a little wind"
NOTHING = "No results found."
SECOND = 1_000_000_000
UNMEASURED: dict[str, Any] = {"resources": {"sample_s": 0}}
HOURS_AGO = time.time_ns() - 3 * 3600 * SECOND


@pytest.fixture
def guard() -> Iterator[LoopGuard]:
    """A guard of its own, that measures nothing by itself."""
    gc.collect()
    yield LoopGuard(Settings(tuning=UNMEASURED))
    gc.collect()


def past(guard: LoopGuard, tool: str, seconds: float, times: int = 20) -> None:
    """Calls of a tool that all took as long."""
    for number in range(times):
        start = HOURS_AGO + number * 100 * SECOND
        step = Step(
            Kind.TOOL, tool, args={"q": f"city {number}"}, outcome=f"{ANSWER} {number}",
            start=start, end=start + round(seconds * SECOND),
        )  # fmt: skip
        guard.observe(step, "past")


def loop(guard: LoopGuard, times: int, args: object = None, key: str = "run") -> None:
    """Calls that are all the same."""
    for _ in range(times):
        guard.observe(Step(Kind.TOOL, "search", args=args or {"q": "x"}, outcome=NOTHING), key)


def test_without_a_guard_a_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may ask whether or not a guard is installed."""
    monkeypatch.setattr("otel_loopguard._control.context._guards", ())
    before = execution.admit("search", {"q": "x"})
    assert (before.choice, before.confidence, before.id) == (Choice.EXECUTE_SYNC, 0, "")
    assert execution.prefer("ada", prompt_threshold_s=3) is None
    assert not sessions.feedback("0" * 16, choice="defer")


@pytest.mark.parametrize(
    ("seconds", "choice"),
    [
        (1, Choice.EXECUTE_SYNC),
        (25, Choice.PROMPT_USER),
        (90, Choice.AUTO_BACKGROUND),
    ],
    ids=["short", "longer", "long"],
)
def test_the_past_of_a_tool_decides(guard: LoopGuard, seconds: float, choice: Choice) -> None:
    """By the estimate from its own calls, with everything it was made of."""
    past(guard, "crawl", seconds)
    found = execution.admit("crawl", {"q": "city 3"})
    assert found.choice is choice
    assert found.estimate_ms == pytest.approx(seconds * 1e3, rel=0.2)
    assert found.factors.records == 20
    assert found.factors.estimates == {"crawl": "profile"}
    assert found.factors.total_ms == pytest.approx(found.estimate_ms + 2175)
    assert found.source is Source.EXECUTION_CHOICE
    assert found.follow_ups
    assert len(found.id) == 16


def test_a_batch_is_answered_as_one(guard: LoopGuard) -> None:
    """Names, pairs, maps and tasks may be mixed."""
    calls = ["file_read", ("file_write", {"p": 1}), {"tool": "api_call"}, Task("x", "file_read")]
    found = execution.admit_batch(calls)
    assert found.factors.tools == ("api_call", "file_read", "file_write")
    assert found.factors.tasks == 4
    assert found.estimate_ms == 500 + 1000 + 4000 + 500
    assert found.factors.switching_ms == 8000
    assert found.choice is Choice.EXECUTE_SYNC
    assert execution.admit_batch([*calls, "file_read"]).choice is Choice.PROMPT_USER


def test_a_batch_runs_in_parallel_where_it_may() -> None:
    """No call needs another, the tools are declared safe, and the user prefers it."""
    kept = LoopGuard(Settings(tuning=UNMEASURED, read_tools="file_process"))
    calls = [("file_process", {"p": number}) for number in range(3)]
    found = execution.admit_batch(calls)
    assert found.factors.parallel
    assert (found.estimate_ms, found.factors.switching_ms) == (5000, 1500)
    assert not execution.admit_batch([*calls, "file_write"]).factors.parallel
    linked = [{"id": "a", "tool": "file_process"}, {"tool": "file_process", "depends_on": ["a"]}]
    assert not execution.admit_batch(linked).factors.parallel
    assert execution.admit_batch(linked, parallel=True).factors.parallel
    execution.prefer(parallel_execution_preferred=False)
    assert not execution.admit_batch(calls).factors.parallel
    assert kept.settings.read_tools == {"file_process"}


CIRCLE = [
    {"id": "a", "tool": "t", "depends_on": ["b"]},
    {"id": "b", "tool": "t", "depends_on": ["a", "nowhere"]},
]


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([], "at least one"),
        ([""], "name of a tool.*''"),
        ([("search",)], "a pair"),
        ([("search", 1, 2)], "a pair"),
        ([{"args": 1}], "name of a tool.*None"),
        ([3], "got 3"),
        (CIRCLE, r"(?s)nowhere.*a -> b -> a|a -> b -> a.*nowhere"),
    ],
    ids=["none", "no name", "half a pair", "three", "no tool", "number", "no plan"],
)
def test_a_batch_that_cannot_be_read(guard: LoopGuard, calls: list[object], told: str) -> None:
    """The error has the value; it is raised in the caller's own call."""
    with pytest.raises(ValueError, match=told):
        execution.admit_batch(calls)


def test_a_denied_call_is_refused_and_others_are_not(guard: LoopGuard) -> None:
    """A loop goes before the choice, with the certainty and the follow-ups of its decision.

    A remembered answer does not speak against it, a false alarm is one of its decision, and an
    aborted session makes no call.
    """
    given = execution.admit("search", {"q": "x"}, user="ada", session="run")
    sessions.feedback(given.id, choice="execute_sync")
    loop(guard, 4)
    asked = execution.admit("search", {"q": "x"}, user="ada", session="run")
    assert asked.choice is Choice.DENY
    assert guard.flag_of("run").control.action == "deny"  # type: ignore[union-attr]
    found = execution.admit("search", {"q": "x"}, session="run")
    assert (found.choice, found.confidence) == (Choice.DENY, 0.95)
    assert (found.source, found.session) == (Source.TOOL_LOOP, "run")
    assert found.decision is not None
    assert found.reason == found.decision.message
    assert found.follow_ups == found.decision.follow_ups
    assert execution.admit("search", {"q": "y"}, session="run").choice is Choice.EXECUTE_SYNC
    assert execution.admit("search", session="run").choice is Choice.DENY
    assert execution.admit("read", session="run").choice is Choice.EXECUTE_SYNC
    assert execution.admit("search", {"q": "x"}, session="other").choice is Choice.EXECUTE_SYNC
    batch = execution.admit_batch(["read", ("search", {"q": "x"})], session="run")
    assert batch.choice is Choice.DENY
    assert sessions.feedback(found.id, false_alarm=True)
    report = sessions.report("run")
    assert report is not None
    assert report.false_alarms == 1
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
    assert execution.admit("search", {"q": "y"}, session="run").choice is Choice.DENY


def test_where_the_user_is_to_be_asked() -> None:
    """An `ask` about a loop is a question about its calls only."""
    guard = LoopGuard(Settings(tuning=UNMEASURED, ask_after=1, max_action="ask"))
    loop(guard, 5, key="asked")
    assert guard.flag_of("asked").control.action == "ask"  # type: ignore[union-attr]
    found = execution.admit("search", {"q": "x"}, session="asked")
    assert found.choice is Choice.PROMPT_USER
    assert FollowUp.WAIT_FOR_USER_INPUT in found.follow_ups
    assert execution.admit("search", {"q": "y"}, session="asked").choice is Choice.EXECUTE_SYNC


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
    guard.admissions.resources.add(Reading(1, cpu=99, queue=20))
    found = execution.admit("search", {"q": "x"})
    assert (found.choice, found.confidence, found.source) == (Choice.DEFER, 0.8, Source.RESOURCES)
    assert found.scale_workers
    assert found.follow_ups == (
        FollowUp.QUEUE_FOR_LATER, FollowUp.RETRY_WHEN_RESOURCES_AVAILABLE,
    )  # fmt: skip
    loop(guard, 4)
    found = execution.admit("search", {"q": "x"}, session="run")
    assert (found.choice, found.source) == (Choice.DENY, Source.TOOL_LOOP)
    assert execution.resource_use()["cpu"].peak == 99


def test_profiles_get_what_was_measured(guard: LoopGuard) -> None:
    """The newest reading goes with every finished call."""
    guard.admissions.resources.add(Reading(1, cpu=77, rss=600, io_wait=3))
    past(guard, "heavy", 1)
    found = guard.profiler.resources("heavy")
    assert found is not None
    assert found.cpu_intensive


def test_an_open_breaker_and_a_check_refuse(guard: LoopGuard) -> None:
    """As long as it is open, and asking begins no trial; a check says what to change."""
    for _ in range(3):
        resilience.breakers().ended("flaky", "tool", ConnectionError())
    resilience.checks().register("exists", resilience.file_exists(), tool="edit_here")
    broken = execution.admit("flaky", {"q": 1})
    resilience.breakers().reset("flaky")
    failing = execution.admit("edit_here", '{"path": "/no/such/file"}')
    for found, objection, said in (
        (broken, "breaker_open", "'flaky' is open after 3 failures"),
        (failing, "check_failed", "does not exist"),
    ):
        assert (found.choice, found.objection) == (Choice.DENY, objection)
        assert said in found.reason
    assert execution.admit("flaky", {"q": 1}).choice is Choice.EXECUTE_SYNC


def test_preferences_count(guard: LoopGuard) -> None:
    """Of the user who is named; others have their own."""
    execution.prefer("ada", prompt_threshold_s=1, notification_channels=("mail",))
    assert execution.admit("web_search", user="ada").choice is Choice.PROMPT_USER
    assert execution.admit("web_search", user="ada").channels == ("mail",)
    assert execution.admit("web_search", user="bob").choice is Choice.EXECUTE_SYNC
    found = execution.preferences("ada")
    assert found is not None
    assert found.prompt_threshold_s == 1
    with pytest.raises(ValueError, match="colour = 'red'"):
        execution.prefer("ada", colour="red")


def test_answers_are_counted_and_remembered(guard: LoopGuard) -> None:
    """Overrides, accepted backgrounds, and a vote the next time."""
    loop(guard, 1)
    first = execution.admit("video_process", user="ada", session="run")
    second = execution.admit("video_process", user="ada", session="run")
    asked = execution.admit("data_analysis", user="ada", session="run")
    assert (first.choice, asked.choice) == (Choice.AUTO_BACKGROUND, Choice.PROMPT_USER)
    assert sessions.feedback(first.id, choice="execute_sync")
    assert sessions.feedback(second.id, choice=Choice.AUTO_BACKGROUND)
    assert sessions.feedback(asked.id, choice="defer")
    report = sessions.report("run")
    assert report is not None
    found = report.execution
    assert found == execution.acceptance() == execution.acceptance("run")
    assert found is not None
    assert found.choices == {"auto_background": 2, "prompt_user": 1}
    assert (found.answered, found.overridden) == (3, 1)
    assert found.override_rate == pytest.approx(1 / 3)
    assert found.background_acceptance_rate == 0.5
    assert execution.admit("data_analysis", user="ada").factors.remembered is Choice.DEFER
    assert execution.admit("data_analysis", user="bob").factors.remembered is None


def test_overrides_count(guard: LoopGuard) -> None:
    """One decides where nothing was agreed to before, three after that; of others nothing.

    To agree again and again changes nothing.
    """
    for _ in range(16):
        given = execution.admit("video_process", user="bob")
        assert given.choice is Choice.AUTO_BACKGROUND
        sessions.feedback(given.id, choice=given.choice)
    for taken in ("execute_sync", "defer"):
        for _ in range(3):
            given = execution.admit("video_process", user="ada")
            sessions.feedback(given.id, choice=taken)
        assert execution.admit("video_process", user="ada").choice is Choice(taken)
    assert execution.admit("video_process", user="bob").choice is Choice.AUTO_BACKGROUND


def test_who_speaks_last_is_right(guard: LoopGuard) -> None:
    """An answer may change, and is counted once."""
    given = execution.admit("video_process")
    for _ in range(2):
        assert sessions.feedback(given.id, choice="execute_sync")
    assert sessions.feedback(given.id, choice="auto_background")
    found = execution.acceptance()
    assert found is not None
    assert (found.answered, found.overridden, found.background_acceptance_rate) == (1, 0, 1)
    with pytest.raises(ValueError, match="'perhaps'"):
        sessions.feedback(given.id, choice="perhaps")
    with pytest.raises(ValueError, match="must say"):
        sessions.feedback(given.id)
    assert not sessions.feedback("0" * 16, choice="defer")


def test_every_answer_is_one_structured_record(
    guard: LoopGuard, caplog: pytest.LogCaptureFixture
) -> None:
    """Session, decision, confidence, estimate, loop or not, alerts, number of tools."""
    loop(guard, 1)
    guard.admissions.resources.add(Reading(1, cpu=85))
    with caplog.at_level(logging.DEBUG, "otel_loopguard"):
        given = execution.admit_batch(["file_read", "web_search"], session="run")
        loop(guard, 3)
    assert caplog.records[0].levelno == logging.DEBUG
    assert (
        caplog.records[0]
        .getMessage()
        .startswith("otel-loopguard: execute_sync file_read, web_search in session run: ")
    )
    told, decided = caplog.records[0].__dict__, caplog.records[1].__dict__
    assert told["loopguard.session.id"] == "run"
    assert told["loopguard.decision.id"] == given.id
    assert told["loopguard.execution.confidence"] == given.confidence
    assert told["loopguard.execution.estimate_ms"] == 3500
    assert told["loopguard.execution.loop"] is False
    assert told["loopguard.execution.alerts"] == ("cpu",)
    assert told["loopguard.execution.tools"] == 2
    assert decided["loopguard.decision.action"] == "hint"
    assert decided["loopguard.execution.loop"] is True


def test_it_is_safe_on_an_event_loop_and_between_threads(guard: LoopGuard) -> None:
    """A thousand answers from tasks and threads at once: each its own id, all counted."""
    found: list[str] = []

    async def ask() -> None:
        found.append(execution.admit("web_search", {"q": "x"}).id)

    async def go() -> None:
        await asyncio.gather(*(ask() for _ in range(250)))

    several = [threading.Thread(target=lambda: asyncio.run(go())) for _ in range(4)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert len(set(found)) == 1000
    counted = execution.acceptance()
    assert counted is not None
    assert counted.choices == {"execute_sync": 1000}


def spans_of(guard: LoopGuard, times: int) -> Ended:
    ended = Ended()
    provider = provider_with(LoopGuardSpanProcessor(guard), ended)
    tracer = provider.get_tracer("my.agent")
    with agent(tracer):
        for number in range(times):
            tool_call(tracer, "web_search", f'{{"q": "{number}"}}', f"{ANSWER} {number}")
            guard.settle()
    return ended


def test_a_call_with_a_past_has_the_choice_on_its_span(guard: LoopGuard) -> None:
    """From the fifth call on, where it is not to run at once: a default alone says nothing."""
    execution.prefer(prompt_threshold_s=0.001)
    found = [dict(span.attributes or {}) for span in spans_of(guard, 6).named("execute_tool")]
    assert ["loopguard.execution.choice" in one for one in found] == [False] * 4 + [True] * 2
    assert found[5]["loopguard.execution.choice"] == "prompt_user"
    assert found[5]["loopguard.execution.confidence"] == 0.8
    estimate = found[5]["loopguard.execution.estimate_ms"]
    assert isinstance(estimate, float)
    assert 0 <= estimate < 3000


def test_a_name_that_several_tools_share(guard: LoopGuard) -> None:
    """The span itself says then which tool it calls; to run a call at once is not worth a word."""
    past(guard, "slow", 90)
    past(guard, "fast", 1)
    ended = Ended()
    tracer = provider_with(LoopGuardSpanProcessor(guard), ended).get_tracer("my.agent")
    for turn in range(3):
        for tool in ("slow", "fast"):
            attributes = {
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
                "gen_ai.tool.call.arguments": f'{{"q": {turn}}}',
            }  # fmt: skip
            with tracer.start_as_current_span("tool", attributes=attributes):
                # As the timer does 20 ms later: only the span says which tool it calls.
                guard.settle()
            guard.settle()
    said = [(span.attributes or {}).get("loopguard.execution.choice") for span in ended.spans]
    assert said[2:] == ["auto_background", None] * 2
    # What a user declared of a tool is more than a default, once its spans are known.
    guard = LoopGuard(Settings(tuning=UNMEASURED, tools={"web_search": {"duration_ms": 60_000}}))
    found = spans_of(guard, 3).named("execute_tool")[-1].attributes or {}
    assert found["loopguard.execution.choice"] in ("auto_background", "prompt_user")


def test_a_long_tool_is_sent_to_the_background() -> None:
    """The agent goes on with the next call, and has its result at the end."""
    done = subprocess.run(
        [sys.executable, "examples/background_tool.py"],
        cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.partition(",")[0] for line in done.stdout.splitlines()]
    assert said == [
        "file_read: execute_sync",
        "file_read is done",
        "video_process: auto_background",
        "file_write: execute_sync",
        "file_write is done",
        "video_process is done",
    ]
