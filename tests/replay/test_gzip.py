"""Gzip is read alike with isal, where it is installed, and with zlib."""

from __future__ import annotations

import gzip
import json
from importlib import import_module
from pathlib import Path

import pytest

from otel_loopguard.replay import Recording, Run

RUN = json.dumps({"id": "r", "steps": [{"kind": "tool", "tool": "t", "args": {}, "output": "o"}]})
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
    path = tmp_path / "runs.gz"
    path.write_bytes(content)

    def read(module: str) -> tuple[int, list[str]]:
        monkeypatch.setattr("otel_loopguard.replay.file.zlib", import_module(module))
        reports: list[str] = []
        recording = Recording(str(path), lambda _file, _line, why: reports.append(why))
        return sum(isinstance(entry, Run) for entry in recording), reports

    found, reports = read("zlib")
    assert found in runs
    assert why in "\n".join(reports)
    assert bool(reports) is bool(why)
    assert read("isal.isal_zlib") == (found, reports)
