"""Agent spans keep recording when head sampling drops them."""

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    DEFAULT_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState

from otel_loopguard import LoopGuardSampler, LoopGuardSettingsError
from otel_loopguard.sdk.sampler import from_environment
from tests.tables import rows

ODD: list[tuple[Any, Any]] = [("work", {1: "x", None: "y"}), (None, {}), (7, {}), (b"work", {})]


class Fixed(Sampler):
    """Answers one decision with attributes and a trace state of its own."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def should_sample(self, *_: object, **__: object) -> SamplingResult:  # type: ignore[override]
        return SamplingResult(self.decision, {"sampler": "fixed"}, TraceState([("k", "v")]))

    def get_description(self) -> str:
        return "Fixed"


@pytest.mark.parametrize(("name", "attributes"), [*rows(__file__, "records"), *ODD])
def test_what_may_be_an_agent_records(name: str, attributes: Any) -> None:
    """Names of any agent convention, or nothing telling, turn DROP into RECORD_ONLY."""
    given = json.loads(attributes) if isinstance(attributes, str) else attributes
    sampler = LoopGuardSampler(ALWAYS_OFF)
    result = sampler.should_sample(None, 1, name, SpanKind.INTERNAL, given)
    assert result.decision is Decision.RECORD_ONLY
    assert dict(result.attributes or {}) == (given or {})


@pytest.mark.parametrize("attributes", rows(__file__, "dropped"))
def test_what_is_surely_no_agent_stays_dropped(attributes: str) -> None:
    """HTTP, databases, RPC and messaging without any agent name cost nothing."""
    sampler = LoopGuardSampler(ALWAYS_OFF)
    result = sampler.should_sample(None, 1, "GET /", None, json.loads(attributes))
    assert result.decision is Decision.DROP


@pytest.mark.parametrize("decision", Decision)
def test_only_drop_is_touched(decision: Decision) -> None:
    """What the sampler inside adds is kept, beside the attributes of a span that now records."""
    own = {"tool.name": "search"}
    result = LoopGuardSampler(Fixed(decision)).should_sample(None, 1, "tool", None, own)
    dropped = decision is Decision.DROP
    assert result.decision is (Decision.RECORD_ONLY if dropped else decision)
    assert dict(result.attributes or {}) == {"sampler": "fixed", **(own if dropped else {})}
    assert result.trace_state == TraceState([("k", "v")])


def _provider(sampler: Sampler) -> tuple[TracerProvider, InMemorySpanExporter]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    return provider, memory


@pytest.mark.parametrize(
    "sampler",
    [
        LoopGuardSampler(TraceIdRatioBased(0.0)),
        LoopGuardSampler(ParentBased(TraceIdRatioBased(0.0))),
        ParentBased(
            LoopGuardSampler(TraceIdRatioBased(0.0)),
            local_parent_not_sampled=LoopGuardSampler(ALWAYS_OFF),
        ),
    ],
    ids=["ratio", "around ParentBased", "inside ParentBased"],
)
def test_dropped_runs_are_seen_and_not_exported(sampler: Sampler) -> None:
    """Parent and child record with all their attributes, are not sampled, and are not exported."""
    provider, memory = _provider(sampler)
    tracer = provider.get_tracer("agent")
    with (
        tracer.start_as_current_span("run") as run,
        tracer.start_as_current_span("tool", attributes={"tool.name": "search"}) as tool,
    ):
        assert run.is_recording()
        assert tool.is_recording()
        assert not tool.get_span_context().trace_flags.sampled
        assert dict(tool.attributes) == {"tool.name": "search"}  # type: ignore[attr-defined]
    assert memory.get_finished_spans() == ()


def test_a_remote_parent_that_is_not_sampled_is_respected() -> None:
    """The run of an unsampled caller records here and is not exported."""
    provider, memory = _provider(LoopGuardSampler(DEFAULT_ON))
    caller = SpanContext(5, 6, is_remote=True, trace_flags=TraceFlags(0))
    context = trace.set_span_in_context(trace.NonRecordingSpan(caller))
    with provider.get_tracer("agent").start_as_current_span("run", context) as run:
        assert run.is_recording()
        assert run.get_span_context().trace_id == 5
    assert memory.get_finished_spans() == ()


@pytest.mark.parametrize(("argument", "inner"), rows(__file__, "inside"))
def test_the_inner_sampler_is_named_by_the_variable(argument: str, inner: str) -> None:
    """`OTEL_TRACES_SAMPLER_ARG` names sampler and ratio, a ratio, a sampler or nothing."""
    description = from_environment(json.loads(argument)).get_description()
    assert description.startswith(f"LoopGuardSampler{{{inner}")


@pytest.mark.parametrize("argument", rows(__file__, "refused"))
def test_an_argument_that_cannot_be_used_is_explained(argument: str) -> None:
    """The error has the variable, its value and what was expected; the SDK logs it."""
    with pytest.raises(LoopGuardSettingsError, match="expected a ratio from 0 to 1") as caught:
        from_environment(argument)
    assert f"OTEL_TRACES_SAMPLER_ARG is {argument!r}" in str(caught.value)


def test_the_argument_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given goes before the variable, also an empty text."""
    monkeypatch.delenv("OTEL_TRACES_SAMPLER_ARG", raising=False)
    assert "AlwaysOnSampler" in from_environment(None).get_description()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    for given, inner in ((None, "Based{0.25}"), (0.5, "Based{0.5}"), ("", "AlwaysOnSampler")):
        assert inner in from_environment(given).get_description()
