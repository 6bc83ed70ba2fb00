"""Exports of backends: as lines, and as Parquet."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from otel_loopguard.backtest.run import run
from otel_loopguard.backtest.sources import export_spans, open_source
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay import Recording
from otel_loopguard.settings import Settings
from otel_loopguard.spans.reader import Reader
from tests.backtest.sources import ignore

SAMPLES = Path(__file__).resolve().parents[1] / "replay" / "samples"
LOGS = Path(__file__).resolve().parents[1] / "dialects" / "node_captures" / "codex.logs.jsonl"
SESSIONS = {
    SAMPLES / "langfuse-trace.json": ("chat-7", 6),
    SAMPLES / "langfuse-observations.jsonl": ("chat-7", 6),
    SAMPLES / "langsmith-runs.jsonl": ("sess-42", 6),
    SAMPLES / "phoenix-dataframe.jsonl": ("sess-42", 6),
    LOGS: ("01a206c4-9092-72c2-83f2-155b4b334c51", 10),
}
NESTED = ("attributes.metadata", "inputs", "outputs", "extra")
"""Columns that are text in Parquet: their values have no one type."""


def told(source: Path, tmp_path: Path) -> Any:
    found = run(str(source), Settings(), tmp_path / "out", jobs=1)
    assert found.notes.broken.total() == 0
    (row,) = parquet.read_table(str(found.folder)).to_pylist()
    return row["session"], row["steps"], [each["rule"] for each in row["decisions"]]


def as_parquet(name: str, to: Path, unit: str = "ns") -> Path:
    """A sample as Parquet, with times as pandas and LangSmith write them."""
    rows = [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
    for row in rows:
        for key in ("start_time", "end_time"):
            row[key] = datetime.fromisoformat(row[key].replace("Z", "+00:00"))
        for key in row.keys() & NESTED:
            row[key] = json.dumps(row[key])
    table = pa.Table.from_pylist(rows)
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table[field.name].cast(pa.timestamp(unit, "UTC"))
            table = table.set_column(place, field.name, times)
    parquet.write_table(table, to)
    return to


@pytest.mark.parametrize(
    ("source", "session"), SESSIONS.items(), ids=lambda value: str(value)[-20:]
)
def test_a_backtest_reads_what_replay_reads(source: Path, session: Any, tmp_path: Path) -> None:
    name, steps, rules = told(source, tmp_path)
    assert (name, steps) == session
    assert "identical_call" in rules


@pytest.mark.parametrize("unit", ["ns", "us"])
@pytest.mark.parametrize("name", ["phoenix-dataframe.jsonl", "langsmith-runs.jsonl"])
def test_parquet_of_an_export_says_what_its_lines_say(name: str, unit: str, tmp_path: Path) -> None:
    path = as_parquet(name, tmp_path / "export.parquet", unit)
    read = Reader().read
    reports: list[str] = []
    rows = [read(span) for span in export_spans(str(path), reports.append)]
    lines = [read(span) for span in Recording(str(SAMPLES / name), ignore)]  # type: ignore[arg-type]
    assert reports == []
    facts = "kind name start end session parent_id outcome error_text text".split()
    for row, line in zip(rows, lines, strict=True):
        assert [getattr(row, each) for each in facts] == [getattr(line, each) for each in facts]
    assert told(path, tmp_path) == told(SAMPLES / name, tmp_path)


def test_rows_without_ids_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "export.parquet"
    rows = {"context.span_id": [None, "zz"], "context.trace_id": ["1", None], "span_kind": ["", 1]}
    parquet.write_table(pa.table({key: [str(each) for each in rows[key]] for key in rows}), path)
    found = run(str(path), Settings(), tmp_path / "out", jobs=1)
    assert dict(found.notes.broken) == {"a span has no valid trace id and span id": 2}


def test_parquet_that_ends_too_early(tmp_path: Path) -> None:
    """Its footer is whole, its rows are not."""
    path = as_parquet("langsmith-runs.jsonl", tmp_path / "export.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(2_000) + content[2_004:])
    assert open_source(str(path)).form == "recorded"
    with pytest.raises(RecordingError, match="cannot be read: "):
        list(export_spans(str(path), lambda _why: None))
