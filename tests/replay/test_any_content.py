"""Whatever stands in a recording, reading it never throws and ends; what is wrong is told."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopguard.core import Kind
from otel_loopguard.replay import Run, Transcript, recordings
from otel_loopguard.spans.reader import Reader
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES

SAMPLES = Path(__file__).parent / "samples"
FILES = [
    *SAMPLES.glob("*.json*"),
    *(CAPTURES / "claude").rglob("996*.jsonl"),
    CAPTURES / "claude-code.stream.jsonl",
    *(CAPTURES / "codex").rglob("*.jsonl"),
    *(CAPTURES / "gemini").rglob("*.jsonl"),
]
LINES = {
    path.name: [json.dumps(json.loads(text))] if path.suffix == ".json" else text.splitlines()
    for path in sorted(FILES)
    for text in [path.read_text("utf-8")]
}
LINES["opencode"] = opencode.rows()
ATIF = '{"schema_version": "ATIF-v1.7"}'
NAMES = (
    "type message payload sessionId id uuid parentUuid isSidechain agentId content steps timestamp "
    "toolCalls $set messages schema_version agent role usage"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn, name: str) -> list[str]:
    """A file with lines dropped, doubled, swapped, cut, and with values replaced."""
    written = list(LINES[name])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(written) - 1))
        match draw(st.sampled_from(("drop", "double", "swap", "cut", "value", "value", "value"))):
            case "drop" if len(written) > 1:
                del written[at]
            case "double":
                written.insert(draw(st.integers(0, len(written))), written[at])
            case "swap":
                other = draw(st.integers(0, len(written) - 1))
                written[at], written[other] = written[other], written[at]
            case "cut":
                written[at] = written[at][: draw(st.integers(0, len(written[at])))]
            case _:
                written[at] = replaced(draw, written[at])
    return written


def replaced(draw: st.DrawFn, line: str) -> str:
    """A line with one value, wherever it stands, replaced or taken away."""
    try:
        value: Any = json.loads(line)
    except ValueError:
        return line
    inner: Any = value
    while isinstance(inner, (dict, list)) and inner:
        key = draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
        deeper = inner[key]
        if not isinstance(deeper, (dict, list)) or not deeper or draw(st.booleans()):
            if isinstance(inner, dict) and draw(st.booleans()):
                del inner[key]
            else:
                inner[key] = draw(VALUES)
            break
        inner = deeper
    return json.dumps(value)


def check(content: bytes) -> None:
    """Reads a file of it, spans to steps: each report names a line, each call counts once."""
    told: list[tuple[int, str]] = []
    with TemporaryDirectory() as folder:
        place = Path(folder) / "recorded.jsonl"
        place.write_bytes(content)
        (recording,) = recordings(str(place), lambda _, line, why: told.append((line, why)))
        for entry in recording:
            if not isinstance(entry, Run):
                Reader().read(entry)
            elif isinstance(entry, Transcript):
                calls = [step for step in entry.steps if step.kind is Kind.TOOL]
                keys = {step.call_id for step in entry.steps if step.call_id}
                assert len(keys) == len(calls)
    assert all(1 <= number <= content.count(b"\n") + 1 and why for number, why in told)


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_file_that_was_damaged_is_read(name: str, data: st.DataObject) -> None:
    check("\n".join(data.draw(changed(name))).encode("utf-8", "surrogatepass"))


@given(
    head=st.sampled_from([*(lines[0] for lines in LINES.values()), ATIF]),
    fields=st.lists(
        st.dictionaries(
            st.sampled_from(NAMES.split()),
            VALUES | st.sampled_from(("user", "assistant", "response_item", "gemini", "ATIF-v1.7")),
        ),
        max_size=8,
    ),
)
def test_lines_of_any_shape_behind_a_head_are_read(head: str, fields: list[dict[str, Any]]) -> None:
    check("\n".join([head, *map(json.dumps, fields)]).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read(content: bytes) -> None:
    check(content)
