"""Annotated spans go out as copies, all others as they are, and none is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_loopguard import LoopGuard, semconv
from otel_loopguard._util import errors as faults
from otel_loopguard.core.decision import Annotation
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.sdk import exporter as onward
from otel_loopguard.sdk.exporter import LoopGuardSpanExporter
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

HINT = {semconv.DECISION_ACTION: "hint", semconv.DETECTION_REPEAT_COUNT: 3.0}
DENY = {semconv.DECISION_ACTION: "deny", semconv.DECISION_MESSAGE: "3 equal calls"}
ABORT = {semconv.DECISION_ACTION: "abort"}


class ScriptedGuard:
    """Annotates the spans whose name is in `script`, and remembers what it was fed."""

    def __init__(self, script: Mapping[str, Annotation] | None = None, **settings: object) -> None:
        self.script = dict(script or {})
        self.names: dict[int, str] = {}
        self.fed: list[tuple[str, str]] = []
        self.ticks: list[int] = []
        self.attached = False
        self.settings = Settings(**settings)
        self.faults = faults.InternalErrors()
        self.counted: list[tuple[int, int, str]] = []
        self.telemetry = SimpleNamespace(numbers=SimpleNamespace(exported=self.exported))

    def exported(self, spans: int, decisions: int, error: str) -> None:
        self.counted.append((spans, decisions, error))

    def annotation(self, trace_id: int, span_id: int) -> Annotation | None:
        return self.script.pop(self.names.get(span_id, ""), None)

    def on_start(self, span: SpanView) -> None:
        self.names[span.span_id] = span.name
        self.fed.append(("opened", span.name))

    def on_end(self, span: SpanView) -> None:
        self.fed.append(("closed", span.name))

    def tick(self, now: int) -> None:
        self.ticks.append(now)

    def shutdown(self) -> None:
        self.fed.append(("shutdown", ""))


class BrokenGuard(ScriptedGuard):
    def annotation(self, trace_id: int, span_id: int) -> Annotation | None:
        raise RuntimeError

    def on_end(self, span: SpanView) -> None:
        raise RuntimeError


class Collecting(SpanExporter):
    """Keeps the spans that it was given, and answers with `result`."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.spans: list[ReadableSpan] = []
        self.result = result
        self.calls: list[tuple[str, int | None]] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return self.result

    def shutdown(self) -> None:
        self.calls.append(("shutdown", None))

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.calls.append(("force_flush", timeout_millis))
        return False


def ended_span(name: str = "execute_tool search", status: Status | None = None) -> ReadableSpan:
    """Makes a span of the SDK with limits so small that it dropped something of everything."""
    limits = SpanLimits(max_span_attributes=2, max_events=1, max_links=1)
    provider = TracerProvider(resource=Resource({"service.name": "agent"}), span_limits=limits)
    tracer = provider.get_tracer("scope", "1.2", "https://schema", {"scope.attribute": "x"})
    parent = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1))
    others = [Link(SpanContext(1, n, is_remote=False), {"n": n}) for n in (2, 3)]
    context = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    span = tracer.start_span(name, context, SpanKind.CLIENT, links=others, start_time=1_000)
    for key in ("first", "second", "third"):
        span.set_attribute(key, [key])
        span.add_event(key, {"key": key}, timestamp=1_500)
    span.set_attribute("map", {"a": {"b": [1, "x"]}})
    if status:
        span.set_status(status)
    span.end(2_000)
    assert isinstance(span, ReadableSpan)
    return span


def exported(span: ReadableSpan, annotation: Annotation) -> ReadableSpan:
    """Returns what goes out for one span with an annotation."""
    inner = Collecting()
    LoopGuardSpanExporter(inner, ScriptedGuard({span.name: annotation})).export([span])
    return inner.spans[0]


def test_a_copy_keeps_every_field_and_the_dropped_counts() -> None:
    """Name, ids, times, kind, resource, scope, events, links and dropped counts stay equal."""
    span = ended_span()
    copy = exported(span, Annotation(HINT))
    assert copy is not span
    assert dict(copy.attributes or {}) == {**(span.attributes or {}), **HINT}
    for field in (
        "name", "context", "parent", "resource", "events", "links", "kind", "status",
        "start_time", "end_time", "instrumentation_scope",
    ):  # fmt: skip
        assert getattr(copy, field) == getattr(span, field), field
    dropped = (copy.dropped_attributes, copy.dropped_events, copy.dropped_links)
    assert dropped == (span.dropped_attributes, span.dropped_events, span.dropped_links)
    assert dropped == (2, 2, 1)


