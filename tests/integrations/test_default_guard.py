"""An adapter without a processor feeds the guard of the process, and never counts twice."""

import logging
from collections.abc import Iterator
from weakref import WeakSet

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import Action, LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, execution
from otel_loopguard._control.context import unregister_guard
from otel_loopguard.core import Kind, Step
from otel_loopguard.guard import guard as guard_module
from otel_loopguard.integrations._adapter import (
    Adapter,
    Answer,
    _default_provider,  # pyright: ignore[reportPrivateUsage]
)
from tests.agents import Ended, provider_with


class Seen:
    """What guards were shown; who looks has everything judged first."""

    def __init__(self) -> None:
        self.guards: list[LoopGuard] = []
        self.steps: list[tuple[str, Step]] = []

    def guard(self) -> LoopGuard:
        """The guard, made when it is asked for first."""
        if not self.guards:
            self.guards.append(
                LoopGuard(on_step=lambda at, _, step: self.steps.append((at.key, step)))
            )
        return self.guards[0]

    def __call__(self) -> list[tuple[str, Step]]:
        for guard in self.guards:
            guard.settle()
        return self.steps


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """What the default guard of a process without any other was shown."""
    steps = Seen()
    for name in ("_attached", "_switched_off"):
        monkeypatch.setattr(guard_module, name, WeakSet[LoopGuard]())
    _default_provider.cache_clear()
    monkeypatch.setattr(LoopGuard, "default", staticmethod(steps.guard))
    yield steps
    for guard in steps.guards:
        unregister_guard(guard)
        guard.shutdown()
    _default_provider.cache_clear()


def search(adapter: Adapter, session: str | None = "chat-1", query: str = "x") -> str | None:
    """One call of a tool; what stands in place of its result, or None if it ran."""
    call = adapter.tool_call("search", {"query": query}, session=session, agent="looper")
    said = call.refusal()
    if said is None:
        with call:
            call.set_result("no results")
    return said


def test_calls_reach_the_default_guard(seen: Seen) -> None:
    """With their arguments, result, agent and session (a named one comes first), and with times."""
    search(Adapter("test"))
    call = Adapter("test").tool_call("search", {}, session="a")
    with otel_loopguard.session("mine"), pytest.raises(KeyError), call:
        raise KeyError(1)
    (session, step), (named, failed) = seen()
    assert (session, named) == ("chat-1", "mine")
    assert (step.kind, step.name, step.agent) == (Kind.TOOL, "search", "looper")
    assert (step.args, step.outcome) == ({"query": "x"}, "no results")
    assert step.end is not None
    assert 0 < step.start <= step.end
    assert (failed.error, failed.error_type) == (True, "KeyError")
    assert failed.outcome == "KeyError: 1"  # by which a failure is known again


def test_answers_and_hand_offs_are_steps(seen: Seen) -> None:
    """With text, agent and tokens; those of a cache that are no count, or none, are left out."""
    adapter = Adapter("test")
    answer = Answer("Let me see.", "m-1", "looper", 12, 3)
    for cached in (answer.with_cache(9, 2), answer.with_cache(0, "2")):
        adapter.before_model("chat-1")
        adapter.after_model(cached, "chat-1")
    adapter.handed_off("critic", "writer", "Look at this draft.", session="chat-1")
    (session, step), (_, second), (_, third) = seen()
    assert session == "chat-1"
    assert (step.kind, step.text, step.model) == (Kind.MODEL, "Let me see.", "m-1")
    assert (step.tokens_in, step.tokens_out) == (12, 3)
    assert (step.cache_read, step.cache_write) == (9, 2)
    assert (second.cache_read, second.cache_write) == (None, None)
    assert (third.kind, third.name, third.agent) == (Kind.HANDOFF, "critic", "writer")
    assert "Look at this draft." in str(third.args)


