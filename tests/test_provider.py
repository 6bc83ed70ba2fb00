"""`setup()` and the instrumentor: the guard on the tracer provider that is there."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from weakref import WeakKeyDictionary

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

from otel_loopguard import (
    LoopGuard,
    LoopGuardError,
    LoopGuardSettingsError,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    Settings,
    control,
    semconv,
    session,
    setup,
)
from otel_loopguard.sdk import exporter as exporters
from otel_loopguard.sdk.instrumentor import LoopGuardInstrumentor
from tests.agents import agent, provider_with, settle, tool_call
from tests.calls import handle_of
from tests.programs import printed
from tests.tables import rows


def test_it_puts_processor_and_exporter_on_a_provider_once() -> None:
    """Ended spans carry their decision; to call it again changes nothing, or adds an exporter."""
    provider, memory = provider_with(), InMemorySpanExporter()
    guard = setup(tracer_provider=provider, repeat_threshold=4)
    wrong: Any = InMemorySpanExporter
    with pytest.raises(TypeError, match=r"InMemorySpanExporter\(\)"):
        setup(tracer_provider=provider, exporter=wrong)
    assert setup(tracer_provider=provider, exporter=memory) is guard
    assert setup(tracer_provider=provider) is guard
    assert setup(guard, tracer_provider=provider, exporter=memory) is guard
    assert setup(tracer_provider=provider, repeat_threshold=4) is guard
    assert guard.settings.repeat_threshold == 4
    with session(uuid.uuid4().hex) as key:
        for _ in range(4):
            tool_call(provider.get_tracer("my.agent"))
        assert control.current().action == "hint"
    provider.force_flush()
    spans = memory.get_finished_spans()
    assert len(spans) == 4
    assert dict(spans[3].attributes or {})["loopguard.decision.action"] == "hint"
    assert handle_of(guard, key).report().steps == 4


@pytest.mark.parametrize("first", ["by hand", "setup"])
def test_two_processors_of_one_guard_count_once(first: str) -> None:
    """Somebody added one before, or adds one afterwards."""
    provider, guard = provider_with(), LoopGuard()
    ways = [
        lambda: provider.add_span_processor(LoopGuardSpanProcessor(guard)),
        lambda: setup(guard, tracer_provider=provider),
    ]
    for way in ways if first == "by hand" else reversed(ways):
        way()
    with session(uuid.uuid4().hex) as key:
        for _ in range(2):
            tool_call(provider.get_tracer("my.agent"))
    assert handle_of(guard, key).report().steps == 2


@pytest.mark.parametrize(("options", "said"), rows(__file__, "refused"))
def test_what_cannot_be_is_refused(options: str, said: str) -> None:
    """A second guard on one provider, a setting that there is not."""
    provider = provider_with()
    setup(LoopGuard(Settings()), tracer_provider=provider)
    # Made here: a guard that is made is one of the process.
    given = json.loads(options)
    made = {name: LoopGuard() if one == "a guard" else one for name, one in given.items()}
    with pytest.raises(LoopGuardSettingsError, match=said):
        setup(tracer_provider=provider, **made)


def test_a_provider_without_processors_is_refused_by_name() -> None:
    """It says what to do."""
    with pytest.raises(LoopGuardError, match="NoOpTracerProvider takes no span processors"):
        setup(tracer_provider=NoOpTracerProvider())


_SEEN = """
from otel_loopguard import control, session
from tests.agents import tool_call
with session("s"):
    for _ in range(3):
        tool_call(trace.get_tracer("my.agent"))
    print("now:", control.current().action)
"""


def test_log_events_leave_by_a_logger_provider_that_is_set_later() -> None:
    """`setup()` needs no order: what is decided after both are there comes out."""
    program = f"""
from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
import otel_loopguard
guard = otel_loopguard.setup()
memory, loggers = InMemoryLogRecordExporter(), LoggerProvider()
loggers.add_log_record_processor(SimpleLogRecordProcessor(memory))
set_logger_provider(loggers)
{_SEEN}
guard.shutdown()
print([one.log_record.event_name for one in memory.get_finished_logs()])
"""
    assert "['loopguard.decision']" in printed(program)


def test_where_there_is_no_provider_it_sets_one() -> None:
    """The SDK's, which exports as the environment says; where that disables it, it is told."""
    program = f"""
from opentelemetry import trace
import otel_loopguard
guard = otel_loopguard.setup()
assert otel_loopguard.setup() is guard is otel_loopguard.LoopGuard.default()
{_SEEN}
"""
    assert "now: hint" in printed(program)
    out = printed(program, OTEL_TRACES_EXPORTER="console")
    assert '"loopguard.decision.action": "hint"' in out
    out = printed("import otel_loopguard; otel_loopguard.setup()", OTEL_SDK_DISABLED="true")
    assert "OTEL_SDK_DISABLED is set" in out


def test_it_works_after_logfire() -> None:
    """Logfire's provider stands before the SDK's; configured again, it is set up again."""
    pytest.importorskip("logfire")
    program = f"""
from opentelemetry import trace
import logfire, otel_loopguard
for _ in range(2):
    logfire.configure(send_to_logfire=False, console=False)
    guard = otel_loopguard.setup()
    assert otel_loopguard.setup() is guard
{_SEEN}
"""
    assert "now: hint" in printed(program)


