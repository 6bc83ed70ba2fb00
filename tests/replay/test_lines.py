"""Labelled step lines become runs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Recording, Run
from otel_loopguard.replay import labelled_runs as lines


def entry(**fields: object) -> dict[str, Any]:
    known = {"kind": "tool", "agent": "a", "tool": "t", "args": {"x": 1}, "output": "out"}
    unknown = {"error": False, "t_start": None, "t_end": None, "tokens": None, "text": None}
    return {**known, **unknown, **fields}


def step(**fields: object) -> Step:
    return lines.run({"steps": [entry(**fields)]}, "r", lambda _why: None).steps[0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"kind": Kind.TOOL, "name": "t", "outcome": "out", "error": False}),
        ({"kind": "llm", "tool": "gpt"}, {"kind": Kind.MODEL, "name": "gpt", "model": "gpt"}),
        ({"kind": "llm", "tool": ""}, {"kind": Kind.MODEL, "name": None}),
        ({"kind": "node"}, {"kind": Kind.NODE, "name": "t", "node": "t"}),
        ({"kind": "agent"}, {"kind": Kind.HANDOFF, "name": "t"}),
        ({"kind": "agent", "tool": "user"}, {"kind": Kind.OTHER, "name": "user"}),
        # The end of an agent's run.
        (
            {"kind": "agent", "tool": "CodeAgent.run", "args": {}, "agent": "CodeAgent"},
            {"kind": Kind.AGENT, "name": "CodeAgent"},
        ),
        ({"kind": "dream"}, {"kind": Kind.OTHER, "name": "t"}),
        ({"kind": None}, {"kind": Kind.OTHER, "name": "t"}),
        # What was not captured is unknown; what was captured empty is empty.
        ({"output": ""}, {"outcome": ""}),
        ({"output": "", "span_id": "1"}, {"outcome": None}),  # TRAIL writes unknown as empty
        ({"output": None}, {"outcome": None}),
        ({"output": {"a": 1}}, {"outcome": {"a": 1}}),
        ({"kind": "llm", "output": ""}, {"outcome": None}),  # a model answers by its text
        (
            {"error": True, "output": "boom"},
            {"error": True, "error_text": "boom", "outcome": "boom"},
        ),
        ({"error": True, "output": ""}, {"error": True, "error_text": None, "outcome": ""}),
        ({"error": "false"}, {"error": False}),
        # Seconds become nanoseconds; what cannot be is unknown.
        (
            {"t_start": 1.5, "t_end": 2.0, "tokens": 12},
            {"start": 1_500_000_000, "end": 2_000_000_000, "tokens": 12},
        ),
        (
            {"t_start": "x", "t_end": float("inf"), "tokens": -1},
            {"start": 0, "end": 0, "tokens": None},
        ),
    ],
    ids=str,
)
def test_steps(fields: Any, expected: Any) -> None:
    known = step(**fields)
    assert {name: getattr(known, name) for name in expected} == expected


def test_a_run_has_its_label() -> None:
    """Id, source, tier, loop, onset and success come from the line."""
    line = {"id": "a/b", "source": "s", "loop": True, "onset_step": 3, "steps": []}
    run = lines.run(
        line | {"label": {"tier": "pos_human", "success": False}}, "r", lambda _why: None
    )
    assert (run.id, run.source, run.tier) == ("a/b", "s", "pos_human")
    assert (run.loop, run.onset_step, run.success) == (True, 3, False)


def test_broken_entries_keep_their_place(read: Any, reports: Any) -> None:
    """An entry that is no step is reported and keeps its index."""
    [run] = read({"steps": [entry(), 7, entry(tool="last")]})
    assert [known.kind for known in run.steps] == [Kind.TOOL, Kind.OTHER, Kind.TOOL]
    assert run.steps[2].name == "last"
    assert run.id == "recorded.jsonl:1"
    assert reports


def test_every_run_is_read(shared: Path) -> None:
    """Every recorded run is read with as many steps as its line has."""
    files = [path for path in (shared / "traces").glob("*.gz") if "otlp" not in path.name]
    total = 0
    for path in files:
        runs = list(Recording(str(path), lambda *broken: pytest.fail(str(broken))))
        with gzip.open(path, "rt") as text:
            for run, line in zip(runs, map(json.loads, text), strict=True):
                assert isinstance(run, Run)
                assert (run.id, run.loop) == (line["id"], line["loop"])
                assert len(run.steps) == len(line["steps"])
                total += len(run.steps)
    assert total > 30_000
