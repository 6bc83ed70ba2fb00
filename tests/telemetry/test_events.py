"""Log events, links and decision spans: what they say, whom they name, and what leaves none."""

import threading
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode, Tracer

from otel_loopguard import LoopGuard, LoopGuardSampler, LoopGuardSpanProcessor, Settings, control
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.sdk import exporter
from otel_loopguard.telemetry import span_annotator as marks
from tests.agents import Ended, agent, provider_with, tool_call
from tests.calls import hand
from tests.jaeger import exported, undrawn
from tests.sessions.test_cycles import TEXTS
from tests.stores.servers import Server, wait_for
from tests.telemetry.scene import Scene


def test_one_event_for_each_decision_with_the_context_of_its_span() -> None:
    """Name, severity by action, attributes, trace and span of what was decided on."""
    scene = Scene()
    with agent(scene.tracer):
        spans = [tool_call(scene.tracer).get_span_context() for _ in range(5)]
    found = scene.events("loopguard.decision")
    levels = (SeverityNumber.INFO, SeverityNumber.WARN, SeverityNumber.ERROR)
    assert [event.severity_number for event in found] == [*levels]
    for event, action, span in zip(found, ("hint", "deny", "abort"), spans[2:], strict=True):
        names = ("loopguard.decision.action", "gen_ai.tool.name", "gen_ai.agent.name")
        assert [event.attributes[name] for name in names] == [action, "search", "a"]
        assert (event.trace_id, event.span_id) == (span.trace_id, span.span_id)
        assert event.trace_flags.sampled
        assert event.body == event.attributes["loopguard.decision.message"]
        assert abs(event.timestamp - time.time_ns()) < 600e9
        assert "error.type" not in event.attributes
    assert scene.total("loopguard.events") == 3


def test_what_is_put_before_people_is_told_once_and_its_end_too() -> None:
    """One event when it is made (WARN), one when it is answered (INFO, with who)."""
    scene = Scene()
    with agent(scene.tracer):
        tool_call(scene.tracer)
        asked = control.escalate("is this the right file?")
        control.answer(asked, "continue", by="ada")
    made, over = scene.events("loopguard.escalation")
    levels = (made.severity_number, over.severity_number)
    assert levels == (SeverityNumber.WARN, SeverityNumber.INFO)
    told = {"loopguard.escalation.id": asked, "loopguard.escalation.cause": "application"}
    assert told.items() <= made.attributes.items()
    told = {"loopguard.escalation.answer": "continue", "loopguard.control.by": "ada"}
    assert told.items() <= over.attributes.items()


def test_half_a_character_in_what_people_write_fails_no_batch() -> None:
    """Exporters write bodies strictly, and so lose what the application logs beside it."""
    scene = Scene()
    with agent(scene.tracer, gen_ai__conversation__id="s"):
        tool_call(scene.tracer)
        control.escalate("is it \ud83d?")
        control.pause("s", "let me look \ud83d", by="ada \ud83d")
    events = [*scene.events("loopguard.escalation"), *scene.events("loopguard.control")]
    assert len(events) >= 2
    for event in events:
        event.body.encode()


def test_a_change_by_hand_is_told_with_who_and_why() -> None:
    """On the open run of the agent; what the policy sets is a decision and has no second event."""
    scene = Scene()
    with agent(scene.tracer) as run:
        scene.loop(3)
        session = scene.guard.report(f"{run.get_span_context().trace_id:032x}").session
        control.pause(session, "let me look", by="ada")
        control.resume(session, by="bob")
    paused, resumed = scene.events("loopguard.control")
    names = ("loopguard.control.by", "loopguard.decision.action", "loopguard.decision.message")
    assert [paused.attributes[name] for name in names] == ["ada", "pause", "let me look"]
    place = run.get_span_context()
    assert (paused.span_id, paused.trace_id) == (place.span_id, place.trace_id)
    assert resumed.body.startswith("bob set ")


