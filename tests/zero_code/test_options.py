"""What the parts that are loaded without code take as options, and what mistakes in them do."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuard, LoopGuardSettingsError, LoopGuardSpanExporter
from otel_loopguard.sdk.instrumentor import LoopGuardInstrumentor
from otel_loopguard.sdk.sampler import from_environment
from tests.agents import provider_with, tool_call


@pytest.fixture
def instrumentor(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopGuardInstrumentor]:
    """The one instrumentor of the process, at rest before and after; no default guard yet."""
    monkeypatch.delenv("OTEL_CONFIG_FILE", raising=False)
    monkeypatch.setattr(LoopGuard, "default", classmethod(lambda cls: cls()))
    one = LoopGuardInstrumentor()
    yield one
    if one.is_instrumented_by_opentelemetry:
        one.uninstrument()


def test_an_exporter_by_name_takes_what_it_is_made_with() -> None:
    """As in a configuration file; what is empty is not given, and more or less than one name is an
    error that has what was given."""
    exporter = LoopGuardSpanExporter({"console": {"service_name": "here", "out": None}})
    inner: Any = exporter._inner
    assert isinstance(inner, ConsoleSpanExporter)
    assert inner.service_name == "here"
    assert LoopGuardSpanExporter({"none": None})._inner is None
    wrong: list[dict[str, object]] = [{}, {"console": {}, "otlp": {}}]
    for names in wrong:
        with pytest.raises(LoopGuardSettingsError, match=r"one name with its options, got \["):
            LoopGuardSpanExporter(names)


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
    monkeypatch.setattr("otel_loopguard.sdk.instrumentor.import_module", _missing)
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", TracerProvider)
    instrumentor.instrument()
    assert instrumentor._processor is not None


def _missing(name: str) -> object:
    raise ImportError(name)


def test_a_mistake_in_the_environment_loses_no_span(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The exporter passes spans on as they are, and says why once."""
    monkeypatch.setattr(LoopGuard, "default", classmethod(lambda cls: cls()))
    monkeypatch.setattr(LoopGuard, "all_attached", staticmethod(lambda: ()))
    monkeypatch.setenv("LOOPGUARD_MODE", "loud")
    memory = InMemorySpanExporter()
    provider = provider_with(SimpleSpanProcessor(LoopGuardSpanExporter(memory)))
    with caplog.at_level(logging.ERROR, "otel_loopguard"):
        for _ in range(4):
            tool_call(provider.get_tracer("agent"))
    assert len(memory.get_finished_spans()) == 4
    assert caplog.text.count("spans go on as they are") == 1


def test_the_argument_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given goes before the variable, also an empty text."""
    monkeypatch.delenv("OTEL_TRACES_SAMPLER_ARG", raising=False)
    assert "AlwaysOnSampler" in from_environment(None).get_description()
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.25")
    for given, inner in ((None, "Based{0.25}"), (0.5, "Based{0.5}"), ("", "AlwaysOnSampler")):
        assert inner in from_environment(given).get_description()