def test_a_copy_leaves_its_span_untouched() -> None:
    """Other exporters of the same span see it without the annotation."""
    span = ended_span()
    before = span.to_json()
    exported(span, Annotation(ABORT, "aborted"))
    assert span.to_json() == before


def test_values_that_another_processor_forced_in_stay_as_they_are() -> None:
    """A span built with a plain dict of odd values keeps them in its copy."""
    odd = object()
    span = ReadableSpan("odd", SpanContext(1, 2, is_remote=False), attributes={"odd": odd, "": 1})
    copy = exported(span, Annotation(HINT))
    assert dict(copy.attributes or {}) == {"odd": odd, "": 1, **HINT}


def test_spans_without_a_decision_are_the_same_objects_in_the_same_order() -> None:
    """Only the annotated span of a batch is replaced."""
    spans = [ended_span("a"), ended_span("b"), ended_span("c")]
    inner = Collecting()
    LoopGuardSpanExporter(inner, ScriptedGuard({"b": Annotation(HINT)})).export(spans)
    assert [span.name for span in inner.spans] == ["a", "b", "c"]
    assert [copy is span for copy, span in zip(inner.spans, spans, strict=True)] == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "error_type"),
    [(ABORT, "loopguard_abort"), (DENY, "loopguard_deny")],
    ids=["abort", "deny"],
)
def test_a_stop_turns_the_span_to_error(attributes: dict[str, str], error_type: str) -> None:
    """Abort and deny set ERROR, its description and `error.type`."""
    copy = exported(ended_span(), Annotation(attributes, "3 equal calls"))
    assert copy.status.status_code is StatusCode.ERROR
    assert copy.status.description == "3 equal calls"
    assert (copy.attributes or {})["error.type"] == error_type


def test_a_hint_leaves_the_status_alone() -> None:
    """A hint is not an error, and the span gets no `error.type`."""
    copy = exported(ended_span(status=Status(StatusCode.OK)), Annotation(HINT))
    assert copy.status.status_code is StatusCode.OK
    assert "error.type" not in (copy.attributes or {})


def test_an_error_of_the_span_itself_is_kept() -> None:
    """A span that failed by itself keeps its description and gets no `error.type` of ours."""
    span = ended_span(status=Status(StatusCode.ERROR, "404"))
    copy = exported(span, Annotation({**DENY, "error.type": "loopguard_deny"}, "3 equal calls"))
    assert copy.status.description == "404"
    assert "error.type" not in (copy.attributes or {})
    assert (copy.attributes or {})[semconv.DECISION_ACTION] == "deny"


def test_an_error_type_of_the_span_itself_is_kept() -> None:
    """`error.type` that the instrumentation set is not replaced."""
    context = SpanContext(1, 2, is_remote=False)
    span = ReadableSpan("tool", context, attributes={"error.type": "timeout"})
    copy = exported(span, Annotation({**DENY, "error.type": "loopguard_deny"}, "3 equal calls"))
    assert copy.status.status_code is StatusCode.ERROR
    assert (copy.attributes or {})["error.type"] == "timeout"


def test_a_copy_encodes_to_otlp_as_its_span_does() -> None:
    """Through the OTLP encoder only attributes and status differ."""
    span = ended_span()
    before, after = (
        encode_spans([one]).resource_spans[0].scope_spans[0]
        for one in (span, exported(span, Annotation(ABORT, "aborted")))
    )
    old, new = before.spans[0], after.spans[0]
    assert after.scope == before.scope
    assert new.status.message == "aborted"
    added = {pair.key for pair in new.attributes} - {pair.key for pair in old.attributes}
    assert added == {semconv.DECISION_ACTION, "error.type"}
    for message in (old, new):
        message.ClearField("attributes")
        message.ClearField("status")
    assert new == old
    assert new.dropped_attributes_count == 2


def timed(*times: tuple[str, int, int]) -> list[ReadableSpan]:
    """Makes ended spans of a name, start and end."""
    return [
        ReadableSpan(name, SpanContext(1, n, is_remote=False), start_time=start, end_time=end)
        for n, (name, start, end) in enumerate(times, 1)
    ]