@pytest.fixture
def instrumentor(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopGuardInstrumentor]:
    """The one instrumentor of the process, at rest before and after, without earlier exporters."""
    monkeypatch.delenv("OTEL_CONFIG_FILE", raising=False)
    monkeypatch.setattr(LoopGuard, "default", classmethod(lambda cls: cls()))
    monkeypatch.setattr(exporters, "_given_settings", WeakKeyDictionary())
    one = LoopGuardInstrumentor()
    yield one
    if one.is_instrumented_by_opentelemetry:
        one.uninstrument()


def loop(provider: TracerProvider, calls: int = 7) -> None:
    """Calls the same tool with the same outcome inside one run, each when the last is judged."""
    tracer = provider.get_tracer("agent")
    with agent(tracer):
        for _ in range(calls):
            tool_call(tracer)
            settle()


def test_nothing_is_watched_after_uninstrument(instrumentor: LoopGuardInstrumentor) -> None:
    """The processor stays on the provider, which cannot remove it, and does nothing."""
    provider, guard = TracerProvider(), LoopGuard()
    seen: list[int] = []
    instrumentor.instrument(tracer_provider=provider, guard=guard)
    instrumentor.uninstrument()
    guard.on_end = lambda span: seen.append(span.span_id)  # type: ignore[method-assign]
    loop(provider)
    assert seen == []


def test_the_settings_of_an_exporter_hold_where_the_instrumentor_says_nothing(
    instrumentor: LoopGuardInstrumentor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options on both sides of a configuration file make one guard; a wrong one is explained."""
    with pytest.raises(LoopGuardSettingsError, match="repeat_threshold"):
        instrumentor.instrument(tracer_provider=TracerProvider(), repeat_threshold="often")
    assert not instrumentor.is_instrumented_by_opentelemetry
    made: list[LoopGuard] = []
    attach = LoopGuard.attach
    monkeypatch.setattr(LoopGuard, "attach", lambda self: (made.append(self), attach(self)))
    exporter = LoopGuardSpanExporter("none", repeat_threshold=5, error_threshold=4)
    instrumentor.instrument(tracer_provider=TracerProvider(), repeat_threshold=6)
    (guard,) = made
    assert guard.settings.repeat_threshold == 6
    assert guard.settings.error_threshold == 4
    exporter.shutdown()


def test_an_exporter_made_later_writes_its_decisions(instrumentor: LoopGuardInstrumentor) -> None:
    """Which of the two was first does not matter."""
    provider, memory = TracerProvider(), InMemorySpanExporter()
    instrumentor.instrument(tracer_provider=provider, repeat_threshold=4)
    provider.add_span_processor(BatchSpanProcessor(LoopGuardSpanExporter(memory)))
    loop(provider, calls=5)
    provider.force_flush()
    assert reported(memory) == ["hint", "deny"]
    provider.shutdown()


def reported(memory: InMemorySpanExporter) -> list[object]:
    """Decisions on the exported tool spans."""
    tools = [span for span in memory.get_finished_spans() if span.name == "execute_tool search"]
    found = [(span.attributes or {}).get(semconv.DECISION_ACTION) for span in tools]
    return [action for action in found if action]


def test_a_last_batch_is_not_counted_again(instrumentor: LoopGuardInstrumentor) -> None:
    """Spans that are flushed after the processor ended were seen by it: no second decision."""
    decisions: list[str] = []
    guard = LoopGuard(on_decision=lambda _, decision: decisions.append(str(decision.action)))
    provider, memory = TracerProvider(), InMemorySpanExporter()
    instrumentor.instrument(tracer_provider=provider, guard=guard)
    provider.add_span_processor(BatchSpanProcessor(LoopGuardSpanExporter(memory)))
    loop(provider, calls=3)
    provider.shutdown()
    assert len(memory.get_finished_spans()) == 4
    assert decisions == ["hint"]


def test_a_provider_that_takes_no_processors_is_warned_about(
    instrumentor: LoopGuardInstrumentor, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an SDK there is one clear warning and no error."""
    instrumentor.instrument(tracer_provider=trace.NoOpTracerProvider())
    instrumentor.uninstrument()
    (message,) = [one.getMessage() for one in caplog.records if one.name == "otel_loopguard"]
    assert "NoOpTracerProvider" in message
    assert "tracer_provider" in message


def test_empty_settings_are_not_given(instrumentor: LoopGuardInstrumentor) -> None:
    """A variable that is not set leaves None in a configuration file."""
    assert LoopGuardSpanExporter("none", mode=None)._settings is None
    instrumentor.instrument(tracer_provider=TracerProvider(), mode=None, repeat_threshold=4)
    processor = instrumentor._processor
    assert processor is not None
    assert processor.guard.settings.mode == "guard"
    assert processor.guard.settings.repeat_threshold == 4


def test_a_configuration_file_that_nobody_can_read_is_passed_over(
    instrumentor: LoopGuardInstrumentor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without the package that reads such files OpenTelemetry does not read it either."""
    monkeypatch.setenv("OTEL_CONFIG_FILE", str(tmp_path / "otel.yaml"))
    missing = Mock(side_effect=ImportError)
    monkeypatch.setattr("otel_loopguard.sdk.instrumentor.import_module", missing)
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", TracerProvider)
    instrumentor.instrument()
    assert instrumentor._processor is not None