def test_a_cycle_of_agents_is_told_as_it_goes() -> None:
    """Found (INFO), intervened (WARN), put before people (ERROR), resolved (INFO); and counted."""
    scene = Scene(switched_off="exchange_ring,exchange_topic")
    for number in range(12):
        agent_, source = ("planner", "critic") if number % 2 else ("critic", "planner")
        scene.guard.observe(hand(TEXTS[number % 2], agent_, source), "run")
    scene.guard.observe(Step(Kind.OTHER, "user", text="stop that"), "run")
    found = scene.events("loopguard.cycle")
    states = [event.attributes["loopguard.cycle.state"] for event in found]
    assert (states[0], states[-1]) == ("found", "resolved")
    assert {"intervened", "escalated"} <= set(states)
    assert found[-1].attributes["loopguard.cycle.outcome"] == "user_turn"
    levels = {"intervened": SeverityNumber.WARN, "escalated": SeverityNumber.ERROR}
    for event, state in zip(found, states, strict=True):
        assert event.severity_number is levels.get(state, SeverityNumber.INFO)
        assert event.attributes["loopguard.session.id"] == "run"
        assert tuple(event.attributes["loopguard.cycle.agents"]) == ("critic", "planner")
        assert event.attributes["loopguard.cycle.patterns"]
        assert event.attributes["loopguard.cycle.duration"] >= 0
        assert event.attributes["loopguard.detection.severity"]
    for state in set(states):
        labels = {"loopguard__cycle__state": state}
        assert scene.total("loopguard.cycles", **labels) == states.count(state)


@pytest.mark.parametrize("off", ["telemetry_events", "telemetry_metrics"])
def test_what_is_switched_off_leaves_nothing(off: str) -> None:
    """Neither an event nor an instrument; the other goes on."""
    scene = Scene(**{off: False})
    with agent(scene.tracer):
        scene.loop(5)
    assert bool(scene.events()) is (off != "telemetry_events")
    assert bool(scene.metrics()) is (off != "telemetry_metrics")


class Troubled(LogRecordProcessor):
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.begun, self.free = threading.Event(), threading.Event()
        self.given_up = False

    def on_emit(self, log_record: Any) -> None:
        self.begun.set()
        if self.fault == "throws":
            raise ConnectionError
        self.given_up = not self.free.wait(60)

    def shutdown(self) -> None:
        self.free.set()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


@pytest.mark.parametrize("fault", ["hangs", "throws"])
def test_a_logger_that_hangs_or_throws_does_not_slow_the_agent(fault: str) -> None:
    """Events wait, bounded and counted; the agent goes on, and shutting down waits briefly."""
    raise_faults(False)
    processor = Troubled(fault)
    loggers = LoggerProvider(shutdown_on_exit=False)
    loggers.add_log_record_processor(processor)
    settings = Settings(abort_after=2, tuning={"delivery": {"queue": 2, "flush_s": 0.2}})
    guard = LoopGuard(settings, logger_provider=loggers)
    tracer = provider_with(LoopGuardSpanProcessor(guard)).get_tracer("agent")
    for _ in range(4):
        with agent(tracer):
            for _ in range(5):
                tool_call(tracer)
    assert processor.begun.wait(60)
    guard.shutdown()
    assert not processor.given_up
    counts = guard.telemetry.numbers.counts
    if fault == "hangs":
        assert counts.get("loopguard.events")[("queue_full",)] >= 8
        processor.free.set()
    else:
        wait_for(lambda: counts.get("loopguard.events").get(("failure",)))
        assert guard.faults.counts["telemetry.emit:ConnectionError"] >= 1


def test_the_deciding_span_is_linked_to_the_first_call_of_its_loop() -> None:
    """On the exported copy only: an agent is linked to nothing below it."""
    scene = Scene()
    with agent(scene.tracer):
        first = tool_call(scene.tracer).get_span_context().span_id
        scene.loop(4)
    *calls, run = scene.spans.get_finished_spans()
    linked = [[link.context.span_id for link in span.links] for span in calls]
    assert linked == [[], [], [first], [first], [first]]
    assert not run.links


