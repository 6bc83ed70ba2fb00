"""`setup()`: the guard on the tracer provider that is there."""

import uuid
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

from otel_loopguard import (
    LoopGuard,
    LoopGuardError,
    LoopGuardSettingsError,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    setup,
)
from tests.agents import provider_with, tool_call
from tests.calls import handle_of
from tests.programs import printed


def test_it_puts_processor_and_exporter_on_a_provider_once() -> None:
    """Ended spans carry their decision; to call it again changes nothing, or adds an exporter."""
    provider, memory = provider_with(), InMemorySpanExporter()
    guard = setup(tracer_provider=provider, repeat_threshold=4)
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


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repeat_threshold": 9}, "another repeat_threshold"),
        ({"guard": LoopGuard}, "another guard"),
        ({"guard": LoopGuard, "mode": "shadow"}, "a guard was given"),
        ({"repeat_treshold": 9}, "repeat_treshold"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    """A second guard on one provider, a setting that there is not."""
    provider = provider_with()
    setup(LoopGuard(Settings()), tracer_provider=provider)
    # Made here: a guard that is made is one of the process.
    made = {name: value() if value is LoopGuard else value for name, value in options.items()}
    with pytest.raises(LoopGuardSettingsError, match=said):
        setup(tracer_provider=provider, **made)


def test_a_provider_without_processors_is_refused_by_name() -> None:
    """It says what to do."""
    with pytest.raises(LoopGuardError, match="NoOpTracerProvider takes no span processors"):
        setup(tracer_provider=NoOpTracerProvider())


_SEEN = """
from otel_loopguard import control, session
with session("s"):
    tracer = trace.get_tracer("my.agent")
    for _ in range(3):
        attributes = {"gen_ai.tool.name": "t", "gen_ai.tool.call.arguments": "{}"}
        with tracer.start_as_current_span("execute_tool t", attributes=attributes) as span:
            span.set_attribute("gen_ai.tool.call.result", "nothing found")
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
