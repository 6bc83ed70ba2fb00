"""Files that are made to hurt cost a report, and what is honest in them is read."""

import gzip
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import RecordingError
from otel_loopguard._util import bounded as shape
from otel_loopguard.replay import Recording, file, recording
from otel_loopguard.replay import labelled_runs as lines
from tests.replay.rows import LINE as RUN
from tests.replay.rows import whole
from tests.tables import content, rows


def whys(reports: Any) -> list[tuple[int, str]]:
    return [(number, why) for _, number, why in reports]


LINES = {
    b"<run>": RUN, b"<many>": '{"data":[{}' + ",{}" * 2000 + "]}",
    b"<long>": json.dumps({"id": "long", "steps": [0] * 11}),
}  # fmt: skip
BOUNDS: dict[str, tuple[tuple[object, str, int], str]] = {
    "line": ((shape, "MAX_RECORDED_VALUES", 2000), "the line has more than 2,000 values"),
    "document": (
        (shape, "MAX_RECORDED_VALUES", 2000),
        "the document has more than 2,000 values, the rest is not read",
    ),
    "steps": ((lines, "MAX_STEPS", 10), "a run of 11 steps, more than 10, is left out"),
    "barren": (
        (recording, "_BARREN", 50),
        f"50 lines in a row hold nothing, the rest is not read; {recording.EXPECTED}",
    ),
    "blank": ((file, "_BLANK", 50), "50 blank lines in a row, the rest is not read"),
}


@pytest.mark.parametrize(("bound", "text", "runs", "number"), rows(__file__, "costs"))
def test_what_is_too_much_costs_one_report(  # noqa: PLR0917
    read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch, bound: str, text: str, runs: str,
    number: str,
) -> None:  # fmt: skip
    """And what is honest around it is read."""
    place, why = BOUNDS[bound]
    monkeypatch.setattr(*place)
    written = content(text) + b"\n"
    for name, line in LINES.items():
        written = written.replace(name, line.encode())
    assert len(read(written)) == int(runs)
    ((told, said),) = whys(reports)
    assert (told, said.startswith(why)) == (int(number), True), said


def test_lines_of_a_document_are_read_one_by_one(
    read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is none costs a report, also past the bound."""
    monkeypatch.setattr(recording, "_LINES", 100)
    assert len(read("[\n" + "x\n" * 200 + f"{RUN}\n{RUN}\n")) == 2
    assert [number for number, _ in whys(reports)] == [*range(1, 202)]


@pytest.mark.parametrize("opener", ["[", '{"a":', '[{"a":'])
def test_a_line_is_as_deep_as_the_bound(read: Any, reports: Any, opener: str) -> None:
    """Nesting up to the bound is read, and one level more is reported, whatever is nested."""
    closer = opener.translate(str.maketrans("[{", "]}", '"a:'))[::-1]
    most = (shape.DEPTH - 4) // len(closer)
    for times, why in ((most, []), (most + 1, "nested deeper")):
        value = opener * times + "1" + closer * times
        reports.clear()
        found = read(f'{{"id": "deep", "steps": [{{"kind": "tool", "args": [{value}]}}]}}\n{RUN}')
        assert len(found) == (1 if why else 2)
        assert [number for number, _ in whys(reports)] == ([1] if why else [])


def test_what_stands_in_texts_is_not_counted(
    read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brackets, commas, quotes and backslashes inside of strings are no values."""
    monkeypatch.setattr(shape, "MAX_RECORDED_VALUES", 100)
    monkeypatch.setattr(shape, "_CHUNK", 7)
    output = '[[{"\\\\' * 1000 + "," * 1000 + '\\"'
    [run] = read(json.dumps({"id": "r", "steps": [{"kind": "tool", "output": output}]}))
    assert run.steps[0].outcome == output
    assert reports == []


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
def test_blank_lines_are_counted(
    read: Any, reports: Any, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Blank lines are no lines to read, but they count, wherever a chunk of the file ends."""
    monkeypatch.setattr(file, "_CHUNK", chunk)
    assert len(read(f"\n \n{RUN}\n\r\n\t\n\n  x\n\n\n  {RUN}  \n\n \n\n y")) == 2
    assert [number for number, _ in whys(reports)] == [7, 14]


@pytest.mark.parametrize("filling", [b" ", b"["], ids=repr)
def test_compressed_data_holds_a_bounded_multiple_of_its_size(
    tmp_path: Path, reports: Any, monkeypatch: pytest.MonkeyPatch, filling: bytes
) -> None:
    """What decompresses to hundreds of times its size is read to the bound, and reported."""
    monkeypatch.setattr(file, "FREE", 1_000_000)
    monkeypatch.setattr(file, "_CHUNK", 100_000)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(RUN.encode() + b"\n" + filling * 4_000_000))
    one = Recording(str(path), lambda *broken: reports.append(broken))
    assert len(list(one)) == 1
    [why] = [why for _, why in whys(reports) if "the compressed data" in why]
    assert why.startswith("the compressed data holds more than 200 times its own size")


def test_an_honest_compressed_file_is_read_whole(tmp_path: Path) -> None:
    """A file of more than any small one may hold is read, if it is not all repeats."""
    draw = random.Random(1)
    path = tmp_path / "honest.gz"
    with gzip.open(path, "wb", 1) as out:
        for number in range(40):
            text = draw.randbytes(2500).hex() * 100
            step = {"kind": "tool", "tool": "t", "args": {}, "output": text}
            out.write(json.dumps({"id": str(number), "steps": [step]}).encode() + b"\n")
    assert file.FREE < 40 * 500_000
    assert len(whole(path)) == 40


def test_members_and_zeros_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in small pieces: empty members, padding over the end of a slice, more than a chunk."""
    monkeypatch.setattr(file, "_SLICE", 50)
    monkeypatch.setattr(file, "_CHUNK", 10)
    path = tmp_path / "members.gz"
    member = gzip.compress((f"{RUN}\n" * 50).encode())
    path.write_bytes(gzip.compress(b"") * 2000 + member + b"\0" * 333 + member + b"\0" * 70)
    assert len(whole(path)) == 100


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_a_device_is_refused(device: str) -> None:
    """A device, which never ends, is refused before anything of it is read."""
    with pytest.raises(RecordingError, match=f"{device}: cannot be read: it is a device"):
        Recording(device, lambda *_broken: None)


def test_a_named_pipe_is_read(tmp_path: Path) -> None:
    """A named pipe is read to its end, also if its writer comes later than its reader."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    packed = gzip.compress(f"{RUN}\n".encode() * 50_000)
    late = threading.Timer(0.2, path.write_bytes, (packed,))
    late.start()
    assert len(whole(path)) == 50_000
    late.join()