def test_a_cycle_is_linked_to_each_of_its_calls() -> None:
    """Two calls in turn: two links; with the setting 1, one; with 0, none."""
    for most in (8, 1, 0):
        scene = Scene(tuning={"telemetry": {"links": most}})
        with agent(scene.tracer):
            for _ in range(8):
                for city in ("Oslo", "Rome"):
                    tool_call(scene.tracer, args=f'{{"q": "{city}"}}', result=f"rain in {city}")
        spans = scene.spans.get_finished_spans()
        first = {span.context.span_id for span in spans[:2]}
        linked = [{link.context.span_id for link in span.links} for span in spans]
        assert max(map(len, linked)) == min(most, 2)
        assert set().union(*linked) <= first


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporters of other tests, without a guard of their own, write what any guard decides."""
    none: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()
    monkeypatch.setattr(marks, "writers", none)
    monkeypatch.setattr(exporter, "writers", none)


def rows_of(scene: Scene) -> tuple[list[Any], list[Any]]:
    scene.guard.settle()
    scene.guard.telemetry.close()
    spans = scene.spans.get_finished_spans()
    made = [span for span in spans if span.name.startswith("loopguard ")]
    return made, [span for span in spans if span not in made]


def with_rows(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Scene:
    """A scene whose provider gets the spans of decisions too."""
    scene = Scene(**settings)
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: scene.provider)
    return scene


@pytest.mark.usefixtures("alone")
def test_without_an_open_span_or_our_exporter_a_decision_has_a_span_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stands below the ended call, with its links, red where it stops."""
    scene = with_rows(monkeypatch, exporter=False)
    for _ in range(5):
        with control.session("run"):
            tool_call(scene.tracer)
    made, calls = rows_of(scene)
    actions = [span.attributes["loopguard.decision.action"] for span in made]
    assert actions == ["hint", "deny", "abort"]
    assert [span.name for span in made] == [f"loopguard {action}" for action in actions]
    stops = [span.status.status_code is StatusCode.ERROR for span in made]
    assert stops == [False, True, True]
    assert all(span.start_time == span.end_time and span.links for span in made)
    assert {span.parent.span_id for span in made} <= {span.context.span_id for span in calls}
    assert scene.total("loopguard.steps") == 5


def test_every_decision_may_have_a_span_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row below the decided span, whatever else has the decision; notes have none."""
    scene = with_rows(monkeypatch, decision_spans="always")
    with agent(scene.tracer):
        scene.loop(5)
    made, spans = rows_of(scene)
    decided = {
        span.attributes["loopguard.decision.action"]: span.context.span_id
        for span in spans
        if span.name == "execute_tool search" and "loopguard.decision.action" in span.attributes
    }
    rows = {span.name: span.parent.span_id for span in made}
    assert rows == {f"loopguard {action}": above for action, above in decided.items()}
    assert set(decided) == {"hint", "deny", "abort"}
    assert [undrawn(each) for each in exported([*made, *spans])] == [set()]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("how", ["exporter", "agent", "setting"])
def test_there_is_no_decision_span_where_a_decision_has_a_place(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our exporter writes it, or an open span has it, or it is switched off."""
    scene = with_rows(monkeypatch, exporter=how == "exporter", decision_spans=how != "setting")
    with control.session("run"), agent(scene.tracer) if how == "agent" else nullcontext():
        scene.loop(5)
        scene.guard.settle()
    assert rows_of(scene)[0] == []
    assert len(scene.events("loopguard.decision")) == 3


