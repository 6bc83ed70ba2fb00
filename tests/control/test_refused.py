"""Calls that are refused, hints, results so far; a refusal that comes back as a span."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode

from otel_loopguard import (
    Action,
    BreakerOpenError,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    control,
    execution,
    resilience,
    semconv,
    session,
    sessions,
    turn,
)
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.agents import provider_with, tool_call
from tests.calls import call
from tests.control.messages import Run, action_of, new_name
from tests.tables import rows

NAME, ARGS = "search", {"q": "x"}


def refusal(tool: str = NAME, args: object = ARGS) -> tuple[str, str | None] | None:
    """The action that refuses a call, and who set it."""
    found = control.refused(tool, args)
    return None if found is None else (found.action.value, found.by)


def test_calls_of_the_loop_are_refused_and_others_are_not(run: Run) -> None:
    """By identity: volatile values do not save a call, and other arguments do."""
    assert refusal() is None
    run.calls(4)
    found = control.refused(NAME, ARGS)
    assert found is not None
    assert (found.action, str(found)) == ("deny", found.hint)
    assert str(control.Control()) == "allow"
    assert refusal(args={"q": "something else"}) is None
    assert refusal("another") is None
    assert control.refused(NAME) is not None
    assert control.refused("another") is None


@pytest.mark.parametrize(("spelled", "asked"), rows(__file__, "spelled"))
def test_a_call_is_known_as_its_span_has_it(run: Run, spelled: str, asked: str) -> None:
    """OpenInference writes a single text in place of the map that has nothing else."""
    for _ in range(4):
        tool_call(run.tracer, args=spelled)
    assert refusal(args=json.loads(asked)) == ("deny", "policy")
    assert refusal(args={"q": "y"}) is None


def test_a_session_that_is_held_makes_no_call(run: Run) -> None:
    """Paused or aborted, by a person or by the policy: neither the call of the loop nor another."""
    run.calls(7)
    assert refusal() == refusal("another") == ("abort", "policy")
    control.resume(run.key)
    assert refusal() is None
    control.pause(run.key, by="ada")
    assert refusal() == refusal("another") == ("pause", "ada")


def test_one_question_asks_breakers_and_checks_too(run: Run) -> None:
    """`admit`, `problems` and `breaker` count, with a session and without a step."""
    assert refusal("fetch") is None
    for _ in range(3):
        resilience.breakers().ended("fetch", "tool", ConnectionError("reset"))
    assert refusal("fetch") == ("deny", "breaker")
    found = control.refused("fetch", ARGS)
    assert found is not None
    assert found.hint == execution.admit("fetch", ARGS).reason
    run.calls()
    assert control.refused("fetch") is not None
    resilience.checks().register("length", lambda args: ("it is too long.", "Cut it."), tool="post")
    found = control.refused("post", '{"text": "secret"}')
    assert found is not None
    assert (found.session, found.by) == (run.key, "check")
    assert str(found) == found.hint == "it is too long. Cut it."
    assert found.reason == "a check rejected 'post'"
    assert refusal() is None


@pytest.mark.parametrize("settings", [{"mode": "shadow"}, {"max_action": "hint"}])
def test_a_guard_that_may_not_deny_refuses_nothing(settings: dict[str, Any]) -> None:
    """Neither by a breaker nor by a check; what a person does holds all the same."""
    with Run(**settings) as run:
        run.calls()
        never = "it fails.", "Do not."
        resilience.checks().register("never", lambda _: never, tool="closed")
        assert refusal("closed") is None
        control.abort(run.key)
        assert refusal() == ("abort", "by hand")


def test_a_hint_is_given_once_per_decision(run: Run) -> None:
    """The text stays readable without the quote; the next decision has a hint of its own."""
    assert control.hint() is None
    run.calls(3)
    first = control.hint()
    assert first is not None
    assert control.hint() is None
    assert control.current().hint == first.replace(' The last answer: "nothing found".', "")
    run.calls()
    assert control.hint() not in {None, first}


@pytest.mark.parametrize("ask", [control.check, control.hint, control.gate, control.current])
def test_whoever_asks_hears_each_rung_before_the_next(run: Run, ask: Callable[[], object]) -> None:
    """Ten equal calls that nobody could hear of are one hint."""
    run.calls()
    control.current()
    said: list[str] = []
    for _ in range(3):
        run.calls(10)
        said.append(action_of(run.guard, run.key).value)
        with suppress(LoopGuardAbort):
            ask()
    assert said == ["hint", "deny", "abort"]


def test_a_denied_call_is_refused_also_after_others(run: Run) -> None:
    """They lower the flag, and the loop stays denied: the call is not let through, then ended."""
    run.calls(4)
    assert control.current().action == "deny"
    tool_call(run.tracer, "list", '{"path": "a"}', "nothing found")
    assert control.current().action == "allow"
    assert refusal() == ("deny", "policy")
    assert refusal("list", {"path": "b"}) is None


@pytest.mark.parametrize(
    "named", [True, False], ids=["its calls have another name", "its calls have none"]
)
def test_who_asks_is_known_by_the_current_span(run: Run, named: bool) -> None:
    """The loop of one agent is no other's. Where no span tells who asks, none of several does."""

    def agent(name: str) -> AbstractContextManager[object]:
        said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        return run.tracer.start_as_current_span(f"invoke_agent {name}", attributes=said)

    def call_as(name: str, error: str | None = None) -> None:
        more = {"gen_ai.agent.name": f"the {name}"} if named else {}
        tool_call(run.tracer, more=more, error=error)

    with agent("lead"):
        with agent("a"):
            for _ in range(4):
                call_as("a")
            assert refusal() == refusal(args=None) == ("deny", "policy")
        assert refusal() is refusal(args=None) is None
        with agent("b"):
            assert refusal() is None
            call_as("b", "no connection")
        with agent("a"):
            assert refusal() == ("deny", "policy")
    assert refusal() is None


