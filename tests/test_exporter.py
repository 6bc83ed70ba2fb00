"""Annotated spans go out as copies, all others as they are, and none is lost."""

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    ConsoleSpanExporter,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_loopguard import LoopGuard, LoopGuardSpanExporter, Settings, semconv
from otel_loopguard._util import errors as faults
from otel_loopguard.core.decision import Annotation
from otel_loopguard.sdk import exporter as onward
from otel_loopguard.spans.views import SpanView
from tests.agents import provider_with, tool_call
from tests.tables import rows

HINT = {semconv.DECISION_ACTION: "hint", semconv.DETECTION_REPEAT_COUNT: 3.0}
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
        self.telemetry = SimpleNamespace(numbers=SimpleNamespace(exported=lambda *_: None))

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
    """Keeps the spans that it was given; gives these answers, then success."""

    def __init__(self, *answers: SpanExportResult) -> None:
        self.spans: list[ReadableSpan] = []
        self.calls: list[tuple[str, int | None]] = []
        self._answers = iter(answers)
        self._endpoint = "http://me:s3cret@collector.test:4318/s3cret?key=s3cret"

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return next(self._answers, SpanExportResult.SUCCESS)

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


def test_a_copy_goes_out_as_its_span_does() -> None:
    """Through the OTLP encoder only attributes and status differ, and the span stays as it was."""
    span = ended_span()
    shown = span.to_json()
    before, after = (
        encode_spans([one]).resource_spans[0]
        for one in (span, exported(span, Annotation(ABORT, "aborted")))
    )
    assert after.resource == before.resource
    assert after.scope_spans[0].scope == before.scope_spans[0].scope
    old, new = before.scope_spans[0].spans[0], after.scope_spans[0].spans[0]
    assert new.status.message == "aborted"
    added = {pair.key for pair in new.attributes} - {pair.key for pair in old.attributes}
    assert added == {semconv.DECISION_ACTION, "error.type"}
    for message in (old, new):
        message.ClearField("attributes")
        message.ClearField("status")
    assert new == old
    dropped = (new.dropped_attributes_count, new.dropped_events_count, new.dropped_links_count)
    assert dropped == (2, 2, 1)
    assert span.to_json() == shown


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
    assert (inner.spans[0], inner.spans[2]) == (spans[0], spans[2])
    assert inner.spans[1] is not spans[1]


@pytest.mark.parametrize(("what", "before", "own", "after", "kind"), rows(__file__, "stops"))
def test_a_stop_turns_the_span_to_error(
    what: str, before: str, own: str, after: str, kind: str
) -> None:
    """Abort and deny set ERROR, its description and `error.type`, unless the span has its own."""
    action, _, has_own = what.partition(", ")
    code, _, said = before.partition(" ")
    status, typed = Status(StatusCode[code], said or None), {"error.type": own} if own else {}
    span = ReadableSpan("a", SpanContext(1, 2, is_remote=False), attributes=typed, status=status)
    more = {"error.type": "loopguard_deny"} if has_own else {}
    why = "3 equal" if action != "hint" else None
    copy = exported(span, Annotation({semconv.DECISION_ACTION: action, **more}, why))
    told, attributes = copy.status, copy.attributes or {}
    assert f"{told.status_code.name} {told.description or ''}".strip() == after
    assert attributes.get("error.type", "none") == kind
    assert attributes[semconv.DECISION_ACTION] == action


@pytest.mark.parametrize(("batch", "order"), rows(__file__, "order"))
def test_a_guard_without_a_processor_is_fed_as_it_happened(batch: str, order: str) -> None:
    """The starts and ends of a batch come in order of time, parents around their children."""
    spans = [
        ReadableSpan(name, SpanContext(1, n, False), start_time=int(at), end_time=int(end))
        for n, (name, at, end) in enumerate(map(str.split, batch.split(", ")), 1)
    ]
    guard = ScriptedGuard()
    LoopGuardSpanExporter(Collecting(), guard).export(spans)
    fed = " ".join(("+" if what == "opened" else "-") + name for what, name in guard.fed)
    assert fed == order
    assert len(guard.ticks) == 1


@pytest.mark.parametrize("case", ["fed", "watched", "watched before", "off"])
def test_who_feeds_the_guard_lets_it_finish(case: str) -> None:
    """What a live processor sees, or saw until it ended, is not seen twice; nor if it is off."""
    guard = ScriptedGuard({"a": Annotation(HINT)}, enabled=case != "off")
    guard.attached = case.startswith("watched")
    inner, span = Collecting(), ended_span("a")
    exporter = LoopGuardSpanExporter(inner, guard)
    exporter.export([])
    guard.attached = case == "watched"
    exporter.export([span])
    exporter.shutdown()
    fed = {"fed": ["opened", "closed", "shutdown"], "off": ["shutdown"]}
    assert [what for what, _ in guard.fed] == fed.get(case, [])
    assert (inner.spans == [span]) is (case != "fed")


def test_of_several_exporters_one_shows_a_span_to_the_guard() -> None:
    """Also where each comes in its own time, and the first one has ended."""
    guard, spans = ScriptedGuard(), [ended_span(name) for name in "abc"]
    first, second = (LoopGuardSpanExporter(Collecting(), guard) for _ in range(2))
    first.export(spans[:2])
    second.export(spans[:1])
    first.shutdown()
    second.export(spans[1:])
    assert [name for what, name in guard.fed if what == "closed"] == ["a", "b", "c"]


