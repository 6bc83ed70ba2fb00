"""Transcripts that coding agents kept, and what no capture shows of them, as `cases.txt` has it."""

import os
import re
from pathlib import Path

import pytest

from otel_loopguard import Settings
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Kind
from otel_loopguard.replay.transcripts.folders import project_of
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES, Told, cases, lines, of, one, read, told

CASES = cases(Path(__file__).with_name("cases.txt"))
PROMPT = '{"type": "user", "message": {"role": "user", "content": "go"}, "sessionId": "s"}'


@pytest.mark.parametrize("name", CASES)
def test_a_transcript_is_read(name: str, tmp_path: Path) -> None:
    text, *wanted = re.split(r"^(?=[>!] )", CASES[name].rstrip(), flags=re.MULTILINE)
    files = re.findall(r"^= (.+)\n((?:(?!= ).+\n)+)", text, re.MULTILINE)
    for place, content in files:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(content.rstrip())
    broken: Told = []
    whole = tmp_path if len(files) > 1 else tmp_path / files[0][0]
    found = sorted(read(whole, broken), key=lambda run: run.id)
    said = [f"> {line}" for run in found for line in told(run)]
    said += [f"! {number}: {why}" for number, why in broken]
    assert said == [line.rstrip() for line in wanted]


def test_pictures_are_told_apart_without_their_bytes(tmp_path: Path) -> None:
    written: list[object] = [PROMPT]
    for key in "abc":
        use = {"type": "tool_use", "id": key, "name": "Read", "input": {}}
        source = {"type": "base64", "data": key.replace("c", "a") * 1_000}
        result = {"type": "tool_result", "tool_use_id": key}
        content = [result | {"content": [{"type": "image", "source": source}]}]
        written += [
            {"type": "assistant", "message": {"role": "assistant", "id": "m", "content": [use]}},
            {"type": "user", "message": {"role": "user", "content": content}},
        ]
    first, other, again = of(one(lines(tmp_path / "s.jsonl", written)), Kind.TOOL)
    assert first.outcome == again.outcome != other.outcome
    assert len(str(first.outcome)) < 200


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_file_that_is_being_written_is_read_as_far_as_it_goes(name: str, tmp_path: Path) -> None:
    run = one(lines(tmp_path / name, [PROMPT, '{"type":"assistant","mess'], end=""))
    assert len(run.steps) == 1


CAPTURED = cases(CAPTURES / "read.txt")


def place(name: str, folder: Path) -> Path:
    if name == "opencode":
        return opencode.whole(folder / "opencode.db")
    return CAPTURES / name


@pytest.mark.parametrize("name", CAPTURED)
def test_a_capture_is_read(name: str, tmp_path: Path) -> None:
    """Its calls with what came of them, its answers with their tokens, sub-agents in between."""
    run = one(place(name, tmp_path))
    assert told(run) == CAPTURED[name].rstrip().splitlines()
    assert len({step.call_id for step in of(run, Kind.TOOL)}) == len(of(run, Kind.TOOL))
    assert all((call.start or 0) < (call.end or 0) for call in of(run, Kind.TOOL)) or "." in name
    first = result_of(run, Settings()).decisions[0]
    assert (first.action.value, first.reason) == ("hint", "equal_error")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_in_the_place_of_the_project_is_not_waited_for(tmp_path: Path) -> None:
    """gemini-cli says there where it works."""
    os.mkfifo(tmp_path / ".project_root")
    assert project_of(tmp_path / "chats" / "session.jsonl") == ""
