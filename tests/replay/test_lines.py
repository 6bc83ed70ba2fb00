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
    ("fields", "kind", "name"),
    [
        pytest.param({}, Kind.TOOL, "t", id="tool"),
        pytest.param({"kind": "llm", "tool": "gpt"}, Kind.MODEL, "gpt", id="model"),
        pytest.param({"kind": "llm", "tool": ""}, Kind.MODEL, None, id="model without a name"),
        pytest.param({"kind": "node"}, Kind.NODE, "t", id="node"),
        pytest.param({"kind": "agent"}, Kind.HANDOFF, "t", id="handoff"),
        pytest.param({"kind": "agent", "tool": "user"}, Kind.OTHER, "user", id="user turn"),
        pytest.param(
            {"kind": "agent", "tool": "CodeAgent.run", "args": {}, "agent": "CodeAgent"},
            Kind.AGENT,
            "CodeAgent",
            id="end of an agent",
        ),
        pytest.param({"kind": "dream"}, Kind.OTHER, "t", id="unknown"),
        pytest.param({"kind": None}, Kind.OTHER, "t", id="none"),
    ],
)
def test_kinds(fields: Any, kind: Kind, name: str | None) -> None:
    """Each kind of entry becomes its kind of step."""
    known = step(**fields)
    assert (known.kind, known.name) == (kind, name)


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        pytest.param({"output": ""}, "", id="empty is captured and empty"),
        pytest.param({"output": "", "span_id": "1"}, None, id="TRAIL writes unknown as empty"),
        pytest.param({"output": None}, None, id="null is unknown"),
        pytest.param({"output": {"a": 1}}, {"a": 1}, id="a map stays one"),
        pytest.param({"kind": "llm", "output": ""}, None, id="a model answers by its text"),
    ],
)
def test_outcomes(fields: Any, outcome: object) -> None:
    """What was not captured is unknown; what was captured empty is empty."""
    assert step(**fields).outcome == outcome


def test_errors() -> None:
    """A failed call has its output as outcome and, if there is any, as error text."""
    failed = step(error=True, output="boom")
    assert (failed.error, failed.error_text, failed.outcome) == (True, "boom", "boom")
    silent = step(error=True, output="")
    assert (silent.error, silent.error_text, silent.outcome) == (True, None, "")
    assert step(error="false").error is False


def test_times_and_tokens() -> None:
    """Seconds become nanoseconds; unknown times are 0; negative tokens are unknown."""
    known = step(t_start=1.5, t_end=2.0, tokens=12)
    assert (known.start, known.end, known.tokens) == (1_500_000_000, 2_000_000_000, 12)
    unknown = step(t_start="x", t_end=float("inf"), tokens=-1)
    assert (unknown.start, unknown.end, unknown.tokens) == (0, 0, None)


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


def test_what_is_known_of_the_sources(shared: Path) -> None:
    """TRAIL's empty tool outputs are unknown, and its agents' ends are agent steps."""
    runs = list(Recording(str(shared / "traces/trail.jsonl.gz"), lambda *_broken: None))
    steps = [known for run in runs for known in run.steps]
    tools = [known for known in steps if known.kind is Kind.TOOL]
    assert sum(known.outcome is None for known in tools) == 67
    assert sum(known.kind is Kind.AGENT for known in steps) == 99
    assert all(known.kind is not Kind.HANDOFF for known in steps)
