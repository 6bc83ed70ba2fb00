"""Whose run it is: keys of runs without an id, runs of one conversation, runs in one trace."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor, control, session
from otel_loopguard._control.gate import spellings
from otel_loopguard.integrations._adapter import Adapter
from otel_loopguard.integrations._runs import Given, Runs


class Putting(Exception):  # noqa: N818  # as frameworks name theirs
    """A framework puts a call off."""


class App:
    """A guard, and an adapter that writes the spans."""

    def __init__(self) -> None:
        self.processor = LoopGuardSpanProcessor()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("my.server")
        self.guarding = Adapter(
            "none", instrumented=lambda: False, tracer_provider=self.provider, limit_s=5
        )

    def turn(self, key: str) -> bool:
        """A model call and a tool call of a run; whether the tool was called."""
        self.guarding.before_model(key)
        call = self.guarding.call("search", {"query": "x"}, session=key)
        if call.refusal() is not None:
            return False
        with call.span() as made:
            made.result("No results.")
        return True

    def run(self, key: str) -> int:
        """A run that does not listen; how often the tool was called until it was stopped."""
        called = 0
        with pytest.raises(LoopGuardAbort):
            for _ in range(20):
                called += self.turn(key)
        return called


@pytest.fixture
def app() -> Iterator[App]:
    """An application with a guard."""
    found = App()
    yield found
    found.processor.shutdown()


def _key() -> str:
    return uuid.uuid4().hex


def test_a_run_has_one_key_and_each_its_own() -> None:
    """By identity: equal objects are two runs, and the same object is the same run."""
    runs, one, other = Runs(), [0], [0]
    assert not runs.knows(one)
    assert runs.key_of(one) == runs.key_of(one)
    assert runs.knows(one)
    assert runs.key_of(one) != runs.key_of(other)


def test_a_key_is_never_handed_on() -> None:
    """A run that is over keeps its place in memory, so that no other can come to have it."""
    runs, keys = Runs(), set[str]()
    for _ in range(500):
        keys.add(runs.key_of([0]))
        gc.collect(0)
    assert len(keys) == 500


def test_keys_are_bounded() -> None:
    """The newest 1024 runs are known."""
    runs = Runs()
    held = [[number] for number in range(2000)]
    for run in held:
        runs.key_of(run)
    assert runs.knows(held[-1024])
    assert not runs.knows(held[-1025])


def test_keys_that_were_given_are_bounded() -> None:
    """The newest 1024 keys that spans were named after are known."""
    given = Given()
    for number in range(2000):
        given.add(f"run-{number}")
    assert given.others("run-1999", "mine")
    assert not given.others("run-0", "mine")
    assert not given.others("run-1999", "run-1999")
    assert not given.others("run-1999", None)


def test_runs_of_one_trace_are_told_apart_by_their_keys(app: App) -> None:
    """The second run in a request of a server is not held by what the first one did."""
    with app.tracer.start_as_current_span("POST /"):
        assert app.run(_key()) == 4
        assert app.run(_key()) == 4


def test_a_stopped_conversation_goes_on_with_its_next_run(app: App) -> None:
    """Without any span of the run too; a person's abort stays."""
    key = _key()
    app.guarding.begin(key)
    assert app.run(key) == 4
    app.guarding.begin(key)
    assert app.turn(key)
    control.abort(key)
    app.guarding.begin(key)
    with pytest.raises(LoopGuardAbort):
        app.turn(key)


def test_a_named_session_goes_on_with_its_next_run(app: App) -> None:
    """Whatever key the framework has; entering the session anew changes nothing."""
    key = _key()
    with session(key):
        assert app.run(_key()) == 4
    with session(key):
        with pytest.raises(LoopGuardAbort):
            app.turn(_key())
        app.guarding.begin(_key())
        assert app.turn(_key())


def test_a_hook_without_asyncio_waits_inside_of_a_loop(app: App) -> None:
    """It holds the loop, as the framework's own call does, and does not run on."""
    key = _key()
    app.turn(key)
    control.pause(key)
    threading.Timer(0.2, control.resume, [key]).start()

    async def call() -> Any:
        app.turn(key)
        found = app.processor.guard.flag_of(key)
        return None if found is None else found.control.action

    assert asyncio.run(call()) == "allow"


def test_a_span_below_another_is_of_its_session(app: App) -> None:
    """The key that the framework has names spans that stand alone only."""
    key, other = _key(), _key()
    with session(key), app.tracer.start_as_current_span("invoke_agent a") as above:
        pass
    call = app.guarding.call("search", {"query": "x"}, session=other, span=above)
    with call.span() as made:
        made.result("No results.")
    assert app.processor.guard.flag_of(other) is None


def test_a_call_that_is_put_off_did_not_fail(app: App) -> None:
    """Exceptions by which the framework puts a call off come out, and are no failure."""
    ended: list[Any] = []
    own = app.guarding.call("search", {"query": "x"}, session=_key())
    with pytest.raises(Putting), own.span((Putting,)) as made:
        ended.append(made)
        raise Putting
    assert ended[0]._span.status.status_code.name == "UNSET"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"query": "x"}, [{"query": "x"}, "x"]),
        ({"n": 3}, [{"n": 3}]),
        ({"a": "x", "b": "y"}, [{"a": "x", "b": "y"}]),
        ("x", ["x"]),
        (None, [None]),
    ],
    ids=["one text", "one number", "two", "text", "unknown"],
)
def test_a_call_is_known_as_its_span_has_it(args: object, expected: list[object]) -> None:
    """OpenInference writes a single text in place of the map that has nothing else."""
    assert list(spellings(args)) == expected
