"""What the guard cannot see is logged once per process and reason."""

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, use_span

from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardSampler,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    set_testing,
)
from otel_loopguard._control import context, gate
from otel_loopguard._util.bounded import WeakList
from otel_loopguard._util.errors import warn_blind
from tests.agents import agent, provider_with, settle, tool_call


def test_each_reason_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The second call with a reason says nothing, another reason does; switched off, none."""
    with set_testing("off"):
        assert not warn_blind("no_steps", 2)
    assert [warn_blind("no_steps", n) for n in (3, 4)] == [True, False]
    assert warn_blind("no_tokens")
    first, second = caplog.messages
    assert "asked 3 times" in first
    assert "neither a cost nor tokens" in second


def test_tool_calls_without_a_session_and_a_root_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with the remedy; below an agent, in a session, or on a server they are not."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
    for _ in range(8):
        with agent(tracer):
            tool_call(tracer)
        with session(uuid.uuid4().hex):
            tool_call(tracer)
        with tracer.start_as_current_span(
            "tools/call t", kind=SpanKind.SERVER,
            attributes={"mcp.method.name": "tools/call", "gen_ai.tool.name": "t"},
        ):  # fmt: skip
            pass
    settle()
    assert not caplog.records
    for number in range(8):
        assert len(caplog.records) == (number >= 5)
        tool_call(tracer)
        settle()
    assert "otel_loopguard.session(key)" in caplog.text


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which nothing was asked yet, and no guard was made."""
    monkeypatch.setattr(context, "_guards", WeakList[context.Guard]())
    monkeypatch.setattr(context, "questions", context.Questions())
    # In sessions of other tests.
    monkeypatch.setattr(context, "STOPPING", {})
    monkeypatch.setattr(gate, "any_news", lambda: False)


QUESTIONS: dict[str, Callable[[], object]] = {
    "check": control.check, "current": control.current, "gate": control.gate,
    "hint": control.hint, "refused": lambda: control.refused("search"),
}  # fmt: skip


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_loop_that_asks_where_no_guard_is_is_told(
    question: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, by whichever question: the answer is `allow` for ever."""
    for number in range(50):
        assert len(caplog.records) == (number >= 5)
        QUESTIONS[question]()
    assert "LoopGuardSpanProcessor" in caplog.text


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seen", [False, True])
def test_a_loop_that_asks_and_is_never_seen_is_told(
    seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its spans are of a shape that no dialect knows; or each trace has ended when it asks."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
    for number in range(50):
        assert len(caplog.records) == (number >= 30)
        if seen:
            with agent(tracer):
                tool_call(tracer)
        with nullcontext() if seen else tracer.start_as_current_span("think"):
            control.check()
    assert ("otel_loopguard.session(key)" if seen else "ever saw a step") in caplog.text


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["dropped", "recorded", "known", "remote"])
def test_a_loop_whose_run_the_sampler_dropped_is_told(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Other runs are seen, so that nothing else tells of it."""
    sampler = LoopGuardSampler(ALWAYS_OFF) if kind == "recorded" else ALWAYS_OFF
    processor = LoopGuardSpanProcessor()
    seen = provider_with(processor).get_tracer("my.agent")
    dropped = TracerProvider(sampler=sampler)
    dropped.add_span_processor(processor)
    with agent(seen, gen_ai__conversation__id="known"):
        tool_call(seen)
    away = NonRecordingSpan(SpanContext(1, 2, is_remote=True))
    run = use_span(away) if kind == "remote" else agent(dropped.get_tracer("my.agent"))
    with session("known" if kind == "known" else "other"), run:
        for _ in range(50):
            control.check()
    assert ("LoopGuardSampler" in caplog.text) is (kind == "dropped")
    assert len(caplog.records) == (kind == "dropped")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", ["a session", "an open run", "switched off"])
def test_a_loop_that_is_seen_is_told_nothing(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nor one whose guard is off on purpose."""
    guard = LoopGuard(Settings(enabled=kind != "switched off"))
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    if kind == "a session":
        with agent(tracer), session("run"):
            tool_call(tracer)
    blocks = {"a session": session("run"), "an open run": agent(tracer)}
    with blocks.get(kind, nullcontext()):
        for _ in range(50):
            control.check()
    assert not caplog.records


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("seen", [False, True])
def test_a_loop_whose_calls_are_never_seen_is_told(
    seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The agent's span is read, and those of its tools have names of their own."""
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("my.agent")
    with agent(tracer), session("run"):
        for number in range(50):
            assert len(caplog.records) == (number >= 30 and not seen)
            control.refused("search", {"page": number})
            if seen:
                tool_call(tracer, args=str(number), result=f"page {number}")
            else:
                tracer.start_span("search", attributes={"input": number}).end()
    assert ("gen_ai.tool.name" in caplog.text) is not seen


ASKED: dict[str, tuple[str, str, bool]] = {
    "by another name": ("find", '{"q": "x"}', True),
    "about other arguments": ("search", '{"query": "y"}', True),
    "as its span has it": ("search", '{"q": "x"}', False),
}


@pytest.mark.parametrize("most", ["deny", "abort"])
@pytest.mark.parametrize("case", ASKED)
def test_a_loop_that_asks_about_other_calls_than_it_makes_is_told(
    case: str, most: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """After as many denied calls as end a run, also where none may; other calls do not matter."""
    name, args, told = ASKED[case]
    guard = LoopGuard(Settings(max_action=most))
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with session(case), agent(tracer):
        for _ in range(20):
            if control.current().action is Action.ABORT:
                break
            refused = control.refused(name, args) is not None
            assert control.refused("read") is None
            tool_call(
                tracer,
                more={"error.type": "refused"} if refused else {},
                error="refused" if refused else None,
            )
    settle()
    assert (f"was asked about {name!r} and let it pass" in caplog.text) is told


def test_a_loop_of_ever_new_calls_that_asks_about_each_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unknown tool is asked for with other arguments each time: what was denied is not made."""
    unknown = "unknown tool 'lookup'. Available tools: search, fetch"
    guard = LoopGuard()
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with session("new"), agent(tracer):
        for item in range(20):
            args = f'{{"id": {item}}}'
            if control.current().action is Action.ABORT or control.refused("lookup", args):
                break
            tool_call(tracer, "lookup", args, error=unknown)
        assert control.current().action is Action.ABORT
    settle()
    assert "let it pass" not in caplog.text


MISSPELT: list[dict[str, object]] = [
    {"exempt_tools": "serch"},
    {"tools": {"serch": {"polls": True}}},
    {"agent_limits": {"serch": {"actions": 9}}},
]


@pytest.mark.parametrize(
    "settings",
    [*MISSPELT, {"exempt_tools": "search"}, {"exempt_tools": "deploy"}, {"exempt_tools": "searc*"}],
    ids=str,
)
def test_a_name_that_settings_misspell_is_told(
    settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """When the guard shuts down: only then is it known that there is no such tool or agent."""
    processor = LoopGuardSpanProcessor(LoopGuard(Settings(**settings)))
    tracer = provider_with(processor).get_tracer("my.agent")
    with agent(tracer, gen_ai__agent__name="search"):
        tool_call(tracer)
    assert not caplog.records
    processor.shutdown()
    told = "'serch', which never" in caplog.text or "'serch', which was never" in caplog.text
    assert told is (settings in MISSPELT)
