"""A condition of rows is read as one, whatever it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_loopguard.backtest.run import run
from otel_loopguard.errors import RecordingError
from otel_loopguard.settings import Settings


def test_a_condition_with_further_statements_is_refused(tmp_path: Path) -> None:
    spans, written = tmp_path / "spans.jsonl", tmp_path / "written.csv"
    row = {"TraceId": f"{1:032x}", "SpanId": f"{1:016x}", "Timestamp": 1, "SpanAttributes": "{}"}
    spans.write_text(json.dumps(row))
    where = f"1 = 1)); COPY (SELECT 1) TO '{written}'; SELECT * FROM (SELECT 1 WHERE (1 = 1"
    with pytest.raises(RecordingError, match="expected one condition"):
        run(str(spans), Settings(), tmp_path / "out", where=where)
    assert not written.exists()