def _hand_over(adapter: Adapter, number: int, tool: str = "") -> str | None:
    """A hand-off by a tool, after a model call without a word; what it is refused with."""
    giver, taker = ("triage", "billing") if number % 2 else ("billing", "triage")
    adapter.before_model("chat-1")
    adapter.after_model(Answer("", agent=giver), "chat-1")
    name, args = (tool, {"agent_name": taker}) if tool else (f"transfer_to_{taker}", {})
    call = adapter.tool_call(name, args, session="chat-1", agent=giver)
    said = call.refusal()
    if said is None:
        with call:
            call.set_result("Transferred.")
    return said


@pytest.mark.parametrize("tool", ["", "transfer_to_agent"])
def test_hand_offs_without_news_are_refused_and_then_end_the_run(tool: str) -> None:
    """Where a hand-off is the call of a tool it is refused, other calls are not; then it ends.

    Whether the tool or its arguments name the agent.
    """
    adapter = Adapter("test")
    assert search(adapter) is None
    assert [_hand_over(adapter, number, tool) for number in range(12)] == [None] * 12
    assert search(adapter) is None
    found = adapter.find("chat-1")
    assert found is not None
    assert found.flag.control.action is Action.DENY
    call = adapter.tool_call("transfer_to_legal", {}, session="chat-1", agent="triage")
    assert call.refusal() is None
    assert _hand_over(adapter, 12, tool) is not None
    with pytest.raises(LoopGuardAbort):
        for number in range(13, 20):
            _hand_over(adapter, number, tool)


def test_a_hand_off_is_of_the_run_that_it_is_made_in() -> None:
    """The span of a handoff need not name the agent that it comes from."""
    steps: list[Step] = []
    guard = LoopGuard(on_step=lambda _at, _, step: steps.append(step))
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("x")
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"}
    call = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "transfer_to_critic",
        "gen_ai.tool.call.arguments": "{}",
        "gen_ai.tool.call.result": "Done.",
    }
    with tracer.start_as_current_span("invoke_agent writer", attributes=run):
        tracer.start_span("execute_tool", attributes=call).end()
    guard.settle()
    assert [(step.name, step.agent) for step in steps] == [
        ("critic", "writer"),
        ("writer", "writer"),
    ]


def test_hand_offs_that_cannot_be_refused_end_the_run() -> None:
    """The next model call or hand-off raises the abort."""
    adapter = Adapter("test")
    with pytest.raises(LoopGuardAbort):
        for giver, taker in [("triage", "billing"), ("billing", "triage")] * 20:
            adapter.before_model("chat-1")
            adapter.after_model(Answer("", agent=giver), "chat-1")
            adapter.handed_off(taker, giver, session="chat-1")


def test_a_loop_of_agents_at_ask_asks_before_every_call() -> None:
    """`admit` says `prompt_user`: such a loop has no call of its own."""
    adapter = Adapter("test")
    for number in range(8):
        _hand_over(adapter, number)
    found = adapter.find("chat-1")
    assert found is not None
    assert found.flag.control.action is Action.ASK
    admission = execution.admit("search", {"query": "x"}, session="chat-1")
    assert admission.choice is execution.Choice.PROMPT_USER


def test_the_next_run_of_a_conversation_is_the_users_next_turn() -> None:
    """What the policy aborted in the run before may go on."""
    adapter = Adapter("test")
    adapter.begin("chat-1")
    with pytest.raises(LoopGuardAbort):
        for _ in range(20):
            search(adapter)
    adapter.begin("chat-1")
    assert search(adapter) is None


def test_calls_of_two_agents_are_refused_below_spans_that_no_guard_sees() -> None:
    """Whose call it is, the default guard knows from the adapter, and not from the framework."""
    adapter, tracer = Adapter("test"), TracerProvider().get_tracer("framework")
    adapter.tool_call("plan", {}, session="chat-1", agent="planner").report(failed=False)
    said = list[str | None]()
    for _ in range(6):
        with tracer.start_as_current_span("execute_tool search"):
            said.append(search(adapter))
    assert [one is None for one in said] == [True] * 4 + [False] * 2


def test_a_run_in_a_call_is_not_the_users_next_turn() -> None:
    """An agent that is a tool is a part of the run; the next one after it is the next turn."""
    adapter = Adapter("test")
    adapter.begin("chat-1")
    with pytest.raises(LoopGuardAbort):
        for _ in range(20):
            with adapter.tool_call("research", {"topic": "x"}, session="chat-1"):
                Adapter("test").begin("chat-1")
                search(adapter)
    adapter.begin("chat-1")
    assert search(adapter) is None