def test_results_so_far_come_with_the_stop(run: Run) -> None:
    """The newest twenty, oldest first, those before the first step too."""
    assert resilience.partial("a plan, before the session has a step")
    run.calls()
    assert all(resilience.partial(number) for number in range(19))
    control.abort(run.key, by="ada")
    with pytest.raises(LoopGuardAbort) as stop:
        control.check()
    assert stop.value.parts == ("a plan, before the session has a step", *range(19))
    assert resilience.partial(19)
    with pytest.raises(LoopGuardAbort) as stop:
        control.check()
    assert stop.value.parts == tuple(range(20))


def test_results_of_runs_that_are_over_go_with_the_runs_after_them() -> None:
    """Those of a run that is open stay."""
    guard, keys = LoopGuard(), [new_name() for _ in range(150)]
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    run = tracer.start_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"})
    for key in keys:
        around = run if key == keys[0] else trace.INVALID_SPAN
        with trace.use_span(around), session(key):
            tool_call(tracer, more={"gen_ai.conversation.id": key})
            assert resilience.partial("a page")
    kept = [bool(resilience.parts(key)) for key in keys]
    assert kept[0]
    assert sum(kept) <= 101
    run.end()


def test_an_early_result_waits_under_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    """The key of the session is known when a span says it; what none can keep is told, once."""
    guard, key = LoopGuard(), new_name()
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("my.agent")
    with tracer.start_as_current_span("request"):
        assert resilience.partial("early")
        tool_call(tracer, more={"gen_ai.conversation.id": key})
        control.abort(key)
        with pytest.raises(LoopGuardAbort) as stop:
            control.check()
    assert stop.value.parts == ("early",)
    assert not resilience.partial("a")
    assert not resilience.partial("b")
    assert caplog.text.count("it is lost") == 1


def stuck(guard: LoopGuard, session: str, times: int, tool: str = "search") -> Action:
    for _ in range(times):
        guard.observe(call(tool, ARGS, "No results for that."), session)
    return action_of(guard, session)


@pytest.mark.parametrize("scope", ["call", "session"])
def test_the_loop_goes_on_and_another_is_judged(
    caplog: pytest.LogCaptureFixture, scope: str
) -> None:
    """Unless all of the session is allowed. The log names the setting, at deny and at allow."""
    caplog.set_level(logging.INFO)
    guard = LoopGuard()
    assert stuck(guard, scope, 4) is Action.DENY
    assert control.allow(scope, scope, by="ann")  # type: ignore[arg-type]
    assert caplog.text.count('to allow this for good, set exempt_tools = ["search"]') == 2
    assert any("ann" in one and "allow" in one for one in caplog.messages)
    assert stuck(guard, scope, 12) is Action.ALLOW
    assert stuck(guard, scope, 12, "other") is (Action.ABORT if scope == "call" else Action.ALLOW)


