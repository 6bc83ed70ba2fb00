"""What the parts that are loaded without code take as options, and what mistakes in them do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuard, LoopGuardSpanExporter
from otel_loopguard.errors import LoopGuardSettingsError
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
    """As in a configuration file; what is empty is not given."""
    exporter = LoopGuardSpanExporter({"console": {"service_name": "here", "out": None}})
    inner: Any = exporter._inner
    assert isinstance(inner, ConsoleSpanExporter)
    assert inner.service_name == "here"
    assert LoopGuardSpanExporter({"none": None})._inner is None


@pytest.mark.parametrize("names", [{}, {"console": {}, "otlp": {}}], ids=["none", "two"])
def test_an_exporter_has_one_name(names: dict[str, object]) -> None:
    """Anything else is an error that has what was given."""
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


def test_a_mistake_in_the_environment_is_logged_where_nothing_was_given(
    instrumentor: LoopGuardInstrumentor,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`opentelemetry-instrument` would give up the instrumentations that come later."""
    monkeypatch.setenv("LOOPGUARD_MODE", "loud")
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", TracerProvider)
    with caplog.at_level(logging.ERROR, "otel_loopguard"):
        instrumentor.instrument()
    assert "mode (LOOPGUARD_MODE) = 'loud'" in caplog.text
    assert instrumentor._processor is None


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


@pytest.mark.parametrize(
    ("given", "variable", "inner"),
    [
        (None, "0.25", "TraceIdRatioBased{0.25}"),
        (0.5, "0.25", "TraceIdRatioBased{0.5}"),
        ("", "0.25", "AlwaysOnSampler"),
        (None, None, "AlwaysOnSampler"),
    ],
    ids=["from the variable", "a number", "an empty text", "nothing"],
)
def test_the_argument_of_the_sampler(
    given: str | float | None, variable: str | None, inner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given goes before the variable."""
    monkeypatch.delenv("OTEL_TRACES_SAMPLER_ARG", raising=False)
    if variable is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", variable)
    assert inner in from_environment(given).get_description()
