"""A backtest as a whole: sources, exports of backends, restarts, what is broken, what is said."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import orjson
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from otel_loopguard import LoopGuardError, RecordingError, Settings, __version__
from otel_loopguard.backtest.run import Backtest, partition, run, settings_hash
from otel_loopguard.backtest.sources import export_spans, open_source
from otel_loopguard.cli.app import app
from otel_loopguard.replay import MISTIMED, REPEATED, Recording
from otel_loopguard.spans.reader import Reader
from tests.backtest.sources import exported, ignore, spans_of, write_spans
from tests.tables import rows

COMMAND = [sys.executable, "-c", "from otel_loopguard.cli import main; main()", "backtest"]


def rows_of(found: Backtest) -> list[dict[str, Any]]:
    tables = [parquet.read_table(part) for part in sorted(found.folder.glob("part-*.parquet"))]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return sorted(rows, key=lambda row: row["session"])


@pytest.fixture
def capture(shared: Path) -> Path:
    return shared / "spans" / "langgraph__genai.otlp.jsonl"


def lines(capture: Path, to: Path, *more: bytes) -> Path:
    """The spans of a capture as JSON lines of rows, and other lines between them."""
    rows = [orjson.dumps(exported(span)) for span in spans_of(capture)]
    to.write_bytes(b"\n".join([rows[0], *more, *rows[1:]]))
    return to


def test_json_lines_and_parquet_come_to_the_same(capture: Path, tmp_path: Path) -> None:
    table = write_spans(map(exported, spans_of(capture)), tmp_path / "spans.parquet")
    of_table = run(str(table), Settings(), tmp_path / "a", jobs=1)
    of_lines = run(str(lines(capture, tmp_path / "s.jsonl")), Settings(), tmp_path / "b", jobs=1)
    (one,), (other,) = rows_of(of_table), rows_of(of_lines)
    assert one.pop("source") == "spans.parquet"
    assert other.pop("source") == "s.jsonl"
    assert one == other
    known = {
        "session": "thread-42", "strongest": "deny", "steps": 28, "stop_action": "deny",
        "stop_rule": "identical_call", "calls": 13, "calls_after": 9,
        "guard_version": __version__, "settings_hash": settings_hash(Settings()),
    }  # fmt: skip
    assert {name: one[name] for name in known} == known


def test_a_conversation_in_several_files_is_one_session(capture: Path, tmp_path: Path) -> None:
    rows, source = [exported(span) for span in spans_of(capture)], tmp_path / "in"
    source.mkdir()
    for number in range(3):
        write_spans(rows[number::3], source / f"{number}.parquet")
    for name in (source, source / "*.parquet"):
        (row,) = rows_of(run(str(name), Settings(), tmp_path / "out", jobs=2))
        assert (row["session"], row["steps"]) == ("thread-42", 28)


def test_a_row_that_comes_again_counts_once(capture: Path, tmp_path: Path) -> None:
    """Also in another file; it is told, and is no fault of the source."""
    rows, source = [exported(span) for span in spans_of(capture)], tmp_path / "in"
    source.mkdir()
    once = run(str(write_spans(rows, source / "0.parquet")), Settings(), tmp_path / "a", jobs=1)
    write_spans(rows, source / "1.parquet")
    arguments = ["backtest", str(source), "--out", str(tmp_path / "out"), "--jobs", "1"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 0
    assert f"{len(rows)} x {REPEATED}" in told.stderr
    twice = run(str(source), Settings(), tmp_path / "out", jobs=1)
    assert rows_of(twice) == rows_of(once)


@pytest.mark.parametrize("unit", [10**9, 10**6, 10**3])
def test_times_in_another_unit_are_told(capture: Path, tmp_path: Path, unit: int) -> None:
    rows = [exported(span) for span in spans_of(capture)]
    for row in rows:
        row |= {"Timestamp": row["Timestamp"] // unit, "Duration": row["Duration"] // unit}
    found = run(str(write_spans(rows, tmp_path / "s.parquet")), Settings(), tmp_path / "a", jobs=1)
    assert found.notes.broken == {MISTIMED: len(rows)}


def test_broken_rows_are_counted_and_told(capture: Path, tmp_path: Path) -> None:
    path = lines(capture, tmp_path / "s.jsonl", b"{broken", b"[1]", b"", b'{"TraceId": "7"}')
    arguments = ["backtest", str(path), "--out", str(tmp_path / "out"), "--jobs", "1"]
    told = CliRunner().invoke(app, arguments)
    assert told.exit_code == 1
    whys = ("row is not valid JSON", "row is not an object", "span has no valid trace id")
    assert [why for why in whys if f"1 x a {why}" not in told.stderr] == []
    assert "1 session of 31 rows" in told.stdout
    again = CliRunner().invoke(app, arguments)
    assert (again.exit_code, again.stderr) == (1, told.stderr)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize("length", ["none", None, -1, "soon"])
def test_rows_without_a_duration_count_as_ended(
    capture: Path, form: str, length: object, tmp_path: Path
) -> None:
    """A span that is kept open would be none of the session's steps."""
    path, rows = tmp_path / f"s.{form}", [exported(span) for span in spans_of(capture)]
    rows = [{k: v for k, v in row.items() if k != "Duration"} for row in rows]
    if length != "none":
        rows = [{**row, "Duration": length} for row in rows]
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    found = run(str(path), Settings(), tmp_path / "out", jobs=1)
    (row,) = rows_of(found)
    assert (row["session"], row["steps"], row["calls"]) == ("thread-42", 28, 13)
    assert list(found.notes.broken.values()) == [len(rows)]