class Insisting(Run):
    """It has a check against one of its tools, and insists on that tool."""

    def __init__(self) -> None:
        super().__init__()
        self.at = time.time_ns()
        said = "it is night there.", "Wait until eight."
        resilience.checks().register("hours", lambda _: said, tool="post")

    def told(self) -> str:
        """What it is told in place of a result."""
        found = control.refused("post", ARGS)
        assert found is not None
        assert (found.by, found.hint) == ("check", "it is night there. Wait until eight.")
        return found.hint or ""

    def ends(
        self, error: str | Exception | None = None, name: str = "post", **attributes: str
    ) -> None:
        """Ends the span of a call, failed with an error."""
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        named["gen_ai.tool.call.arguments"] = json.dumps(ARGS)
        said = {key.replace("__", "."): value for key, value in attributes.items()}
        span = self.tracer.start_span(f"execute_tool {name}", attributes=named | said)
        if isinstance(error, Exception):
            span.record_exception(error)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    @property
    def report(self) -> Any:
        return sessions.report(self.key)


@pytest.fixture
def agent() -> Any:
    """An agent whose session is named by the context."""
    with Insisting() as made:
        yield made
    assert made.guard.faults.counts == {}


def ends(agent: Insisting, span: str) -> None:
    """The span of the call ends so, `<told>` being what the agent is told."""
    said = json.loads(span.replace("<told>", agent.told()))
    agent.ends(said.pop("", None), **said)


def raised(agent: Insisting) -> None:
    """The application raises an error of its own with what it was told."""
    agent.ends(ValueError(agent.told()))


def by_breaker(agent: Insisting) -> None:
    """The tool itself asks a breaker, which raises."""
    while resilience.breakers().standing("post").state == "closed":
        resilience.breakers().ended("post", "tool", ConnectionError("reset"))
    with pytest.raises(BreakerOpenError) as stop, resilience.breaker("post"):
        pass
    agent.ends(stop.value)


def by_breaker_and_cut(agent: Insisting) -> None:
    """Likewise; a limit cuts the text of what was raised."""
    while resilience.breakers().standing("post").state == "closed":
        resilience.breakers().ended("post", "tool", ConnectionError("reset"))
    with pytest.raises(BreakerOpenError) as stop:
        resilience.breakers().check("post")
    agent.ends(BreakerOpenError(str(stop.value)[:25]))


def by_pause(agent: Insisting) -> None:
    """The tool waits at a gate until it gives up."""
    if agent.report is None:
        agent.ends(name="look")
    control.pause(agent.key, by="ada")
    with pytest.raises(LoopGuardPaused) as stop:
        control.gate(0)
    control.resume(agent.key)
    agent.ends(f"Error executing tool post: {stop.value}")


ENDS = [pytest.param(row.values[1], id=row.id) for row in rows(__file__, "refused")]


@pytest.mark.parametrize("refuse", [*ENDS, raised, by_breaker, by_breaker_and_cut, by_pause])
def test_it_is_neither_failure_nor_repeat(
    agent: Insisting, refuse: str | Callable[[Insisting], None]
) -> None:
    """No detector, no count, no profile and no check learns from it."""
    for _ in range(12):
        ends(agent, refuse) if isinstance(refuse, str) else refuse(agent)
    assert agent.decisions == []
    assert agent.report.failures == 0
    assert [one for one in agent.report.tools if one.name == "post"] == []
    profile = agent.guard.profiler.summary("post")
    assert profile is None or profile.calls == 0
    assert resilience.checks().learned("post", ARGS) is None


@pytest.mark.parametrize(
    "error",
    [
        "BreakerOpenError: the index is closed",
        "otel_loopguard.errors.LoopGuardPaused('the index is closed')",
        "LoopGuardAbort('x')",
        "loopguard_deny(x)",
        LoopGuardAbort("stuck (session 'another' aborted)", "another"),
        LoopGuardPaused("held (session 'another' was paused)", "another"),
        BreakerOpenError("the breaker of 'another' is open"),
    ],
)
def test_what_reads_like_a_refusal_or_is_one_of_another_session_is_a_failure(
    agent: Insisting, error: str | Exception
) -> None:
    """Also after a refusal of its own."""
    agent.told()
    for _ in range(6):
        agent.ends(error, "fetch", error__type="tool_error")
    assert agent.report.failures == 6
    assert agent.decisions[0].action is Action.HINT