def test_a_span_that_is_not_exported_keeps_nothing_waiting() -> None:
    """Head sampling: decisions on spans that no exporter gets do not fill the queue."""
    guard = LoopGuard(Settings(abort_after=2))
    ended = Ended()
    provider = TracerProvider(sampler=LoopGuardSampler(ALWAYS_OFF), shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    provider.add_span_processor(ended)
    with agent(provider.get_tracer("agent")):
        for _ in range(5):
            tool_call(provider.get_tracer("agent"))
        assert control.current().action is Action.ABORT
    context = ended.named("execute_tool")[-1].get_span_context()
    assert context is not None
    assert guard.annotation(context.trace_id, context.span_id) is None


def storing(server: Server, **stores: float) -> Scene:
    tuning = {"stores": {"delay_s": 0.01, **stores}}
    return Scene(store_url=server.url, digest_key="a key of sixteen", tuning=tuning)


def test_calls_of_the_store_make_no_spans_and_are_measured(own_redis: Server) -> None:
    """With Redis instrumented, a guard that stores leaves no span; its calls show as metrics."""
    scene = storing(own_redis)
    RedisInstrumentor().instrument(tracer_provider=scene.provider)
    try:
        with agent(scene.tracer):
            scene.loop(5)
        wait_for(lambda: scene.total("loopguard.store.writes") > 3)
        scene.guard.shutdown()
    finally:
        RedisInstrumentor().uninstrument()
    names = {span.name.split()[0] for span in scene.spans.get_finished_spans()}
    assert names == {"invoke_agent", "execute_tool"}
    took = scene.metrics()["loopguard.store.operation.duration"]
    written = {"db.operation.name": "write", "db.system.name": "redis"}
    assert any(point.count for labels, point in took if written.items() <= labels.items())
    assert scene.values("loopguard.store.status") == [({"loopguard.store.state": "available"}, 1)]
    assert not any("error.type" in labels for labels, _ in scene.values("loopguard.store.writes"))


def test_a_store_that_is_gone_is_unavailable(own_redis: Server) -> None:
    """Its state, failed calls and queue are on metrics."""
    scene = storing(own_redis, flush_s=0.1)
    own_redis.kill()
    with agent(scene.tracer):
        tool_call(scene.tracer)
    gone = {"loopguard__store__state": "unavailable"}
    wait_for(lambda: scene.total("loopguard.store.status", **gone) == 1)
    assert scene.total("loopguard.store.queue.size") > 0
    most = scene.guard.settings.tuning.stores.queue
    assert scene.total("loopguard.store.queue.capacity") == most
    took = scene.metrics()["loopguard.store.operation.duration"]
    assert "down" in [labels.get("error.type") for labels, _ in took]
    scene.guard.shutdown()


def test_without_a_store_nothing_is_said_of_one() -> None:
    """No series of a store that there is not."""
    assert not any(name.startswith("loopguard.store.") for name in Scene().metrics())


def _chat(tracer: Tracer, **attributes: object) -> None:
    said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes}
    with tracer.start_as_current_span("chat m", attributes=said):  # type: ignore[arg-type]
        pass


def _spends(tracer: Tracer) -> None:
    for _ in range(3):
        _chat(tracer, **{"gen_ai.usage.input_tokens": 1000})


def _hands_off(tracer: Tracer) -> None:
    task = '{"task": "please find the order number of the customer in the archive"}'
    for number in range(16):
        tool_call(tracer, f"transfer_to_{'bc'[number % 2]}", task, "ok")


@pytest.mark.parametrize(
    ("play", "settings", "span"),
    [(_spends, {"budget_tokens": 1500}, "chat m"), (_hands_off, {}, "execute_tool transfer")],
)
def test_a_decision_names_the_nearest_agent_above(
    play: Callable[[Tracer], None], settings: dict[str, object], span: str
) -> None:
    """On the span, in the log event and on metrics."""
    scene = Scene(**settings)
    with agent(scene.tracer):
        play(scene.tracer)
    spans = (one for one in scene.spans.get_finished_spans() if one.name.startswith(span))
    decided = [one.attributes for one in spans if "loopguard.decision.action" in one.attributes]
    assert {attributes["gen_ai.agent.name"] for attributes in decided} == {"a"}
    events = scene.events("loopguard.decision")
    assert {event.attributes["gen_ai.agent.name"] for event in events} == {"a"}
    for metric in ("decisions", "detections", "steps"):
        found = scene.values(f"loopguard.{metric}")
        assert {labels["gen_ai.agent.name"] for labels, _ in found} == {"a"}


def test_a_span_that_names_an_agent_keeps_the_name() -> None:
    """What an instrumentation wrote stays."""
    scene = Scene(budget_tokens=1500)
    with agent(scene.tracer):
        for _ in range(3):
            _chat(scene.tracer, **{"gen_ai.usage.input_tokens": 1000, "gen_ai.agent.name": "b"})
    *chats, _ = scene.spans.get_finished_spans()
    assert [span.attributes["gen_ai.agent.name"] for span in chats] == ["b"] * 3
