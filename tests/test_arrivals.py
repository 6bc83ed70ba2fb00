"""Whether spans arrive: one warning when they do not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_loopguard import LoopGuard, LoopGuardSpanExporter

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