NO_LABELS = ("stuck", 2, [True])


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize("name", ["loop", "Loop"])
@pytest.mark.parametrize(
    ("loop", "labels"),
    [
        (True, (True, "true", 1, 1.0)), (False, (False, "False", 0, "0")), (None, (None, "")),
        (None, NO_LABELS),
    ],
)  # fmt: skip
def test_a_column_labels_sessions(  # noqa: PLR0917  # one for each side of the table
    capture: Path, form: str, name: str, loop: object, labels: tuple[object], tmp_path: Path
) -> None:
    """What is no label is told."""
    for number, label in enumerate(labels):
        path, out = labelled(capture, form, name, label, tmp_path), tmp_path / f"{number}"
        found = run(str(path), Settings(), out, jobs=1)
        assert [(row["loop"], row["steps"]) for row in rows_of(found)] == [(loop, 28)]
        assert [*found.notes.broken.values()] == [found.notes.rows] * (labels is NO_LABELS)


def labelled(capture: Path, form: str, name: str, label: object, folder: Path) -> Path:
    """The spans of a capture with a column more."""
    path = folder / f"s.{form}"
    rows = [{**exported(span), name: label} for span in spans_of(capture)]
    if form == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    return path


def test_a_recorded_span_that_has_not_ended_stays_open(capture: Path, tmp_path: Path) -> None:
    """As for `replay`: an export may be of a run that goes on."""
    path, lines = tmp_path / "runs.jsonl", (SAMPLES / "langsmith-runs.jsonl").read_text()
    runs = [json.loads(line) for line in lines.splitlines()]
    path.write_text("".join(json.dumps({**each, "end_time": None}) + "\n" for each in runs))
    found = run(str(path), Settings(), tmp_path / "out", jobs=1)
    assert (found.notes.sessions, found.notes.broken.total()) == (0, 0)


