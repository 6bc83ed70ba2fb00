"""Fixtures for recorded files."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_loopguard.replay import Recording, Run
from otel_loopguard.spans.views import RecordedSpan

Reports = list[tuple[str, int, str]]
Read = Callable[..., list[RecordedSpan | Run]]


@pytest.fixture
def reports() -> Reports:
    return []


@pytest.fixture
def read(tmp_path: Path, reports: Reports) -> Read:
    def reading(content: object, *, zipped: bool = False) -> list[object]:
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        path = tmp_path / "recorded.jsonl"
        path.write_bytes(gzip.compress(content) if zipped else content)
        return list(Recording(str(path), lambda *broken: reports.append(broken)))

    return reading
