"""Breakers: in one process, fed by spans, and shared by several processes."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from otel_loopguard import (
    LoopGuard,
    Settings,
    control,
    execution,
    resilience,
    session,
    set_testing,
)
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.errors import StoreError
from otel_loopguard.resilience.breaker import Breakers, BreakerState, BreakerStatus
from otel_loopguard.stores import Writer
from tests.stores.memory import MemoryStore
from tests.stores.servers import Server, need_redis, wait_for

if TYPE_CHECKING:
    from otel_loopguard.stores.redis import RedisStore

TRANSIENT, WRONG, UNKNOWN = ErrorClass.TRANSIENT, ErrorClass.DETERMINISTIC, ErrorClass.UNKNOWN
KINDS = {"f": TRANSIENT, "w": WRONG, "u": UNKNOWN}
ERRORS = {
    TRANSIENT: ConnectionError("reset"),
    WRONG: ValueError("invalid"),
    UNKNOWN: RuntimeError(),
}


class Clock:
    """Time that is told."""

    def __init__(self) -> None:
        self.now = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock() -> Clock:
    """A clock for all breakers of a test."""
    return Clock()


def writer(store: RedisStore) -> Writer:
    """What reads and writes a store in the background."""
    return Writer(store, Settings(), InternalErrors())


def fail(breakers: Breakers, times: int = 1, kind: ErrorClass = TRANSIENT) -> None:
    """Calls of `search` that fail."""
    for _ in range(times):
        breakers.ended("search", "tool", ERRORS[kind])


def succeed(breakers: Breakers) -> None:
    """A call of `search` that goes well."""
    breakers.ended("search", "tool", None)


SCRIPTS = {
    "three in a row open it, then one trial passes": ({}, "f f s f f y f n +299 n +1 y n n"),
    "a trial that goes well closes it": ({}, "f f f +300 y s y f f y"),
    "a trial that fails opens it for as long again": ({}, "f f f +300 y f +299 n +1 y"),
    "a trial whose caller died makes way": ({}, "f f f +300 y +59 n +1 y"),
    "a trial that is cancelled is given back": ({}, "f f f +300 c y"),
    "wrong arguments of one agent shut it for nobody": ({}, "w w w y"),
    "nor do errors of unknown kind": ({}, "u u u y"),
    "an error that is an answer starts the count anew": ({}, "f f w f y"),
    "one of unknown kind does not": ({}, "f f u f n"),
    "unclear": ({"tuning": {"resilience": {"breaker_errors": "unclear"}}}, "w w w y u u u n"),
    "all": ({"tuning": {"resilience": {"breaker_errors": "all"}}}, "w w w n"),
    "shadow": ({"mode": "shadow"}, "f f f f y"),
}
"""Calls of `search` that fail (w: wrongly called, u: nobody knows why), succeed or are cancelled,
seconds that pass, and whether a call is let through: y or n."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_three_failures_in_a_row_open_it_for_300_seconds(clock: Clock, name: str) -> None:
    """Then one trial passes, and no second one (E5)."""
    settings, script = SCRIPTS[name]
    breakers = Breakers(Settings(**settings), clock=clock)
    for step in script.split():
        if step in KINDS:
            fail(breakers, 1, KINDS[step])
        elif step == "s":
            succeed(breakers)
        elif step == "c":
            with pytest.raises(KeyboardInterrupt), breakers.guarding("search"):
                raise KeyboardInterrupt
        elif step in "yn":
            assert breakers.allow("search") is (step == "y")
        else:
            clock.pass_by(int(step))


def test_its_standing() -> None:
    """State, failures and until when; in shadow mode it is counted all the same."""
    clock = Clock()
    for mode in ("guard", "shadow"):
        breakers = Breakers(Settings(mode=mode), clock=clock)
        assert breakers.standing("search") == BreakerStatus()
        fail(breakers, 3)
        assert breakers.standing("search") == (BreakerState.OPEN, 3, clock.now + 300 * 10**9)


