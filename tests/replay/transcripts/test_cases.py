"""What no capture shows of transcripts, as `cases.txt` has it, and what no lines can show."""

import re
from pathlib import Path

import pytest

from otel_loopguard.core import Kind
from tests.replay.transcripts.reading import Told, cases, lines, of, one, read, told

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
