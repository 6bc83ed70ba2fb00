"""resilience.retrying, resilience.verified, resilience.degraded, resilience.combined."""

import asyncio
import builtins
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, UnverifiedWriteError, control, resilience
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import exception_class

FAST = {"delay_s": 0.001, "max_delay_s": 0.002}


class Failing:
    """Fails some times, then answers."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls = times, error, 0

    def __call__(self) -> str:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return "answer"


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Delays that were to be slept, and are not."""
    delays: list[float] = []
    monkeypatch.setattr(time, "sleep", delays.append)
    return delays


def test_three_more_tries_after_2_4_and_8_seconds(slept: list[float]) -> None:
    """The defaults of E4, up to 30 s; the last error is raised as it is."""
    for rules, delays in (({}, [2, 4, 8]), ({"limit": 6}, [2, 4, 8, 16, 30, 30])):
        slept.clear()
        tool = Failing(9, ConnectionError("refused"))
        with pytest.raises(ConnectionError, match="refused"):
            resilience.retrying(**rules)(tool)()
        assert (tool.calls, slept) == (len(delays) + 1, delays)


@pytest.mark.parametrize("form", ["decorator", "iterator", "async decorator", "async iterator"])
def test_every_form_gets_the_answer(form: str) -> None:
    """A tool that fails twice answers at the third try; a block that is left early ends them."""
    tool = Failing(2, ConnectionError())
    rules = resilience.retrying(**FAST)

    async def waiting() -> str:
        return tool()

    def iterated() -> str | None:
        for attempt in rules:
            with attempt:
                return tool()
        return None

    async def iterated_async() -> str | None:
        async for attempt in rules:
            with attempt:
                return await waiting()
        return None

    forms: dict[str, Callable[[], str | None]] = {
        "decorator": rules(tool),
        "iterator": iterated,
        "async decorator": lambda: asyncio.run(rules(waiting)()),
        "async iterator": lambda: asyncio.run(iterated_async()),
    }
    assert (forms[form](), tool.calls) == ("answer", 3)


class StatusError(Exception):
    """As HTTP clients raise it."""

    def __init__(self, status: int) -> None:
        super().__init__("the request failed")
        self.status_code = status


ReadTimeout = type("ReadTimeout", (Exception,), {})
APIConnectionError = type("APIConnectionError", (Exception,), {})


PASSING = [
    *(ConnectionRefusedError(), TimeoutError(), ReadTimeout(), APIConnectionError("x")),
    *(StatusError(408), StatusError(429), StatusError(503), StatusError(522)),
    RuntimeError("HTTP 502 Bad Gateway"),
]
LASTING = [StatusError(404), FileNotFoundError(2, "No such file or directory"), ValueError("wrong")]
KINDS = {"transient": PASSING, "deterministic": LASTING, "unknown": [RuntimeError("oops")]}


@pytest.mark.parametrize(
    ("kind", "error"), [(kind, one) for kind, errors in KINDS.items() for one in errors], ids=repr
)
def test_only_what_may_pass_is_retried(kind: str, error: Exception) -> None:
    """Told from the status, the class and the text."""
    assert exception_class(error).value == kind
    tool = Failing(1, error)
    with pytest.raises(type(error)) if kind != "transient" else contextlib.nullcontext():
        assert resilience.retrying(**FAST)(tool)() == "answer"
    assert tool.calls == (2 if kind == "transient" else 1)


ON = [KeyError, (KeyError, OSError), lambda error: error.args == ("key",)]


@pytest.mark.parametrize("on", ON, ids=["class", "classes", "function"])
def test_the_application_may_say_which(on: Any) -> None:
    """A class, several, or a function."""
    assert resilience.retrying(on=on, **FAST)(Failing(1, KeyError("key")))() == "answer"
    with pytest.raises(ValueError, match="another"):
        resilience.retrying(on=on, **FAST)(Failing(1, ValueError("another")))()


def test_a_cancelled_task_is_not_retried() -> None:
    """It ends at once."""
    tries: list[int] = []

    @resilience.retrying(on=lambda error: True, **FAST)
    async def hang() -> None:
        tries.append(1)
        await asyncio.sleep(60)

    async def go() -> None:
        task = asyncio.ensure_future(hang())
        await asyncio.sleep(0.02)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(go())
    assert tries == [1]


def test_an_aborted_session_does_not_try_again() -> None:
    """The abort is raised in place of the next try."""
    guard = LoopGuard()
    tool = Failing(9, ConnectionError())
    with otel_loopguard.session("aborted while retrying") as key:
        guard.observe(Step(Kind.TOOL, "search", args={"q": 1}, outcome="x"), key)
        control.abort(key, "enough")
        with pytest.raises(LoopGuardAbort, match="enough"):
            resilience.retrying(**FAST)(tool)()
    assert tool.calls == 1


def test_without_tenacity_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first try; importing the package needs none."""
    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name == "tenacity":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"otel-loopguard\[retry\]"):
        list(resilience.retrying())


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("lost", [0, 2, 9], ids=["stored", "lost twice", "always lost"])
def test_a_write_is_verified(asynchronous: bool, lost: int) -> None:
    """It is written again until it can be read, and not said to be stored when it is not (E8)."""
    written: list[int] = []

    def write() -> None:
        written.append(len(written))

    def stored() -> bool:
        return len(written) > lost

    async def write_later() -> None:
        write()

    async def stored_later() -> bool:
        return stored()

    lasting = pytest.raises(UnverifiedWriteError, match="write")
    with lasting if lost > 3 else contextlib.nullcontext():
        if asynchronous:
            asyncio.run(resilience.verified_async(write_later, stored_later, on=KeyError, **FAST))
        else:
            resilience.verified(write, stored, on=KeyError, **FAST)
    assert len(written) == min(lost, 3) + 1


def test_dependants_run_on_partial_data(caplog: pytest.LogCaptureFixture) -> None:
    """What is missing has a reason, is told in a sentence, and is handed on."""
    results = {
        "prices": {"a": 1},
        "news": resilience.degraded("news", "its breaker is open"),
        "rates": resilience.degraded("rates", "time-out", value="secret rates"),
    }
    found = resilience.combined(results)
    assert found.values == {"prices": {"a": 1}, "rates": "secret rates"}
    assert found.missing == {"news": "its breaker is open", "rates": "time-out"}
    assert not found.complete
    missing = "news (its breaker is open), rates (time-out; a stand-in is used)"
    assert found.note == f"This rests on partial data: {missing}."
    assert caplog.messages == [
        "otel-loopguard: step 'news' is skipped: its breaker is open; nothing replaces it",
        "otel-loopguard: step 'rates' is skipped: time-out; a stand-in is used",
    ]
    first = resilience.combined({"news": resilience.degraded("news", "time-out"), "prices": 3})
    second = resilience.combined({"summary": first, "rest": 4})
    assert (second.missing, second.complete) == ({"news": "time-out"}, False)
    assert second.values == {"summary": {"prices": 3}, "rest": 4}
    whole = resilience.combined({"rest": 4})
    assert (whole.complete, whole.note) == (True, None)