def test_tools_and_agents_have_breakers_of_their_own(clock: Clock) -> None:
    """A failing tool says nothing of the agent that called it."""
    breakers = Breakers(Settings(), clock=clock)
    fail(breakers, 3)
    for _ in range(3):
        breakers.ended("helper", "agent", ERRORS[TRANSIENT])
    assert not breakers.allow("search")
    assert not breakers.allow("helper", "agent")
    assert breakers.allow("helper")
    assert breakers.allow("agent", "agent")
    breakers.reset("search")
    assert breakers.allow("search")


def test_the_table_is_bounded() -> None:
    """The newest 1024 tools are kept."""
    breakers = Breakers(Settings())
    for number in range(3000):
        breakers.ended(f"tool {number}", "tool", ERRORS[TRANSIENT])
    assert len(breakers._breakers) == 1024


def test_one_trial_of_many_threads(clock: Clock) -> None:
    """However many ask at once."""
    breakers = Breakers(Settings(), clock=clock)
    fail(breakers, 3)
    clock.pass_by(300)
    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(lambda _: breakers.allow("search"), range(16))) == 1


def call(args: object, error: str | None = "503 Service Unavailable", tool: str = "bash") -> Step:
    """A finished call, as spans give it."""
    return Step(Kind.TOOL, tool, args=args, error=error is not None, error_text=error)


CURL = {"command": "curl -s https://ada:pw@Down.example/a | head"}


def failing(guard: LoopGuard, times: int, args: object = CURL, session: str = "run") -> None:
    """Calls of a session that fail."""
    for _ in range(times):
        guard.observe(call(args), session)


def said(session_key: str, tool: str = "bash", args: object = CURL) -> str | None:
    """What a session is told by a breaker in place of a call."""
    return resilience.breakers().refusal(session_key, tool, args)


def refused(session_key: str, tool: str = "bash", args: object = CURL) -> str | None:
    """What an agent's loop is told, which a loop's deny may refuse, too."""
    with session(session_key):
        found = control.refused(tool, args)
    assert found is None or found.by == "breaker"
    return None if found is None else found.hint


@pytest.mark.parametrize("settings", [{}, {"breaker": "session", "exempt_tools": "bash"}])
def test_none_is_on_by_default(settings: dict[str, Any]) -> None:
    """However often a call fails, of whatever run; nor is one kept for exempt tools."""
    guard = LoopGuard(Settings(**settings))
    for number in range(9):
        failing(guard, 1, session=f"run {number % 3}")
    assert said("run 1") is None
    assert refused("run 1") is None
    assert resilience.breakers().all == []
    assert guard.faults.counts == {}


def test_it_is_kept_for_what_fails() -> None:
    """A host, whoever asks it and how; not the shell, nor the fetching of other pages."""
    guard = LoopGuard(Settings(breaker="session"))
    failing(guard, 3)
    expected = "calls of this host failed 3 times in a row: try again in 5 s"
    assert said("run") == expected
    assert said("run", args='{"command": "wget https://down.example/b"}') == expected
    assert said("run", "fetch", {"url": "http://down.example"}) == expected
    assert said("run", "fetch", "https://down.example?q=1") == expected
    for other in ("cat a.txt", "curl https://up.example", "curl https://down.example:8080"):
        assert said("run", args={"command": other}) is None
    assert said("run", "write", {"text": "see https://down.example"}) is None
    assert refused("run") == expected
    assert execution.admit("bash", CURL, session="run").objection == "breaker_open"
    assert said("another run") is None


def test_a_call_without_a_host_is_kept_by_its_arguments() -> None:
    """As one selector, one task of a sub-agent; also where an instrumentation unwraps a text."""
    guard = LoopGuard(Settings(breaker="session"))
    for number in range(3):
        guard.observe(call({"selector": f"#{number}"}, "Timeout 30000ms", "click"), "run")
    assert said("run", "click", {"selector": "#0"}) is None
    for _ in range(2):
        guard.observe(call({"selector": "#0"}, "Timeout 30000ms", "click"), "run")
    expected = "this call of 'click' failed 3 times in a row: try again in 5 s"
    assert said("run", "click", {"selector": "#0"}) == expected
    assert said("run", "click", "#0") == expected
    assert said("run", "click", {"selector": "#1"}) is None
    assert said("run", "click", None) is None


