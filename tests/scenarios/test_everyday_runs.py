"""Runs written down as data: honest work is let through, and who is stuck is noticed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.runs import Row, Scenario
from lab.scenarios import load, play
from lab.stable import CHANGES, flips
from otel_loopguard import LoopGuardSpanProcessor, set_testing, turn
from otel_loopguard.integrations.own_loop import Refusal
from tests.agents import provider_with

RUNS = [
    run
    for path in sorted((Path(__file__).parents[2] / "scenarios").glob("*.jsonl.gz"))
    for run in load(path)
]
LATE = {
    "paraphrased search, same three links in another order": "noticed at 19 and not by 12",
    "think tool over and over, other words": "never noticed",
    "waits for what never comes: sleep tool 30 s and check, 5 h": "never stopped",
}
"""What is wanted of a run and not so yet. What is mended leaves this list."""
OFTEN = {
    "blocked-path",
    "breaker: five sessions, each gets one 429 at the same time and then works",
    "grep: 12 patterns, nine without a match, then found",
    "poll-every-5-min",
    "rows-without-arguments",
    "server start: 'curl localhost:8000/health' refused 12 times, 2 s apart, then 200",
}
"""Few runs, for which all changes are tried each time; for the others they are a rare test."""


def named(run: Scenario) -> str:
    return run.id


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What is decided is seen by the test, and need not be printed for each run."""
    caplog.set_level(logging.CRITICAL, "otel_loopguard")


@pytest.mark.parametrize("run", [run for run in RUNS if not run.stuck], ids=named)
def test_honest_work_is_let_through(run: Scenario) -> None:
    """No call is refused, by whatever part, and nothing is denied, paused or aborted."""
    assert play(run).faults(run) == []


@pytest.mark.parametrize("run", [run for run in RUNS if run.stuck], ids=named)
def test_who_is_stuck_is_noticed_in_time(run: Scenario) -> None:
    """And stopped, where that is wanted."""
    assert ", ".join(play(run).faults(run)) == LATE.get(run.id, "")


@pytest.mark.parametrize(
    "run",
    [pytest.param(one, marks=() if one.id in OFTEN else pytest.mark.rare) for one in RUNS],
    ids=named,
)
def test_a_change_that_changes_nothing_changes_no_judgement(run: Scenario) -> None:
    """Honest work in words of no language, slower, by another convention; a loop that is slower."""
    tried, found = flips(run)
    assert tried or run.id in LATE
    assert found == []


def test_a_run_is_told_by_either_convention() -> None:
    """The same is decided at the same call."""
    run = next(one for one in RUNS if one.id == "rows-without-arguments")
    one, other = play(run), play(CHANGES["openinference"](run))
    assert [(at, said.action, said.reason) for at, said in one.decisions] == [
        (at, said.action, said.reason) for at, said in other.decisions
    ]
    assert one.refused == other.refused != []


def call(tool: str, args: Row, said: str, *, ok: bool = True, wait: float = 0) -> Row:
    """A call after a pause; what it answers, or fails with."""
    return {"tool": tool, "args": args, "result" if ok else "error": said, "wait": wait}


def backing_off() -> Iterator[Row]:
    """A limit of requests, six times with twice the pause, at five endpoints."""
    for place in range(5):
        args = {"url": f"https://api.example.com/{place}"}
        for attempt in range(6):
            yield call("fetch", args, "429 Too Many Requests", ok=False, wait=2**attempt)
        yield call("fetch", args, f"page {place}: {place * 7919}", wait=64)


def trying_at_once() -> Iterator[Row]:
    """Three failures in a second, then success, for thirty items."""
    for item in range(30):
        for _ in range(3):
            yield call("load", {"item": item}, "503 Service Unavailable", ok=False, wait=0.2)
        yield call("load", {"item": item}, f"row {item}: {item * 7919}", wait=0.2)


def sharing_a_limit() -> Iterator[Row]:
    """Five sessions are told to wait at once, and each tries again after three seconds."""
    for ok in (False, True):
        for user in range(5):
            args = {"query": f"what {user} asks"}
            said = f"answer {user * 7919}" if ok else "429 Too Many Requests"
            yield {**call("web_search", args, said, ok=ok, wait=3 * ok), "session": f"user {user}"}


