"""The run that something belongs to."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import otel_loopguard
from otel_loopguard._control.context import named_session
from otel_loopguard.integrations._runs import Running


def test_a_run_has_a_key_of_its_own_and_leaves_nothing_behind() -> None:
    """Two runs are two sessions; the caller's context is as before."""
    keys = [Running.begin(traced=False).call(named_session) for _ in range(2)]
    assert len(set(keys)) == 2
    assert None not in keys
    assert (named_session(), Running.current()) == (None, None)


def test_a_trace_or_a_name_is_the_session() -> None:
    """No key is made where spans have a trace of their own, or the context names a session."""
    assert Running.begin(traced=True).call(named_session) is None
    with otel_loopguard.session("mine"):
        assert Running.begin(traced=False).call(named_session) == "mine"


def test_a_run_inside_of_a_run_is_the_same() -> None:
    """What an agent starts belongs to its run."""
    run = Running.begin(traced=False)
    inner = run.call(lambda: Running.begin(traced=False))
    assert inner is run
    assert run.call(lambda: inner.call(named_session)) == run.call(named_session)


def test_a_stream_is_in_the_run_at_each_step() -> None:
    """A generator sees the run at every step, and is closed when the caller stops."""
    run = Running.begin(traced=False)
    closed: list[Running | None] = []

    def steps() -> Iterator[Running | None]:
        try:
            while True:
                yield Running.current()
        finally:
            closed.append(Running.current())

    stream = run.call(steps)
    assert [next(stream), next(stream)] == [run, run]
    assert Running.current() is None
    stream.close()
    assert closed == [run]


def test_a_thread_without_the_context_joins() -> None:
    """A thread of a framework gets the run back."""
    run, seen = Running.begin(traced=False), list[Running | None]()
    thread = threading.Thread(target=lambda: seen.append(run.join(Running.current)))
    thread.start()
    thread.join(30)
    assert seen == [run]