@pytest.mark.parametrize(
    ("times", "moments"),
    [
        ([("b", 3, 4), ("a", 1, 2)], "+a -a +b -b"),
        ([("child", 2, 3), ("run", 1, 4)], "+run +child -child -run"),
        ([("one", 1, 4), ("other", 1, 4)], "+one +other -one -other"),
        ([("child", 1, 2), ("run", 1, 4)], "+run +child -child -run"),
        ([("next", 2, 3), ("last", 1, 2)], "+last -last +next -next"),
        ([("instant", 1, 1), ("run", 1, 4)], "+run +instant -instant -run"),
        ([("back in time", 5, 1)], "+back in time -back in time"),
        ([("never", 0, 0)], "+never -never"),
    ],
    ids=["order", "nested", "equal", "same start", "adjoining", "instant", "jump", "no times"],
)
def test_a_guard_without_a_processor_is_fed_as_it_happened(
    times: list[tuple[str, int, int]], moments: str
) -> None:
    """The starts and ends of a batch come in order of time, parents around their children."""
    guard = ScriptedGuard()
    LoopGuardSpanExporter(Collecting(), guard).export(timed(*times))
    fed = " ".join(("+" if what == "opened" else "-") + name for what, name in guard.fed)
    assert fed == moments
    assert len(guard.ticks) == 1


def test_what_the_guard_held_back_is_counted_at_the_end() -> None:
    """An exporter that feeds the guard lets it finish; one that does not leaves it alone."""
    feeding, watched = ScriptedGuard(), ScriptedGuard()
    watched.attached = True
    for guard in (feeding, watched):
        exporter = LoopGuardSpanExporter(Collecting(), guard)
        exporter.export([])
        exporter.shutdown()
    assert feeding.fed == [("shutdown", "")]
    assert watched.fed == []


def test_a_guard_with_a_processor_is_not_fed() -> None:
    """What a live processor sees is not seen a second time."""
    guard = ScriptedGuard()
    guard.attached = True
    LoopGuardSpanExporter(Collecting(), guard).export([ended_span()])
    assert guard.fed == []


def test_the_last_batch_after_the_processor_ended_is_not_fed() -> None:
    """A batch that is flushed when the processor is already shut down was seen by it."""
    guard = ScriptedGuard()
    guard.attached = True
    exporter = LoopGuardSpanExporter(Collecting(), guard)
    exporter.export([ended_span()])
    guard.attached = False
    exporter.export([ended_span()])
    assert guard.fed == []


def test_a_disabled_guard_is_left_alone() -> None:
    """With `enabled` off spans pass untouched and nothing is fed."""
    guard = ScriptedGuard({"a": Annotation(HINT)}, enabled=False)
    inner, span = Collecting(), ended_span("a")
    LoopGuardSpanExporter(inner, guard).export([span])
    assert inner.spans == [span]
    assert guard.fed == []


def test_faults_lose_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that raises everywhere is counted, and the very spans go out."""
    monkeypatch.setattr(faults, "_raising", False)
    guard, inner = BrokenGuard(), Collecting()
    spans = [ended_span("a"), ReadableSpan("without context"), ended_span("b")]
    result = LoopGuardSpanExporter(inner, guard).export(spans)
    assert result is SpanExportResult.SUCCESS
    assert [one is other for one, other in zip(inner.spans, spans, strict=True)] == [True] * 3
    assert guard.faults.counts["exporter.annotate:RuntimeError"] == 2
    assert guard.faults.counts.total() >= 4


@pytest.mark.parametrize("result", list(SpanExportResult), ids=lambda result: result.name)
def test_the_result_of_the_inner_exporter_is_passed_on(result: SpanExportResult) -> None:
    """FAILURE stays FAILURE, so that the batch processor counts it."""
    exporter = LoopGuardSpanExporter(Collecting(result), ScriptedGuard())
    assert exporter.export([ended_span()]) is result


def test_shutdown_and_flush_are_passed_on() -> None:
    """The inner exporter is shut down and flushed, with the caller's time limit."""
    inner = Collecting()
    exporter = LoopGuardSpanExporter(inner, ScriptedGuard())
    assert exporter.force_flush(123) is False
    exporter.shutdown()
    assert inner.calls == [("force_flush", 123), ("shutdown", None)]


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
def test_it_works_behind_the_processors_of_the_sdk(
    processor: type[SimpleSpanProcessor | BatchSpanProcessor],
) -> None:
    """Simple and batch processors hand their spans on through it."""
    memory = InMemorySpanExporter()
    guard = ScriptedGuard({"tool": Annotation(ABORT, "aborted")})
    provider = TracerProvider()
    provider.add_span_processor(processor(LoopGuardSpanExporter(memory, guard)))
    tracer = provider.get_tracer("agent")
    with tracer.start_as_current_span("run"), tracer.start_as_current_span("tool"):
        pass
    provider.shutdown()
    found = {span.name: span for span in memory.get_finished_spans()}
    assert found["tool"].status.status_code is StatusCode.ERROR
    assert found["run"].status.status_code is StatusCode.UNSET