def down_for_one() -> Iterator[Row]:
    """Three calls of one user fail; another user's first call would not."""
    for number in range(3):
        args = {"order": number}
        yield {**call("get_order", args, "connection reset", ok=False), "session": "ada"}
    yield {**call("get_order", {"order": 77}, "order 77: shipped"), "session": "bob"}


def shell() -> Iterator[Row]:
    """Three hosts are down, and ten files are read."""
    for line in ("curl https://a.example", "curl https://b.example", "pip install thing"):
        yield call("bash", {"command": line}, "Connection refused", ok=False)
    for number in range(10):
        yield call("bash", {"command": f"cat {number}.txt"}, f"file {number * 7919}")


def starting() -> Iterator[Row]:
    """A server that takes a while to start is asked twelve times."""
    args = {"command": "sleep 2 && curl localhost:8000/health"}
    for _ in range(12):
        yield {**call("bash", args, "curl: (7) Connection refused", ok=False), "seconds": 2.05}
    yield {**call("bash", args, "200 ok"), "seconds": 2.05}
    yield call("bash", {"command": "cat log.txt"}, "started")


def crawling() -> Iterator[Row]:
    """Three sites are dead, and ten are not."""
    for number in range(13):
        ok = number >= 3
        said = f"site {number * 7919}" if ok else "Connection timed out"
        yield call("crawl", {"url": f"https://site-{number}.example"}, said, ok=ok)


def clicking() -> Iterator[Row]:
    """Three selectors are not there in time, and ten are."""
    for number in range(13):
        ok = number >= 3
        said = f"page {number * 7919}" if ok else "TimeoutError: Timeout 30000ms exceeded."
        yield call("browser_click", {"selector": f"#b{number}"}, said, ok=ok)


def delegating() -> Iterator[Row]:
    """Three sub-agents take too long, and five do not."""
    for number in range(8):
        ok = number >= 3
        said = f"report {number * 7919}" if ok else "TimeoutError: the agent timed out"
        yield call("task", {"prompt": f"Summarise chapter {number}."}, said, ok=ok)


TROUBLED = [
    backing_off, trying_at_once, sharing_a_limit, down_for_one, shell, starting, crawling,
    clicking, delegating,
]  # fmt: skip


def written_out(steps: Iterator[Row]) -> Iterator[Row]:
    """The steps, with an agent's span for each session and a model call before each call."""
    begun: set[str] = set()
    for number, step in enumerate(steps):
        session = step.get("session", "all")
        if session not in begun:
            begun.add(session)
            yield {"begin": "assistant", "session": session}
        yield {"wait": step["wait"]}
        yield {"model": {"seconds": 1.5}, "session": session}
        yield {"id": f"call-{number}", "seconds": 0.05, **step, "session": session}


@pytest.mark.parametrize("steps", TROUBLED)
def test_trouble_that_passes_refuses_no_call(steps: Callable[[], Iterator[Row]]) -> None:
    """Asked by `control.refused`, with default settings."""
    run = Scenario(steps.__name__, tuple(written_out(steps())))
    assert play(run).refused == []


@pytest.mark.parametrize("steps", TROUBLED)
def test_trouble_that_passes_refuses_no_call_of_a_turn(
    steps: Callable[[], Iterator[Row]],
) -> None:
    """The same in a loop of one's own."""
    provider = provider_with(LoopGuardSpanProcessor())
    refused: list[Row] = []
    with set_testing(True) as clock:
        turns: dict[str, turn] = {}
        for row in steps():
            session = f"{steps.__name__} {row.get('session')}"
            now = turns.get(session)
            if now is None:
                now = turns[session] = turn(session, tracer_provider=provider).__enter__()

            def answer(row: Row = row, **_: object) -> str:
                clock.advance(row.get("seconds", 0.05))
                if "error" in row:
                    raise RuntimeError(row["error"])
                return row["result"]

            clock.advance(row["wait"] + 1.5)
            now.hint()
            try:
                if isinstance(now.tool(row["tool"], row["args"], answer), Refusal):
                    refused.append(row)
            except RuntimeError:
                pass
        for now in reversed(turns.values()):
            now.__exit__(None, None, None)
    provider.shutdown()
    assert refused == []
