"""Breakers: in one process, fed by spans, and shared by several processes."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from otel_loopguard import LoopGuard, Settings, control, execution, resilience, session
from otel_loopguard._util.clock import TestMode as Moved
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.resilience.breaker import Breakers
from otel_loopguard.stores import Writer
from otel_loopguard.stores.redis import RedisStore
from tests.stores.memory import MemoryStore, TroubledStore
from tests.stores.servers import wait_for
from tests.tables import rows

ERRORS = {"f": ConnectionError("reset"), "w": ValueError("invalid"), "u": RuntimeError(), "s": None}


def made(store: RedisStore | None = None, **settings: Any) -> Breakers:
    """Breakers of one process, which share through a store."""
    chosen = Settings(**settings)
    return Breakers(chosen, None if store is None else Writer(store, chosen, InternalErrors()))


def ended(breakers: Breakers, outcomes: str = "fff") -> None:
    """Calls of `search` that fail (w: wrongly called, u: nobody knows why) or succeed."""
    for one in outcomes:
        breakers.ended("search", "tool", ERRORS[one])


@pytest.mark.parametrize(("_name", "script", "settings"), rows(__file__, "scripts"))
def test_three_failures_in_a_row_open_it_for_300_seconds(
    clock: Moved, _name: str, script: str, settings: str
) -> None:
    """Then one trial passes, and no second one (E5)."""
    breakers = made(**json.loads(settings or "{}"))
    for step in script.split():
        if step in ERRORS:
            ended(breakers, step)
        elif step == "c":
            with pytest.raises(KeyboardInterrupt), breakers.guarding("search"):
                raise KeyboardInterrupt
        elif step in "yn":
            assert breakers.allow("search") is (step == "y")
        else:
            clock.advance(int(step))


def test_tools_and_agents_have_breakers_of_their_own() -> None:
    """A failing tool says nothing of the agent that called it."""
    breakers = made()
    ended(breakers)
    for _ in range(3):
        breakers.ended("helper", "agent", ERRORS["f"])
    asked = (("search", "tool"), ("helper", "agent"), ("helper", "tool"), ("agent", "agent"))
    assert [breakers.allow(name, kind) for name, kind in asked] == [False, False, True, True]
    breakers.reset("search")
    assert breakers.allow("search")


def test_the_table_is_bounded() -> None:
    """The newest 1024 tools are kept."""
    breakers = made()
    for number in range(3000):
        breakers.ended(f"tool {number}", "tool", ERRORS["f"])
    assert len(breakers.all) == 1024


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


@pytest.mark.parametrize("settings", [{}, {"breaker": "session", "exempt_tools": "bash"}], ids=str)
def test_none_is_on_by_default(settings: dict[str, Any]) -> None:
    """However often a call fails, of whatever run; nor is one kept for exempt tools."""
    guard = LoopGuard(Settings(**settings))
    for number in range(9):
        failing(guard, 1, session=f"run {number % 3}")
    assert (said("run 1"), refused("run 1")) == (None, None)
    assert resilience.breakers().all == []
    assert guard.faults.counts == {}


def test_the_guard_of_the_session_is_meant() -> None:
    """Whatever guard was made since; without a session it is the newest."""
    older, newest = LoopGuard(), LoopGuard()
    failing(older, 1, session="of the older")
    with session("of the older"):
        for _ in range(3):
            resilience.breakers().ended("search", "tool", ERRORS["f"])
        assert execution.admit("search").objection == "breaker_open"
        assert control.refused("search") is not None
    assert older.resilience.breakers.standing("search").state == "open"
    assert newest.resilience.breakers.all == []
    assert resilience.breakers() is newest.resilience.breakers
    assert execution.admit("search").objection is None


def test_it_is_kept_for_what_fails() -> None:
    """A host, whoever asks it and how; not the shell, nor the fetching of other pages."""
    guard = LoopGuard(Settings(breaker="session"))
    failing(guard, 3)
    calls = [
        ("bash", CURL), ("bash", '{"command": "wget https://down.example/b"}'),
        ("fetch", {"url": "http://down.example"}), ("fetch", "https://down.example?q=1"),
    ]  # fmt: skip
    expected = "calls of this host failed 3 times in a row: try again in 5 s"
    assert [said("run", *one) for one in calls] == [expected] * 4
    for other in ("cat a.txt", "curl https://up.example", "curl https://down.example:8080"):
        assert said("run", args={"command": other}) is None
    assert said("run", "write", {"text": "see https://down.example"}) is None
    assert refused("run") == expected
    assert execution.admit("bash", CURL, session="run").objection == "breaker_open"
    assert said("another run") is None


def test_a_call_without_a_host_is_kept_by_its_arguments() -> None:
    """As one selector, one task of a sub-agent; also where an instrumentation unwraps a text."""
    guard = LoopGuard(Settings(breaker="session"))
    for number in (0, 1, 2, 0, 0):
        assert said("run", "click", "#0") is None
        guard.observe(call({"selector": f"#{number}"}, "Timeout 30000ms", "click"), "run")
    expected = "this call of 'click' failed 3 times in a row: try again in 5 s"
    assert said("run", "click", {"selector": "#0"}) == said("run", "click", "#0") == expected
    assert said("run", "click", {"selector": "#1"}) is None
    assert said("run", "click", None) is None


def test_it_opens_for_seconds_and_backs_off(clock: Moved) -> None:
    """Twice as long after each failure that follows, up to `breaker_open_s`; a success ends it."""
    tuning = {"resilience": {"breaker_open_s": 60}}
    guard = LoopGuard(Settings(breaker="session", tuning=tuning))
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


def fed(breakers: Breakers) -> Breakers:
    """Three calls of a run that failed, as their spans tell."""
    for _ in range(3):
        transient = ErrorClass.TRANSIENT
        breakers.finished("run", "bash", CURL, error=True, error_class=transient)
    return breakers


def test_one_that_is_declared_shared_holds_for_all_runs() -> None:
    """And, with a store and a key that covers what failed, for other processes."""
    store = MemoryStore()
    one, other = (made(store, breaker="shared", digest_key="k" * 32) for _ in range(2))
    fed(one)
    assert one.refusal("another", "bash", CURL)
    assert one.refusal(None, "bash", CURL)
    wait_for(lambda: other.refusal("a third", "bash", CURL) is not None)


@pytest.mark.parametrize(
    "settings",
    [{"breaker": "session", "digest_key": "k" * 32}, {"breaker": "shared"}],
    ids=["session", "no key"],
)
def test_what_is_not_shared_or_covered_stays_in_the_process(settings: dict[str, Any]) -> None:
    """Without a `digest_key` anybody could guess what is behind a digest in the store."""
    store = MemoryStore()
    breakers = fed(made(store, **settings))
    assert breakers.refusal("run", "bash", CURL)
    assert breakers._writer is not None
    breakers._writer.flush()
    assert store._values == {}


def test_one_that_code_names_is_asked_by_everybody(guard: LoopGuard) -> None:
    """`resilience.breaker` needs no setting; spans do not count for it, the block does."""
    for count in (1, 2, 3):
        with pytest.raises(ConnectionError), resilience.breaker("search"):
            guard.observe(call({"q": 1}, "connection refused", "search"), "run")
            raise ConnectionError
        assert resilience.breakers().standing("search").failures == count
    expected = "the breaker of the tool 'search' is open after 3 failures in a row: try again in"
    assert expected in (refused("any run", "search", {"q": 2}) or "")


def test_a_replay_shuts_nothing() -> None:
    """What it shows is long over."""
    live = LoopGuard(Settings(breaker="shared"))
    replay = LoopGuard(Settings(breaker="shared"), clock="replay")
    failing(replay, 5)
    assert said("run") is None
    assert live.faults.counts == {}


@pytest.fixture(params=["memory", "redis"])
def shared(request: pytest.FixtureRequest) -> Iterator[list[Breakers]]:
    """The breakers of two processes that share a store."""
    stores: list[RedisStore] = [MemoryStore()] * 2
    if request.param == "redis":
        settings = Settings(store_url=request.getfixturevalue("own_redis").url)
        stores = [RedisStore(settings) for _ in range(2)]
    both = [made(store) for store in stores]
    yield both
    for breakers in both:
        assert breakers._writer is not None
        breakers._writer.close(0)


def test_others_learn_that_it_is_open_and_closed(clock: Moved, shared: list[Breakers]) -> None:
    """In the background; of two that ask at once one makes the trial, and its success ends it."""
    one, other = shared
    ended(one)
    wait_for(lambda: not other.allow("search"))
    assert other.standing("search") == one.standing("search")
    clock.advance(300)
    with ThreadPoolExecutor(2) as pool:
        tried = [*pool.map(lambda each: sum(each.allow("search") for _ in range(20)), shared)]
    assert sorted(tried) == [0, 1]
    ended(shared[tried.index(1)], "s")
    wait_for(lambda: all(each.allow("search") for each in shared))


def test_a_store_that_is_down_stops_nobody(clock: Moved) -> None:
    """Breakers go on in memory, and tell the others when it is back."""
    store = TroubledStore("down")
    one, other = made(store), made(store)
    ended(one)
    assert (one.allow("search"), other.allow("search")) == (False, True)
    clock.advance(300)
    assert one.allow("search")
    ended(one, "f")
    store.error = None
    wait_for(lambda: (one.allow("search"), other.allow("search")) == (False, False))


UNTIL = b'{"until": 9, "at": 1, "failures": 1}'


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"[]", b"{}", b"1", *(UNTIL.replace(b"9", odd) for odd in (b'"x"', b"-1"))],
)
def test_what_is_not_understood_is_left_alone(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is warned of with its key, once, and not overwritten."""
    store = MemoryStore()
    store.put("breaker", "tool:search", raw)
    breakers = made(store)
    assert breakers._writer is not None
    for outcomes in ("fff", "sfff"):
        ended(breakers, outcomes)
        assert breakers._writer.flush()
    assert not breakers.allow("search")
    assert store.get("breaker", "tool:search") == raw
    assert caplog.text.count("tool:search") == 1


def test_a_clock_that_is_wrong_shuts_nothing_for_days(clock: Moved) -> None:
    """Another process says: open for a year."""
    store = MemoryStore()
    year = now() + 365 * 86400 * 10**9
    store.put("breaker", "tool:search", orjson.dumps({"until": year, "at": year, "failures": 3}))
    breakers = made(store)
    wait_for(lambda: breakers.standing("search").failures == 3)
    assert not breakers.allow("search")
    clock.advance(300)
    assert breakers.allow("search")


def queued() -> int:
    return 3


def test_a_guard_with_a_queue_learns_of_each_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its admissions are made with it, and ask for what learns."""
    learned: list[Step] = []
    registry = resilience.ResilienceRegistry
    monkeypatch.setattr(registry, "learn", lambda _, step, __: learned.append(step))
    guard = LoopGuard(Settings(execution_queue=f"{__name__}:queued"))
    guard.observe(Step(Kind.TOOL, "search", start=1, end=2, args="a", outcome="b"), "one")
    assert len(learned) == 1