def test_it_opens_for_seconds_and_backs_off() -> None:
    """Twice as long after each failure that follows, up to `breaker_open_s`; a success ends it."""
    with set_testing(True) as clock:
        guard = LoopGuard(
            Settings(breaker="session", tuning={"resilience": {"breaker_open_s": 60}})
        )
        failing(guard, 3)
        for seconds in (5, 10, 20, 40, 60, 60):
            assert f"try again in {seconds} s" in (said("run") or "")
            clock.advance(seconds - 1)
            assert "try again in 1 s" in (said("run") or "")
            clock.advance(1)
            assert said("run") is None
            failing(guard, 1)
        clock.advance(60)
        guard.observe(call(CURL, None), "run")
        failing(guard, 2)
        assert said("run") is None


def test_one_that_is_declared_shared_holds_for_all_runs() -> None:
    """And, with a store and a key that covers what failed, for other processes."""
    store = MemoryStore()
    settings = Settings(breaker="shared", digest_key="k" * 32)
    one, other = (Breakers(settings, writer(store)) for _ in range(2))
    for number in range(3):
        one.finished(f"run {number}", "bash", CURL, error=True, error_class=TRANSIENT)
    assert one.refusal("another", "bash", CURL)
    assert one.refusal(None, "bash", CURL)
    wait_for(lambda: other.refusal("one", "bash", CURL) is not None)


@pytest.mark.parametrize("settings", [{"breaker": "session"}, {"breaker": "shared"}])
def test_what_is_not_covered_or_not_shared_stays_in_the_process(settings: dict[str, Any]) -> None:
    """Without a `digest_key` anybody could guess what is behind a digest in the store."""
    store, kept = MemoryStore(), list[object]()
    store.put = lambda *given, **_: kept.append(given)  # type: ignore[method-assign]
    writing = writer(store)
    breakers = Breakers(Settings(**settings), writing)
    for _ in range(3):
        breakers.finished("run", "bash", CURL, error=True, error_class=TRANSIENT)
    assert breakers.refusal("run", "bash", CURL)
    writing.flush()
    assert kept == []


def test_one_that_code_names_is_asked_by_everybody() -> None:
    """`resilience.breaker` needs no setting; spans do not count for it, the block does."""
    guard = LoopGuard()
    for _ in range(2):
        with pytest.raises(ConnectionError), resilience.breaker("search"):
            guard.observe(call({"q": 1}, "connection refused", "search"), "run")
            raise ConnectionError
    assert resilience.breakers().standing("search").failures == 2
    with pytest.raises(ConnectionError), resilience.breaker("search"):
        raise ConnectionError
    expected = "the breaker of the tool 'search' is open after 3 failures in a row: try again in"
    assert expected in (refused("any run", "search", {"q": 2}) or "")


def test_a_replay_shuts_nothing() -> None:
    """What it shows is long over."""
    live = LoopGuard(Settings(breaker="shared"))
    replay = LoopGuard(Settings(breaker="shared"), clock="replay")
    failing(replay, 5)
    assert said("run") is None
    assert live.faults.counts == {}


class Broken(MemoryStore):
    """A store that can be down."""

    down = False

    def get(self, kind: str, key: str) -> bytes | None:
        self._up()
        return super().get(kind, key)

    def claim(self, kind: str, key: str, owner: str, ttl_s: float) -> bool:
        self._up()
        return super().claim(kind, key, owner, ttl_s)

    def _up(self) -> None:
        if self.down:
            msg = "down"
            raise StoreError(msg)


def test_others_learn_that_it_is_open_and_closed(clock: Clock) -> None:
    """In the background: nobody waits for the store."""
    store = MemoryStore()
    one, other = (Breakers(Settings(), writer(store), clock) for _ in range(2))
    fail(one, 3)
    wait_for(lambda: not other.allow("search"))
    assert other.standing("search") == one.standing("search")
    clock.pass_by(300)
    assert [one.allow("search"), other.allow("search"), one.allow("search")] == [True, False, False]
    succeed(one)
    wait_for(lambda: other.allow("search"))