def test_threads_that_export_at_once_feed_one_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a `SimpleSpanProcessor`: of another one nobody would hear."""
    made: list[LoopGuard] = []

    class Made(LoopGuard):
        def __init__(self, settings: Settings) -> None:
            made.append(self)
            time.sleep(0.05)
            super().__init__(settings)

        @staticmethod
        def all_attached() -> tuple[LoopGuard, ...]:
            return ()

    monkeypatch.setattr(onward, "LoopGuard", Made)
    exporter = LoopGuardSpanExporter(Collecting(), repeat_threshold=4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(exporter.export, [[ended_span()]] * 4))
    assert len(made) == 1


def test_faults_lose_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that raises everywhere is counted, and the very spans go out."""
    monkeypatch.setattr(faults, "_raising", False)
    guard, inner = BrokenGuard(), Collecting()
    spans = [ended_span("a"), ReadableSpan("without context"), ended_span("b")]
    result = LoopGuardSpanExporter(inner, guard).export(spans)
    assert result is SpanExportResult.SUCCESS
    assert inner.spans == spans
    assert guard.faults.counts["exporter.annotate:RuntimeError"] == 2
    assert guard.faults.counts.total() >= 4


def test_shutdown_and_flush_are_passed_on() -> None:
    """The inner exporter is shut down and flushed, with the caller's time limit."""
    inner = Collecting()
    exporter = LoopGuardSpanExporter(inner, ScriptedGuard())
    assert exporter.force_flush(123) is False
    exporter.shutdown()
    assert inner.calls == [("force_flush", 123), ("shutdown", None)]


def test_an_exporter_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the keyword first, then the variable; the default is OTLP by the protocol of the SDK."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    default = LoopGuardSpanExporter(guard=ScriptedGuard())
    assert isinstance(default._inner, OTLPSpanExporter)
    default.shutdown()
    monkeypatch.setenv("LOOPGUARD_EXPORTER", "console")
    by_variable = LoopGuardSpanExporter(guard=ScriptedGuard())
    monkeypatch.setenv("LOOPGUARD_EXPORTER", "no-such-exporter")
    by_keyword = LoopGuardSpanExporter("console", ScriptedGuard())
    for exporter in (by_variable, by_keyword):
        assert isinstance(exporter._inner, ConsoleSpanExporter)


def _of_ours(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "otel_loopguard"]


def test_none_exports_nothing_and_still_feeds_the_guard(caplog: pytest.LogCaptureFixture) -> None:
    """`none` is a choice: detection works and nothing is warned about."""
    guard = ScriptedGuard()
    exporter = LoopGuardSpanExporter("none", guard)
    assert exporter.export([ended_span("tool")]) is SpanExportResult.SUCCESS
    assert exporter.force_flush()
    exporter.shutdown()
    assert guard.fed == [("opened", "tool"), ("closed", "tool"), ("shutdown", "")]
    assert not _of_ours(caplog)


@pytest.mark.parametrize(("name", "said"), rows(__file__, "missing"))
def test_an_exporter_that_is_not_there_is_warned_about_once(
    name: str, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warning has the name and the variable, or why it does not load; spans go nowhere."""
    broken = EntryPoint("broken", "no_such_module:Exporter", "opentelemetry_traces_exporter")
    if name == "broken":
        monkeypatch.setattr(onward, "entry_points", lambda **_: [broken])
    exporter = LoopGuardSpanExporter(name, ScriptedGuard())
    for _ in range(2):
        assert exporter.export([ended_span()]) is SpanExportResult.SUCCESS
    (message,) = _of_ours(caplog)
    assert repr(name) in message
    assert said in message


ANSWERS = {"+": SpanExportResult.SUCCESS, "-": SpanExportResult.FAILURE}


@pytest.mark.parametrize(("answers", "said"), rows(__file__, "outages"))
def test_each_outage_is_told_once(
    answers: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning when spans cease to arrive, one when they do again, however many fail."""
    wanted = [ANSWERS[sign] for sign in answers.split()]
    exporter = LoopGuardSpanExporter(Collecting(*wanted), LoopGuard())
    assert [exporter.export([ReadableSpan("a")]) for _ in wanted] == wanted
    told = [message for message in caplog.messages if " arrive" in message]
    parts = said.split(", ") if said != "nothing" else []
    assert [part in text for part, text in zip(parts, told, strict=True)] == [True] * len(told)
    if told:
        assert "Collecting to collector.test:4318 " in told[0]
        assert "s3cret" not in told[0]
    if len(told) > 1:
        outage = re.search(r"(- )+", answers)
        assert outage is not None
        assert f"{len(outage[0]) // 2} were" in told[1]


def test_an_exporter_by_name_takes_what_it_is_made_with() -> None:
    """As in a configuration file; what is empty is not given."""
    exporter = LoopGuardSpanExporter({"console": {"service_name": "here", "out": None}})
    inner: Any = exporter._inner
    assert isinstance(inner, ConsoleSpanExporter)
    assert inner.service_name == "here"
    assert LoopGuardSpanExporter({"none": None})._inner is None


def test_a_mistake_in_the_environment_loses_no_span(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exporter passes spans on as they are, and says why once."""
    monkeypatch.setattr(LoopGuard, "default", classmethod(lambda cls: cls()))
    monkeypatch.setattr(LoopGuard, "all_attached", staticmethod(lambda: ()))
    monkeypatch.setenv("LOOPGUARD_MODE", "loud")
    inner = Collecting()
    provider = provider_with(SimpleSpanProcessor(LoopGuardSpanExporter(inner)))
    for _ in range(4):
        tool_call(provider.get_tracer("agent"))
    assert len(inner.spans) == 4
    assert caplog.text.count("spans go on as they are") == 1
