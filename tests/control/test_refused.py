"""control.refused, control.hint, resilience.partial, and how long a flag stands."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import (
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    control,
    execution,
    resilience,
    session,
)
from otel_loopguard._control.context import flag_at
from tests.agents import provider_with, tool_call

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer


class Run:
    """A session with a guard of its own."""

    def __init__(self) -> None:
        self.key = uuid.uuid4().hex
        self.processor = LoopGuardSpanProcessor()
        self.tracer: Tracer = provider_with(self.processor).get_tracer("my.agent")

    def calls(self, times: int) -> None:
        for _ in range(times):
            tool_call(self.tracer)


@pytest.fixture
def run() -> Iterator[Run]:
    """A session that is named by the context."""
    found = Run()
    with session(found.key):
        yield found
    found.processor.shutdown()


def test_calls_of_the_loop_are_refused_and_others_are_not(run: Run) -> None:
    """By identity: volatile values do not save a call, and other arguments do."""
    name, args = _the_call()
    assert control.refused(name, args) is None
    run.calls(4)
    refusal = control.refused(name, args)
    assert refusal is not None
    assert refusal.action == "deny"
    assert refusal.hint
    assert control.refused(name, {"q": "something else"}) is None
    assert control.refused("another", args) is None
    assert control.refused(name) is not None
    assert control.refused("another") is None


def test_a_session_that_is_held_makes_no_call(run: Run) -> None:
    """Paused or aborted, by a person or by the policy: neither the call of the loop nor another."""
    name, args = _the_call()
    run.calls(7)
    refusal = control.refused(name, args)
    assert refusal is not None
    assert refusal.action == "abort"
    assert control.refused("another") is refusal
    control.resume(run.key)
    assert control.refused(name, args) is None
    control.pause(run.key, by="ada")
    refusal = control.refused(name, args)
    assert refusal is not None
    assert (refusal.action, refusal.by) == ("pause", "ada")


def test_one_question_asks_breakers_and_checks_too(run: Run) -> None:
    """`admit`, `problems` and `breaker` count, with a session and without a step."""
    assert control.refused("fetch", {"q": "x"}) is None
    for _ in range(3):
        resilience.breakers().ended("fetch", "tool", ConnectionError("reset"))
    refusal = control.refused("fetch", {"q": "x"})
    assert refusal is not None
    assert (refusal.action, refusal.by) == ("deny", "breaker")
    assert refusal.hint == execution.admit("fetch", {"q": "x"}).reason
    run.calls(1)
    assert control.refused("fetch") is not None
    resilience.checks().register("length", lambda args: ("it is too long.", "Cut it."), tool="post")
    refusal = control.refused("post", '{"text": "secret"}')
    assert refusal is not None
    assert (refusal.session, refusal.by) == (run.key, "check")
    assert refusal.hint == "it is too long. Cut it."
    assert refusal.reason == "a check speaks against 'post'"
    assert control.refused("search", {"q": "x"}) is None


@pytest.mark.parametrize("settings", [{"mode": "shadow"}, {"max_action": "hint"}])
def test_a_guard_that_may_not_deny_refuses_nothing(settings: dict[str, Any]) -> None:
    """Neither by a breaker nor by a check; what a person does holds all the same."""
    processor = LoopGuardSpanProcessor(**settings)
    tracer = provider_with(processor).get_tracer("my.agent")
    resilience.checks().register("never", lambda args: ("it fails.", "Do not."))
    with session(uuid.uuid4().hex) as key:
        tool_call(tracer)
        assert control.refused("search", {"q": "x"}) is None
        control.abort(key)
        assert control.refused("search", {"q": "x"}) is not None
    processor.shutdown()


def test_a_hint_is_given_once_per_decision(run: Run) -> None:
    """The text stays readable without the quote; the next decision has a hint of its own."""
    assert control.hint() is None
    run.calls(3)
    first = control.hint()
    assert first is not None
    assert control.hint() is None
    assert control.current().hint == first.replace(' The last answer: "nothing found".', "")
    run.calls(1)
    second = control.hint()
    assert second not in {None, first}


@pytest.mark.parametrize("ask", [control.check, control.hint, control.gate, control.current])
def test_whoever_asks_hears_each_rung_before_the_next(run: Run, ask: Callable[[], object]) -> None:
    """Ten equal calls that nobody could hear of are one hint."""
    run.calls(1)
    control.current()
    said: list[str] = []
    for _ in range(3):
        run.calls(10)
        flag = flag_at(run.key)
        assert flag is not None
        said.append(flag.control.action.value)
        with suppress(LoopGuardAbort):
            ask()
    assert said == ["hint", "deny", "abort"]


def test_a_denied_call_is_refused_also_after_others(run: Run) -> None:
    """They lower the flag, and the loop stays denied: the call is not let through, then ended."""
    name, args = _the_call()
    run.calls(4)
    assert control.current().action == "deny"
    tool_call(run.tracer, "list", '{"path": "a"}', "nothing found")
    assert control.current().action == "allow"
    refusal = control.refused(name, args)
    assert refusal is not None
    assert refusal.action == "deny"
    assert control.refused("list", {"path": "b"}) is None


def test_results_so_far_come_with_the_stop(run: Run) -> None:
    """The newest twenty, oldest first, those before the first step too."""
    assert resilience.partial("a plan, before the session has a step")
    run.calls(1)
    assert all(resilience.partial(number) for number in range(19))
    control.abort(run.key, by="ada")
    with pytest.raises(LoopGuardAbort) as stop:
        control.check()
    assert stop.value.parts == ("a plan, before the session has a step", *range(19))
    assert resilience.partial(19)
    with pytest.raises(LoopGuardAbort) as stop:
        control.check()
    assert stop.value.parts == tuple(range(20))


def test_an_early_result_waits_under_its_trace() -> None:
    """The key of the session is known only when a span says it."""
    processor = LoopGuardSpanProcessor()
    tracer = provider_with(processor).get_tracer("my.agent")
    key = uuid.uuid4().hex
    with tracer.start_as_current_span("request"):
        assert resilience.partial("early")
        with tracer.start_as_current_span(
            "execute_tool t", attributes={"gen_ai.tool.name": "t", "gen_ai.conversation.id": key}
        ):
            pass
        control.abort(key)
        with pytest.raises(LoopGuardAbort) as stop:
            control.check()
    assert stop.value.parts == ("early",)
    processor.shutdown()


def test_a_result_that_no_session_can_keep_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once, where there is a guard to stop anything."""
    processor = LoopGuardSpanProcessor()
    assert not resilience.partial("a")
    assert not resilience.partial("b")
    (record,) = caplog.records
    assert "it is lost" in record.getMessage()
    processor.shutdown()


def test_who_set_it_is_told(run: Run) -> None:
    """The policy, or a person by name."""
    run.calls(3)
    assert control.current().by == "policy"
    control.pause(run.key, by="ada")
    assert control.current().by == "ada"
    control.resume(run.key, by="bob", guidance="use the other index")
    now = control.current()
    assert (now.action, now.by, now.hint) == ("hint", "bob", "use the other index")
    assert control.hint() == "use the other index"
    control.resume(run.key)
    assert control.current().by == "by hand"


def test_a_pause_may_end_by_itself(run: Run) -> None:
    """Gates are let go when its time is over, and the flag reads `allow`."""
    run.calls(1)
    control.pause(run.key, limit_s=0.2)
    assert control.current().until is not None
    assert control.gate(limit_s=60).control.action == "allow"
    assert control.current().action == "allow"


def _the_call() -> tuple[str, dict[str, Any]]:
    return "search", {"q": "x"}