@pytest.mark.parametrize("own", [True, False], ids=["its provider", "another"])
def test_a_processor_that_is_there_counts_alone(
    own: bool, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """No second guard is fed; that the processor does not see the adapter's spans is told once."""
    steps, provider = _watched()
    adapter = Adapter("test", tracer_provider=provider if own else TracerProvider())
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        search(adapter)
        search(adapter)
    assert (len(seen()), len(steps())) == (0, 2 * own)
    assert caplog.text.count("no LoopGuardSpanProcessor sees") == (not own)


def test_a_processor_that_comes_later_counts_alone_from_then_on(seen: Seen) -> None:
    """No call is counted twice: not even the one that is under way."""
    provider = TracerProvider()
    adapter = Adapter("test", tracer_provider=provider)
    search(adapter, query="first")
    with adapter.tool_call("search", {"query": "second"}, session="chat-1") as call:
        steps, _ = _watched(provider)
        call.set_result("no results")
    search(adapter, query="third")
    counted = [step.args for each in (seen, steps) for _, step in each()]
    assert len(seen()) == 1
    assert len(counted) == 3


def test_what_the_guard_is_shown_is_exported_nowhere() -> None:
    """There is one span for each call, the adapter's own, and no other is ever current."""
    provider = provider_with(ended := Ended())
    adapter = Adapter("test", tracer_provider=provider)
    adapter.before_model("chat-1")
    adapter.after_model(Answer("Hm."), "chat-1")
    search(adapter)
    assert [span.name for span in ended.spans] == ["execute_tool search"]
    with Adapter("test").tool_call("search", {}, session="chat-1"):
        assert not trace.get_current_span().get_span_context().is_valid


def test_without_a_key_the_trace_of_the_user_is_the_session(seen: Seen) -> None:
    """Where the framework has no id, and a span of the user's is current."""
    adapter = Adapter("test")
    tracer = TracerProvider().get_tracer("app")
    with tracer.start_as_current_span("work") as span, pytest.raises(LoopGuardAbort):
        for _ in range(20):
            search(adapter, None)
    assert {key for key, _ in seen()} == {f"{span.get_span_context().trace_id:032x}"}


def test_below_a_span_that_no_guard_sees_the_key_of_the_framework_is_the_session(
    seen: Seen,
) -> None:
    """An instrumentation writes spans to a provider without a processor."""
    adapter = Adapter("test", instrumented=lambda: True)
    span = TracerProvider().get_tracer("instrumentation").start_span("agent")
    with pytest.raises(LoopGuardAbort):
        for _ in range(20):
            adapter.before_model("chat-1", span)
            adapter.after_model(Answer("I search."), "chat-1", span)
            call = adapter.tool_call("search", {"query": "x"}, session="chat-1", span=span)
            if call.refusal() is None:
                with call:
                    call.set_result("no results")
    assert {key for key, _ in seen()} == {"chat-1"}


@pytest.mark.parametrize("switch", ["LOOPGUARD_ENABLED=false", "OTEL_SDK_DISABLED=true", ""])
def test_a_guard_that_is_off_stays_off_and_the_adapter_says_so(
    switch: str, seen: Seen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the environment, or by the setting of a processor: one warning, and nothing is counted."""
    name, _, value = switch.partition("=")
    off = None if switch else LoopGuardSpanProcessor(enabled=False)
    if name:
        monkeypatch.setenv(name, value)
    adapter = Adapter("test")
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        adapter.begin("chat-1")
        for _ in range(6):
            assert search(adapter) is None
    assert seen() == []
    assert caplog.text.count("nothing is guarded, as") == 1
    del off


def _watched(provider: TracerProvider | None = None) -> tuple[Seen, TracerProvider]:
    """A provider with a processor, and the steps that its guard is shown."""
    steps, given = Seen(), provider or TracerProvider()
    given.add_span_processor(LoopGuardSpanProcessor(steps.guard()))
    return steps, given