def test_an_exporter_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`console` is loaded by its entry point, from the keyword first, then from the variable."""
    monkeypatch.setenv("LOOPGUARD_EXPORTER", "console")
    by_variable = LoopGuardSpanExporter(guard=ScriptedGuard())
    monkeypatch.setenv("LOOPGUARD_EXPORTER", "no-such-exporter")
    by_keyword = LoopGuardSpanExporter("console", ScriptedGuard())
    for exporter in (by_variable, by_keyword):
        assert isinstance(exporter._inner, ConsoleSpanExporter)


def test_the_default_is_otlp_by_the_protocol_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """`otlp` follows `OTEL_EXPORTER_OTLP_PROTOCOL` as the SDK does."""
    monkeypatch.delenv("LOOPGUARD_EXPORTER", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    exporter = LoopGuardSpanExporter(guard=ScriptedGuard())
    assert isinstance(exporter._inner, OTLPSpanExporter)
    exporter.shutdown()


def _of_ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "otel_loopguard"]


def test_none_exports_nothing_and_still_feeds_the_guard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`none` is a choice: detection works and nothing is warned about."""
    guard = ScriptedGuard()
    exporter = LoopGuardSpanExporter("none", guard)
    assert exporter.export([ended_span("tool")]) is SpanExportResult.SUCCESS
    assert exporter.force_flush()
    exporter.shutdown()
    assert guard.fed == [("opened", "tool"), ("closed", "tool"), ("shutdown", "")]
    assert not _of_ours(caplog)


@pytest.mark.parametrize("name", ["no-such-exporter", "loopguard"], ids=["unknown", "itself"])
def test_a_name_that_is_not_there_is_warned_about_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning has the name and the variable; spans go nowhere and the agent goes on."""
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        exporter = LoopGuardSpanExporter(name, ScriptedGuard())
        exporter.export([ended_span()])
        exporter.export([ended_span()])
    (message,) = _of_ours(caplog)
    assert repr(name) in message
    assert "LOOPGUARD_EXPORTER" in message


def test_settings_are_checked_at_once() -> None:
    """A bad setting fails when the exporter is made, not at its first batch."""
    with pytest.raises(LoopGuardSettingsError, match="repeat_threshold"):
        LoopGuardSpanExporter("none", repeat_threshold=1)


def test_a_guard_and_settings_together_are_refused() -> None:
    """A guard has its settings; the message names what came on top."""
    with pytest.raises(LoopGuardSettingsError, match="repeat_threshold"):
        LoopGuardSpanExporter("none", ScriptedGuard(), repeat_threshold=4)


def test_an_exporter_that_does_not_load_is_warned_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry point whose package is broken is named with the reason, and spans go nowhere."""
    broken = EntryPoint("broken", "no_such_module:Exporter", "opentelemetry_traces_exporter")
    monkeypatch.setattr(onward, "entry_points", lambda **_: [broken])
    exporter = LoopGuardSpanExporter("broken", ScriptedGuard())
    assert exporter.export([ended_span()]) is SpanExportResult.SUCCESS
    (message,) = _of_ours(caplog)
    assert "no_such_module" in message


DOWN, UP = SpanExportResult.FAILURE, SpanExportResult.SUCCESS


class Fate(SpanExporter):
    """Answers what it is told to."""

    def __init__(self, *answers: SpanExportResult) -> None:
        self._answers: Iterator[SpanExportResult] = iter(answers)
        self._endpoint = "http://collector.test:4318/v1/traces"

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return next(self._answers)


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((UP, UP), []),
        ((DOWN, DOWN, DOWN), ["do not arrive"]),
        ((UP, DOWN, DOWN, UP, UP), ["do not arrive", "arrive again"]),
        ((DOWN, UP, DOWN), ["do not arrive", "arrive again", "do not arrive"]),
    ],
    ids=["up", "down", "for-a-while", "twice"],
)
def test_each_outage_is_told_once(
    answers: tuple[SpanExportResult, ...], said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One warning when spans cease to arrive, one when they do again, however many fail."""
    exporter = LoopGuardSpanExporter(Fate(*answers), LoopGuard())
    given = [exporter.export([ReadableSpan("a")]) for _ in answers]
    assert given == list(answers)
    told = [message for message in caplog.messages if " arrive" in message]
    assert len(told) == len(said)
    assert all(part in text for part, text in zip(said, told, strict=True))


def test_the_warning_names_the_address(caplog: pytest.LogCaptureFixture) -> None:
    """Who reads it knows where spans were sent to, by what, and later how many were lost."""
    exporter = LoopGuardSpanExporter(Fate(DOWN, DOWN, UP), LoopGuard())
    for _ in range(3):
        exporter.export([ReadableSpan("a"), ReadableSpan("b")])
    first, last = caplog.messages
    assert "Fate to http://collector.test:4318/v1/traces" in first
    assert "4 were lost" in last