def test_what_only_messages_tell_is_no_evidence_either(agent: Insisting) -> None:
    """The model's next request has the refusal as the result of the call."""
    history: list[Any] = [{"role": "user", "parts": [{"type": "text", "content": "go"}]}]
    for number in range(7):
        asked = {"type": "tool_call", "id": f"c{number}", "name": "post", "arguments": ARGS}
        asks = {"role": "assistant", "parts": [asked]}
        attributes = {"gen_ai.operation.name": "chat"}
        for side, said in (("input", history), ("output", [asks])):
            attributes[f"gen_ai.{side}.messages"] = json.dumps(said)
        agent.tracer.start_span("chat", attributes=attributes).end()
        result = {"type": "tool_call_response", "id": f"c{number}", "response": agent.told()}
        history += [asks, {"role": "tool", "parts": [result]}]
    assert agent.decisions == []
    assert (agent.report.model_calls, agent.report.actions) == (7, 0)


def models_ends(agent: Insisting, after_s: float = 0) -> None:
    """The model is asked once more, some seconds after it was last."""
    began = agent.at + int(after_s * 1e9)
    agent.at = began + 1_000_000_000
    asks = {"gen_ai.operation.name": "chat"}
    agent.tracer.start_span("chat", attributes=asks, start_time=began).end(agent.at)


def insists(agent: Insisting, times: int, *, rests_s: float = 0, look_every: int = 0) -> list[str]:
    """The model asks for nothing but what is refused; what it is told, and when it is stopped."""
    said: list[str] = []
    for number in range(1, times + 1):
        if look_every and number % look_every == 0:
            agent.ends(name="look")
        models_ends(agent, rests_s)
        refuses = control.refused("post", ARGS)
        agent.ends(ValueError(str(refuses)))
        agent.guard.settle()
        said += [one.action.value for one in agent.decisions[len(said) :]]
        with suppress(LoopGuardAbort):
            control.hint()
    return said


def test_an_agent_that_asks_for_nothing_else_is_told_and_then_stopped(agent: Insisting) -> None:
    """No loop is denied that would end it: a check refuses."""
    assert insists(agent, 7) == []
    assert insists(agent, 1) == ["hint"]
    assert insists(agent, 12)[-1] == "abort"


def test_one_that_rests_or_does_something_else_is_not(agent: Insisting) -> None:
    """Who waits does what a breaker asks for; the user's next message begins anew."""
    assert insists(agent, 20, rests_s=6) == []
    assert insists(agent, 20, look_every=7) == []


def test_a_failure_of_the_tool_still_counts_between_refusals(agent: Insisting) -> None:
    """Each is judged as though the refusals were not there, with true numbers."""
    for _ in range(3):
        raised(agent)
        agent.ends("404 Not Found", "fetch")
        ends(agent, ENDS[0].values[0])
    assert [one.action.value for one in agent.decisions[:1]] == ["hint"]
    assert all("'fetch'" in one.message and one.count <= 3 for one in agent.decisions)


def test_a_hint_behind_a_result_makes_it_no_refusal(agent: Insisting) -> None:
    """Some applications put what they were told there, too."""
    agent.ends(name="list", gen_ai__tool__call__result=f"a.txt\n\n{agent.told()}")
    assert agent.report.successes == 1


def test_an_exporters_mark_is_no_failure_of_the_call() -> None:
    """The call that a deny is decided on went well, and a replay of what was exported sees it."""
    memory = InMemorySpanExporter()
    exporting = SimpleSpanProcessor(LoopGuardSpanExporter(memory))
    provider = provider_with(LoopGuardSpanProcessor(), exporting)
    with turn(new_name(), tracer_provider=provider, content=True) as now:
        for _ in range(4):
            now.tool("search", {"q": "x"}, lambda q: f"No results about {q}.")
    provider.shutdown()
    calls = [span for span in memory.get_finished_spans() if span.name.endswith("search")]
    own = calls[3].attributes or {}
    assert own[semconv.DECISION_ACTION] == "deny"
    assert own[semconv.ERROR_TYPE] == semconv.ERROR_DENY
    reader = LoopGuard().reader
    steps = [reader.read(EndedSpanView(span)) for span in calls]
    assert [step and step.error for step in steps] == [False] * 4
