"""A recording opens a file and passes over what is broken in it."""

import gzip
import io
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import RecordingError
from otel_loopguard.replay import Recording, Run, file
from tests.replay.rows import LINE as RUN
from tests.tables import content, rows

DEEP = "[" * 50_000


def numbers(reports: Any) -> list[int]:
    return [number for _, number, _ in reports]


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(("text", "runs", "why"), rows(__file__, "files"))
def test_files(read: Any, reports: Any, *, zipped: bool, text: str, runs: str, why: str) -> None:
    """A file is read to its end, or gets one report, which says what is expected."""
    written = content(text).replace(b"<run>", RUN.encode())
    assert [run.id for run in read(written, zipped=zipped)] == ["r"] * int(runs)
    assert [said.startswith(why) for _, _, said in reports] == [True] * bool(why)
    assert numbers(reports) == [1] * bool(why)


@pytest.mark.parametrize("line", [DEEP, "9" * 5000, "\x00\x01", "\0" * 100], ids=range(4))
@pytest.mark.parametrize("place", range(3))
def test_a_broken_line_is_passed_over(read: Any, reports: Any, line: str, place: int) -> None:
    """What no parser takes costs its own line, wherever it stands, as in `fields.txt`."""
    lines = [RUN, RUN]
    lines.insert(place, line)
    assert len(read("\n".join(lines))) == 2
    assert numbers(reports) == [place + 1]


def test_what_strict_parsers_refuse(read: Any, reports: Any) -> None:
    """Lone surrogates, NaN, and bytes that are no UTF-8 are read."""
    line = '{"id": "\\ud800", "steps": [{"kind": "tool", "args": NaN, "output": "\xff"}]}'
    [run] = read(line.encode("latin-1"))
    assert run.id == "\ud800"
    assert run.steps[0].outcome == "\udcff"
    assert reports == []


def test_a_line_over_the_limit(read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line over the limit is reported and passed over without being kept."""
    monkeypatch.setattr(file, "LIMIT", 4000)
    long = json.dumps({"id": "x" * 5000, "steps": []})
    found = read("\n".join([RUN, long, RUN, RUN[:-1] + " " * 4000 + "}"]))
    assert len(found) == 2
    assert numbers(reports) == [2, 4]
    assert "4,000" in reports[0][2]


def test_a_document_over_the_limit(
    read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read as lines, like one that is none: all that are none are reported."""
    assert len(read(f'{{"data": [\n{RUN}\n{RUN}')) == 2
    assert numbers(reports) == [1]
    reports.clear()
    monkeypatch.setattr(file, "LIMIT", 200)
    text = json.dumps({"data": [json.loads(RUN)] * 20}, indent=1)
    assert read(text) == []
    assert numbers(reports) == list(range(1, len(text.splitlines()) + 1))


@pytest.mark.parametrize("name", ["none.jsonl", "with\0nul", ""], ids=repr)
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    """It raises at once, with its path; a file that goes away raises when it is read."""
    path = str(tmp_path / name) if name else str(tmp_path)
    with pytest.raises(RecordingError, match="cannot be read") as raised:
        Recording(path, lambda *_broken: None)
    assert path in str(raised.value)
    gone = tmp_path / "gone"
    gone.write_text(RUN)
    recording = Recording(str(gone), lambda *_broken: None)
    gone.unlink()
    with pytest.raises(RecordingError, match="gone"):
        list(recording)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gzip"])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    """`-` is standard input, compressed or not."""
    content = gzip.compress(RUN.encode()) if zipped else RUN.encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    recording = Recording("-", lambda *broken: pytest.fail(str(broken)))
    assert (recording.name, recording.size) == ("-", None)
    assert [run.id for run in recording if isinstance(run, Run)] == ["r"]


def test_a_pipe_is_read_as_it_comes() -> None:
    """A line from a pipe is there before the pipe ends."""
    program = (
        "from otel_loopguard.replay import Recording\n"
        "for run in Recording('-', print): print(run.id, flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{RUN}\n{RUN}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline() == b"r\n"
        process.stdin.close()
        assert process.stdout.read() == b"r\n"


def test_progress(tmp_path: Path) -> None:
    """How much was read is told in bytes of the file."""
    path = tmp_path / "f"
    path.write_text(f"{RUN}\n{RUN}\n")
    recording = Recording(str(path), lambda *_broken: None)
    assert (recording.done, recording.size) == (0, path.stat().st_size)
    list(recording)
    assert recording.done == recording.size


WHOLE = gzip.compress(f"{RUN}\n".encode() * 20_000)


@pytest.mark.parametrize(
    ("content", "runs", "why"),
    [
        (gzip.compress(f"{RUN}\n".encode()) * 3 + b"\0" * 64, range(3, 4), ""),
        (WHOLE[: len(WHOLE) // 2], range(1_000, 20_000), "ends too early"),
        (WHOLE + b"\x1f\x8brubbish and more of it", range(20_000, 20_001), "is damaged"),
        (WHOLE[:-8] + b"\0" * 8, range(1_000, 20_001), "is damaged"),
    ],
    ids=["members", "cut", "rubbish", "checksum"],
)
def test_gzip(
    content: bytes, runs: range, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands before the damage is read, alike with isal, where it is installed, and zlib."""
    path = tmp_path / "runs.gz"
    path.write_bytes(content)

    def read(module: str) -> tuple[int, list[tuple[int, str]]]:
        monkeypatch.setattr("otel_loopguard.replay.file.zlib", import_module(module))
        reports: list[tuple[int, str]] = []
        recording = Recording(str(path), lambda _, line, why: reports.append((line, why)))
        return sum(isinstance(entry, Run) for entry in recording), reports

    found, reports = read("zlib")
    assert found in runs
    assert why in "\n".join(said for _, said in reports)
    assert {line for line, _ in reports} == ({found + 1} if why else set())
    assert read("isal.isal_zlib") == (found, reports)
