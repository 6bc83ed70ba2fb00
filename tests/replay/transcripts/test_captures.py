"""What coding agents kept of sessions is read as `captures/read.txt` has it."""

import os
from pathlib import Path

import pytest

from otel_loopguard import Settings
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Kind
from otel_loopguard.replay.transcripts.folders import project_of
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES, cases, of, one, told

CASES = cases(CAPTURES / "read.txt")


def place(name: str, folder: Path) -> Path:
    if name == "opencode":
        return opencode.whole(folder / "opencode.db")
    return CAPTURES / name


@pytest.mark.parametrize("name", CASES)
def test_a_capture_is_read(name: str, tmp_path: Path) -> None:
    """Its calls with what came of them, its answers with their tokens, sub-agents in between."""
    run = one(place(name, tmp_path))
    assert told(run) == CASES[name].rstrip().splitlines()
    assert len({step.call_id for step in of(run, Kind.TOOL)}) == len(of(run, Kind.TOOL))
    assert all((call.start or 0) < (call.end or 0) for call in of(run, Kind.TOOL)) or "." in name
    first = result_of(run, Settings()).decisions[0]
    assert (first.action.value, first.reason) == ("hint", "equal_error")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_in_the_place_of_the_project_is_not_waited_for(tmp_path: Path) -> None:
    """gemini-cli says there where it works."""
    os.mkfifo(tmp_path / ".project_root")
    assert project_of(tmp_path / "chats" / "session.jsonl") == ""
