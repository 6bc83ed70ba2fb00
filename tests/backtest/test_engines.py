"""Ray and ClickHouse, both real, in an environment of their own: what they change is nothing."""

import subprocess
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from otel_loopguard import RecordingError, Settings
from otel_loopguard.backtest.run import Backtest, run
from tests.backtest.sources import exported, spans_of, write_spans
from tests.frameworks.harness import ENGINES, python_of
from tests.zero_code.interpreter import ROOT, environment

pytestmark = pytest.mark.rare
LIMIT_S = 600
CAPTURES = ("crewai__openllmetry", "langgraph__genai", "openai-agents__logfire", "mcp__native")
MANY = "TraceId IN (SELECT TraceId FROM spans GROUP BY TraceId HAVING count() > 20)"


def backtest(*arguments: str, **variables: str) -> str:
    """What the command says, run where Ray and chdb are."""
    code = "from otel_loopguard.cli import main; main()"
    done = subprocess.run(
        [python_of(ENGINES), "-c", code, "backtest", *arguments], timeout=LIMIT_S, check=False,
        cwd=ROOT, env=environment(**variables), text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def parts_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    return {
        part.name: parquet.read_table(part).to_pylist()
        for part in out.glob("decisions-*/part-*.parquet")
    }


def rows_of(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The results, by session; a source is named as it is given."""
    rows = [row for out in folders for part in parts_of(out).values() for row in part]
    for row in rows:
        del row["source"]
    return sorted(rows, key=lambda row: row["session"])


def test_ray_decides_the_same_and_goes_on_where_it_was(shared: Path, tmp_path: Path) -> None:
    source, out = str(shared / "traces" / "magentic.jsonl.gz"), tmp_path / "ray"
    alone: Backtest = run(source, Settings(), tmp_path / "alone", jobs=2)
    arguments = (source, "--out", str(out), "--engine", "ray", "--jobs", "2")
    said = backtest(*arguments)
    assert f"{alone.notes.sessions} sessions of {alone.notes.rows:,} rows" in said
    expected = parts_of(tmp_path / "alone")
    assert len(expected) == 4
    assert parts_of(out) == expected

    first, *others = sorted(out.glob("decisions-*/part-*.parquet"))
    times = [other.stat().st_mtime_ns for other in others]
    first.unlink()
    assert said.splitlines()[0] == backtest(*arguments).splitlines()[0]
    assert [other.stat().st_mtime_ns for other in others] == times
    assert parts_of(out) == expected


@pytest.fixture(scope="module")
def table(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spans = [s for name in CAPTURES for s in spans_of(shared / "spans" / f"{name}.otlp.jsonl")]
    return write_spans(map(exported, spans), tmp_path_factory.mktemp("spans") / "spans.parquet")


@pytest.fixture(scope="module")
def data(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of chdb that holds them."""
    data = tmp_path_factory.mktemp("chdb") / "data"
    program = [python_of(ENGINES), "-m", "tests.backtest.clickhouse_server", str(data), str(table)]
    subprocess.run(
        program, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, check=True, timeout=LIMIT_S
    )
    return data


@pytest.fixture(scope="module")
def port(data: Path) -> Generator[int]:
    program = [python_of(ENGINES), "-m", "tests.backtest.clickhouse_server", str(data)]
    with subprocess.Popen(
        program, cwd=ROOT, env=environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()


def test_a_folder_of_chdb_is_decided_as_the_same_rows_of_a_file(
    table: Path, data: Path, tmp_path: Path
) -> None:
    run(str(table), Settings(), tmp_path / "file", jobs=1)
    of_file = rows_of([tmp_path / "file"])
    assert sum(row["strongest"] != "allow" for row in of_file) > 1
    address = f"clickhouse://{data}?table=otel.otel_traces"
    backtest(address, "--out", str(tmp_path / "table"), "--jobs", "1")
    assert rows_of([tmp_path / "table"]) == of_file

    run(str(table), Settings(), tmp_path / "some of file", where=MANY, jobs=1)
    backtest(address, "--out", str(tmp_path / "some"), "--jobs", "1", "--where", MANY)
    some = rows_of([tmp_path / "some"])
    assert 0 < len(some) < len(of_file)
    assert some == rows_of([tmp_path / "some of file"])


def test_a_server_of_clickhouse_is_read_without_chdb(
    table: Path, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLICKHOUSE_USER", "reader")
    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "s3cret")
    run(str(table), Settings(), tmp_path / "file", where=MANY, jobs=1)
    address = f"clickhouse://127.0.0.1:{port}/otel?table=otel_traces"
    found = run(address, Settings(), tmp_path / "table", where=f"{MANY} -- told", jobs=1)
    assert rows_of([tmp_path / "table"]) == rows_of([tmp_path / "file"])
    assert found.source.name == address

    monkeypatch.setenv("CLICKHOUSE_PASSWORD", "wrong")
    with pytest.raises(RecordingError, match=r"403 Code: 516.*Authentication failed"):
        run(address, Settings(), tmp_path / "none")
    given = f"clickhouse://reader:s3cret@127.0.0.1:{port}/otel?table=otel_traces"
    again = run(given, Settings(), tmp_path / "table", where=f"{MANY} -- told", jobs=1)
    assert again.folder == found.folder, "who reads it changes nothing"
    assert "s3cret" not in repr(again)


@pytest.mark.parametrize(
    ("path", "where", "why"),
    [
        ("otel?table=absent", "", "otel_traces|absent"),
        ("otel?table=otel_traces", "Nothing = 1", "Nothing"),
        ("otel?table=otel_traces", "1) SELECT (1", "yntax"),
        ("system?table=one", "", "no column SpanAttributes, SpanId, Timestamp, TraceId"),
    ],
)
def test_what_clickhouse_refuses_is_said(
    port: int, path: str, where: str, why: str, tmp_path: Path
) -> None:
    address = f"clickhouse://reader:s3cret@127.0.0.1:{port}/{path}"
    with pytest.raises(RecordingError, match=why) as raised:
        run(address, Settings(), tmp_path, where=where)
    assert "s3cret" not in str(raised.value)