def test_broken_parts_of_a_recording_are_counted(capture: Path, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_bytes(capture.read_bytes() + b"\n{broken\n")
    notes = run(str(path), Settings(), tmp_path / "out", jobs=1).notes
    assert (notes.broken.total(), notes.sessions) == (1, 1)


def test_what_is_broken_in_many_files_is_told_with_its_place(capture: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    whole = capture.read_bytes().rstrip(b"\n")
    for number in range(12):
        (source / f"{number:02}.jsonl").write_bytes(whole + b"\n{broken" * (1 + (number == 11)))
    arguments = ["backtest", str(source), "--out", str(tmp_path / "out"), "--jobs", "1"]
    told = CliRunner().invoke(app, arguments)
    _repeats, first, *others, last = told.stderr.splitlines()
    line = len(whole.splitlines()) + 1
    assert str(source / "11.jsonl") in first
    assert f"line {line}" in first
    assert (len(others), "2 more" in last, told.exit_code) == (9, True, 1)


@pytest.mark.parametrize(("source", "content", "where", "why"), rows(__file__, "unusable"))
def test_what_cannot_be_read_is_said(  # noqa: PLR0917
    capture: Path, source: str, content: str, where: str, why: str, tmp_path: Path
) -> None:
    write_spans(map(exported, spans_of(capture)), tmp_path / "spans.parquet")
    path = source.format(tmp_path)
    if content == "a table":
        parquet.write_table(pa.table({"a": [1]}), path)
    elif content:
        known = {"the capture": capture.read_bytes()}
        Path(path).write_bytes(known.get(content, content.encode()))
    out, written = tmp_path / "out", tmp_path / "written.csv"
    with pytest.raises(RecordingError, match=why) as raised:
        run(path, Settings(), out, where=where.format(written), jobs=1)
    assert "s3cret" not in str(raised.value)
    assert not written.exists()


def test_a_memory_that_is_no_size_is_said(capture: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"--memory 1XB: .*expected: KB"):
        run(str(capture), Settings(), tmp_path / "out", memory="1XB", jobs=1)


def test_an_engine_that_is_none_is_said(capture: Path, tmp_path: Path) -> None:
    with pytest.raises(LoopGuardError, match="--engine spark: expected one of duckdb, ray"):
        run(str(capture), Settings(), tmp_path, engine="spark")


def test_settings_that_are_none_are_said_before_the_source_is_split(
    capture: Path, tmp_path: Path
) -> None:
    settings = Settings(switched_off=frozenset({"exact_repeet"}))
    with pytest.raises(LoopGuardError, match="exact_repeet"):
        run(str(capture), settings, tmp_path / "out", jobs=1)
    assert not (tmp_path / "out").exists()


def test_a_killed_backtest_goes_on_where_it_was(shared: Path, tmp_path: Path) -> None:
    source, out = str(shared / "traces" / "magentic.jsonl.gz"), tmp_path / "out"
    child = subprocess.Popen(
        [*COMMAND, source, "--out", str(out), "--jobs", "2"],
        env={**os.environ, "OTEL_SDK_DISABLED": ""}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not (done := list(out.glob("decisions-*/part-*.parquet"))):
        assert child.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    workers = psutil.Process(child.pid).children()
    child.send_signal(signal.SIGKILL)
    child.wait()
    _, left = psutil.wait_procs(workers, timeout=60)
    assert not left, "workers end with their parent"
    times = {part: part.stat().st_mtime_ns for part in done}
    buckets = {each: each.stat().st_mtime_ns for each in out.glob("buckets-*/rows/*/*")}
    found = run(source, Settings(), out, jobs=2)
    assert {part: part.stat().st_mtime_ns for part in times} == times
    assert {each: each.stat().st_mtime_ns for each in buckets} == buckets
    whole = run(source, Settings(), tmp_path / "whole", jobs=2)
    assert {part.parent for part in times} == {found.folder}
    assert rows_of(found) == rows_of(whole)
    assert found.notes == whole.notes


def test_a_partition_that_was_not_finished_is_begun_again(capture: Path, tmp_path: Path) -> None:
    first = run(str(capture), Settings(), tmp_path, jobs=1)
    (manifest,) = tmp_path.glob("buckets-*/source.json")
    manifest.unlink()
    assert run(str(capture), Settings(), tmp_path, jobs=1).notes == first.notes
    assert manifest.is_file()


def test_very_many_json_lines_fit_into_memory(capture: Path, tmp_path: Path) -> None:
    rows = [exported(span) for span in spans_of(capture)]
    with (tmp_path / "spans.jsonl").open("wb") as file:
        for number, row in enumerate(islice(cycle(rows), 60_000)):
            file.write(orjson.dumps({**row, "TraceId": f"{number // 30 + 1:032x}"}) + b"\n")
    source = open_source(str(tmp_path / "spans.jsonl"))
    _, notes = partition(source, tmp_path / "out", "1GB", 2)
    assert notes.rows == 60_000


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_condition_picks_rows_and_whole_sessions(shared: Path, form: str, tmp_path: Path) -> None:
    names = ("langgraph__genai", "mcp__native")
    spans = [s for name in names for s in spans_of(shared / "spans" / f"{name}.otlp.jsonl")]
    path = tmp_path / f"spans.{form}"
    if form == "parquet":
        write_spans(map(exported, spans), path)
    else:
        path.write_bytes(b"\n".join(orjson.dumps(exported(span)) for span in spans))
    held = "SpanAttributes['gen_ai.tool.name']"
    tool = held if form == "parquet" else "SpanAttributes->>'gen_ai.tool.name'"

    def found(where: str) -> Backtest:
        return run(str(path), Settings(), tmp_path / "out", where=where, jobs=1)

    everything, calls = found(""), found(f"({tool}) IS NOT NULL -- calls of tools")
    assert 0 < calls.notes.rows < everything.notes.rows
    assert everything.folder != calls.folder
    long = found("TraceId IN (SELECT TraceId FROM spans GROUP BY TraceId HAVING count() > 20)")
    assert [row["session"] for row in rows_of(long)] == ["thread-42"]
    assert rows_of(long) == [row for row in rows_of(everything) if row["session"] == "thread-42"]


TESTS = Path(__file__).resolve().parents[1]
SAMPLES = TESTS / "replay" / "samples"
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
    times, kinds = pa.timestamp(unit, "UTC"), {field.name: field.type for field in table.schema}
    kinds = {name: times if pa.types.is_timestamp(kind) else kind for name, kind in kinds.items()}
    parquet.write_table(table.cast(pa.schema(kinds)), to)
    return to


@pytest.mark.parametrize(("source", "session", "steps"), rows(__file__, "exports"))
def test_a_backtest_reads_what_replay_reads(
    source: str, session: str, steps: str, tmp_path: Path
) -> None:
    name, made, rules = told(TESTS / source, tmp_path)
    assert (name, made) == (session, int(steps))
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
    assert dict(found.notes.broken) == {f"a span has no valid trace id and span id ({path})": 2}


def test_parquet_that_ends_too_early(tmp_path: Path) -> None:
    """Its footer is whole, its rows are not."""
    path = as_parquet("langsmith-runs.jsonl", tmp_path / "export.parquet")
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(2_000) + content[2_004:])
    assert open_source(str(path)).form == "recorded"
    with pytest.raises(RecordingError, match="cannot be read: "):
        list(export_spans(str(path), lambda _why: None))


def test_a_first_line_nested_too_deep_is_that_of_a_recording(tmp_path: Path) -> None:
    """Whose reader says what is wrong with it."""
    path = tmp_path / "deep.jsonl"
    path.write_text('[{"a":' * 50_000, "utf-8")
    assert open_source(str(path)).form == "recorded"