def test_a_store_that_is_down_stops_nobody(clock: Clock) -> None:
    """Breakers go on in memory, and tell the others when it is back."""
    store = Broken()
    store.down = True
    one, other = (Breakers(Settings(), writer(store), clock) for _ in range(2))
    fail(one, 3)
    assert not one.allow("search")
    assert other.allow("search")
    clock.pass_by(300)
    assert one.allow("search")
    fail(one)
    store.down = False
    wait_for(lambda: (one.allow("search"), other.allow("search")) == (False, False))


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"[]", b"{}", b'{"until": "x", "at": 1, "failures": 1}',
     b'{"until": -1, "at": 1, "failures": 1}', b"1"],
    ids=["bytes", "list", "empty", "text", "negative", "number"],
)  # fmt: skip
def test_what_is_not_understood_is_left_alone(
    clock: Clock, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is warned of with its key, once, and not overwritten."""
    store = MemoryStore()
    store.put("breaker", "tool:search", raw)
    writing = writer(store)
    breakers = Breakers(Settings(), writing, clock)
    fail(breakers, 3)
    assert writing.flush()
    succeed(breakers)
    fail(breakers, 3)
    assert writing.flush()
    assert not breakers.allow("search")
    assert store.get("breaker", "tool:search") == raw
    assert caplog.text.count("tool:search") == 1


def test_a_clock_that_is_wrong_shuts_nothing_for_days(clock: Clock) -> None:
    """Another process says: open for a year."""
    store = MemoryStore()
    year = clock.now + 365 * 86400 * 10**9
    store.put("breaker", "tool:search", orjson.dumps({"until": year, "at": year, "failures": 3}))
    breakers = Breakers(Settings(), writer(store), clock)
    wait_for(lambda: breakers.standing("search").failures == 3)
    assert not breakers.allow("search")
    clock.pass_by(300)
    assert breakers.allow("search")


def _worker(url: str, start: Any, allowed: Any, closing: Any) -> None:
    """A process: learns that the breaker is open, and asks for the trial with all the others."""
    from otel_loopguard.stores.redis import RedisStore

    writing = writer(RedisStore(Settings(store_url=url)))
    breakers = Breakers(Settings(), writing)
    wait_for(lambda: breakers.standing("search").state is not BreakerState.CLOSED)
    start.wait()
    wait_for(lambda: breakers.standing("search").state is BreakerState.HALF_OPEN)
    tried = sum(breakers.allow("search") for _ in range(20))
    allowed.put(tried)
    start.wait()
    if tried:
        succeed(breakers)
    wait_for(lambda: breakers.allow("search"))
    writing.close()
    closing.put(True)


def test_half_open_lets_one_trial_through_across_processes(tmp_path: Path) -> None:
    """Two processes on a real Redis ask at once; its success lets all of them go on."""
    need_redis()
    from otel_loopguard.stores.redis import RedisStore

    server = Server(tmp_path / "redis").start()
    workers: list[Any] = []
    try:
        spawn = multiprocessing.get_context("spawn")
        start, allowed, closing = spawn.Barrier(2), spawn.Queue(), spawn.Queue()
        settings = Settings(tuning={"resilience": {"breaker_open_s": 5}}, store_url=server.url)
        opener = Breakers(settings, writer(RedisStore(settings)))
        for _ in range(2):
            workers.append(
                spawn.Process(target=_worker, args=(server.url, start, allowed, closing))
            )
            workers[-1].start()
        fail(opener, 3)
        assert sorted(allowed.get(timeout=60) for _ in range(2)) == [0, 1]
        assert [closing.get(timeout=60) for _ in range(2)] == [True] * 2
        for worker in workers:
            worker.join(60)
    finally:
        for worker in workers:
            worker.kill()
        server.kill()
