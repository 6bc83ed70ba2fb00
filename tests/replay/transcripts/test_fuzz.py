"""Whatever stands in a transcript, reading it never throws and ends; what is wrong is told."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_loopguard.core import Kind
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES, Told, read

SOURCES = {
    "claude": next((CAPTURES / "claude").rglob("996*.jsonl")),
    "stream": CAPTURES / "claude-code.stream.jsonl",
    "codex": next((CAPTURES / "codex").rglob("*.jsonl")),
    "gemini": next((CAPTURES / "gemini").rglob("*.jsonl")),
}
LINES = {name: path.read_text().splitlines() for name, path in SOURCES.items()}
LINES["opencode"] = opencode.rows()
ATIF = '{"schema_version": "ATIF-v1.7"}'
NAMES = (
    "type message payload sessionId id uuid parentUuid isSidechain agentId content steps timestamp "
    "toolCalls $set messages schema_version agent role usage"
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw: st.DrawFn, name: str) -> list[str]:
    """A transcript with lines dropped, doubled, swapped, cut, and with values replaced."""
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


@pytest.mark.parametrize("name", LINES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_transcript_that_was_damaged_is_read(name: str, data: st.DataObject) -> None:
    written = data.draw(changed(name))
    told: Told = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "session.jsonl"
        place.write_text("\n".join(written) + "\n", encoding="utf-8", errors="surrogatepass")
        found = read(place, told)
    assert all(1 <= number <= len(written) and why for number, why in told)
    calls = [step for run in found for step in run.steps if step.kind is Kind.TOOL]
    assert len(
        {(id(run), step.call_id) for run in found for step in run.steps if step.call_id}
    ) == len(calls)


@settings(max_examples=100, deadline=None)
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
    told: Told = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "session.jsonl"
        text = "\n".join([head, *map(json.dumps, fields)])
        place.write_text(text, encoding="utf-8", errors="surrogatepass")
        for run in read(place, told):
            assert all(step.kind in Kind for step in run.steps)
