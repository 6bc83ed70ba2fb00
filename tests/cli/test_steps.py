"""`otel-loopguard steps` prints the canonical steps of recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

KEYS = (
    "source session index kind tool args outcome error error_class agent node start end tokens "
    "dialect call_id lacks"
)


def test_a_capture(objects: Any, shared: Path) -> None:
    """Every call of a captured agent is printed once, with its arguments and outcome."""
    rows = objects("steps", shared / "spans/langgraph__openinference.otlp.jsonl")
    assert {" ".join(row) for row in rows} == {KEYS}
    assert {row["source"] for row in rows} == {"langgraph__openinference.otlp.jsonl"}
    [session] = {row["session"] for row in rows}
    assert [row["index"] for row in rows] == list(range(len(rows)))
    tools = [row for row in rows if row["kind"] == "tool"]
    bodies = json.loads((shared / "spans/langgraph__openinference.json").read_text())["bodies"]
    assert [row["tool"] for row in tools] == [
        body["name"] for body in bodies if body["kind"] == "tool"
    ]
    assert tools[0]["args"] == "weather in Paris"
    assert tools[0]["outcome"] == "no results for weather in Paris"
    assert tools[0]["start"] < tools[0]["end"]
    assert session


@pytest.mark.parametrize(
    ("fields", "start", "end"),
    [
        ({"t_start": 0.0, "t_end": 0.5}, 0.0, 0.5),
        ({"t_start": 2.0}, 2.0, None),
        ({}, None, None),
    ],
    ids=["from zero", "start only", "unknown"],
)
def test_times_are_seconds(
    objects: Any, tmp_path: Path, fields: Any, start: float | None, end: float | None
) -> None:
    """Times are seconds, null if unknown; a clock that begins at 0 is known."""
    path = tmp_path / "f"
    path.write_text(json.dumps({"id": "r", "steps": [{"kind": "tool", **fields}]}))
    [row] = objects("steps", path)
    assert (row["start"], row["end"]) == (start, end)


def test_odd_values_are_valid_json(objects: Any, tmp_path: Path) -> None:
    """Lone surrogates, NaN, huge numbers and deep nesting come out as valid JSON."""
    deep = "[" * 600 + "]" * 600
    path = tmp_path / "f"
    path.write_text(
        f'{{"id":"\\ud800","steps":[{{"kind":"tool","args":{{"a":NaN,"b":{10**30},"c":{deep}}},'
        '"output":"\\udfff"}]}'
    )
    [row] = objects("steps", path)
    assert row["session"] == "\ud800"
    assert row["args"]["a"] is None
    assert row["args"]["b"] == 10**30
    assert "…" in json.dumps(row["args"]["c"], ensure_ascii=False)
    assert row["outcome"] == "\udfff"


def test_the_table_is_plain(command: Any, tmp_path: Path) -> None:
    """A call, and what came of it, from 1; no control character of the recording reaches it."""
    path = tmp_path / "f"
    step = {"kind": "tool", "tool": "\x1b[31mred", "output": "a\nb\ud800"}
    path.write_text(json.dumps({"id": "run", "steps": [step]}))
    result = command("steps", path)
    assert result.exit_code == 0
    session, call, outcome = (row.split() for row in result.stdout.splitlines())
    assert session == ["session", "run"]
    assert "\x1b" not in result.stdout
    assert call[:2] == ["1", "tool"]
    assert outcome == ["→", "a", "b\\ud800"]
