"""What a hint quotes is for the model of this process, and stands nowhere else."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import LoopGuardSpanExporter, LoopGuardSpanProcessor, control
from tests.calls import Run, call
from tests.policy import hint_texts
from tests.stores.memory import MemoryStore

SECRET = "swordfish-4711"
ANSWER = f"No results for {SECRET}."
NAMES = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def test_the_texts_are_those_that_were_read() -> None:
    """`python -m tests.policy.hint_texts` writes them anew."""
    assert hint_texts.page() == hint_texts.GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("answer", "quote"),
    [
        ("\n  First line.\nSecond line", '"First line."'),
        ("x" * 61, f'"{"x" * 57}..."'),
        ({"hits": [], "total": 0}, "\"{'hits': [], 'total': 0}\"."),
        ('He said "yes"', "\"He said 'yes'\"."),
        ("red\x1b[31m \u202egnorw", r'"red\x1b[31m \u202egnorw".'),
    ],
)
def test_one_line_of_sixty_printable_characters(answer: object, quote: str) -> None:
    """Whatever the answer is, nothing of it ends the quotation or changes how it is shown."""
    run = Run()
    run.calls(*[call("read_file", {"path": "a"}, answer)] * 3)
    flag = run.guard.flag_named("run")
    said = flag.take_hint()
    assert said is not None
    assert f"The last answer: {quote} " in said


def test_what_was_not_captured_is_not_quoted() -> None:
    run = Run()
    run.calls(*[call("read_file", {"path": "a"})] * 12)
    flag = run.guard.flag_named("run")
    assert "The last" not in (flag.take_hint() or "The last")


def test_the_control_and_the_decision_have_no_quote() -> None:
    """They go to stores, servers, callbacks and logs."""
    run = Run()
    run.calls(*[call("search", {"q": 1}, ANSWER)] * 4)
    flag = run.guard.flag_named("run")
    assert SECRET in (flag.quoting_hint or "")
    told = [repr(flag.control), repr(run.decisions), repr(replace(flag.control, session="b"))]
    assert not [one for one in told if SECRET in one]
    explained = run.guard.explain("run")
    assert explained is not None
    assert SECRET not in str(explained) + repr(explained.to_dict())


class Recorded(MemoryStore):
    """A store, and all that was ever written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[object] = []

    def append(self, session: str, entries: Any) -> None:
        self.written.append((session, entries))
        super().append(session, entries)

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> None:
        self.written.append((kind, key, value))
        super().put(kind, key, value, ttl_s)

    def publish(self, topic: str, message: bytes) -> None:
        self.written.append((topic, message))
        super().publish(topic, message)


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> dict[str, str]:
    """All that leaves a process with every output on, of a run that is denied and aborted."""
    caplog.set_level(logging.DEBUG)
    store = Recorded()
    monkeypatch.setattr("otel_loopguard.stores.open_store", MagicMock(return_value=store))
    monkeypatch.setattr("otel_loopguard.escalation.service.EscalationService.on_step", MagicMock())
    spans, logs, reader = (
        InMemorySpanExporter(),
        InMemoryLogRecordExporter(),
        InMemoryMetricReader(),
    )
    log_provider = LoggerProvider()
    log_provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
    processor = LoopGuardSpanProcessor(
        verdicts=("annotations", "evaluations"), span_events=True,
        store_url="redis://localhost:1", digest_key="a key of these tests",
        logger_provider=log_provider, meter_provider=MeterProvider(metric_readers=[reader]),
    )  # fmt: skip
    provider = TracerProvider()
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(LoopGuardSpanExporter(spans, processor.guard)))
    tracer = provider.get_tracer("tests")
    hints: list[str | None] = []
    with (
        otel_loopguard.session("s"),
        tracer.start_as_current_span(
            "invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}
        ),
    ):
        for _ in range(8):
            with tracer.start_as_current_span("execute_tool search", attributes=NAMES) as span:
                span_id = span.get_span_context().span_id
                # By an adapter, which writes no content on spans.
                processor.guard.tell(span_id, {"q": 1}, ANSWER)
            hints.append(control.hint())
            control.refused("search", {"q": 1})
    processor.force_flush()
    processor.guard.flush()
    provider.shutdown()
    log_provider.force_flush()
    data = reader.get_metrics_data()
    return {
        "hints": repr(hints),
        "spans": "".join(span.to_json() for span in spans.get_finished_spans()),
        "log records": "".join(repr(one.log_record) for one in logs.get_finished_logs()),
        "metrics": "" if data is None else data.to_json(),
        "log": caplog.text,
        "store": repr(store.written),
    }


def test_nothing_that_leaves_the_process_has_a_quote(out: dict[str, str]) -> None:
    """Span attributes, events and status, log records, metrics, the log, and the store."""
    assert SECRET in out.pop("hints")
    assert '"loopguard.decision.action": "deny"' in out["spans"]
    assert [name for name, text in out.items() if not text] == []
    assert [name for name, text in out.items() if SECRET in text] == []
