"""A backtest decides what the guard decides that sees the same runs in its process."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from otel_loopguard import Decision, Settings
from otel_loopguard.backtest import BacktestResult, replay_session
from otel_loopguard.backtest import rows as forms
from otel_loopguard.backtest.rows import SPAN, BrokenRow, parsed, row_of, span_of
from otel_loopguard.backtest.run import run
from otel_loopguard.cli.replay import ReplayResult, Results, result_of
from otel_loopguard.replay import Recording, Run
from tests.backtest.sources import exported, ignore, spans_of, write_spans


def told(decisions: Iterable[Decision]) -> list[tuple[object, ...]]:
    names = "detector reason step time count confidence".split()
    return [(one.action.value, *(getattr(one, name) for name in names)) for one in decisions]


def by_session(found: Iterable[ReplayResult | BacktestResult]) -> dict[str, Any]:
    return {each.session: told(each.decisions) for each in found}


def results_of(path: Path) -> dict[str, Any]:
    """What `replay` says of a file of spans, the guard as it stands in a process, without times."""
    found = by_session(
        result for _, result in Results(path.name, Settings()).replay(spans_of(path))
    )
    return {key: [(*d[:4], *d[5:]) for d in each] for key, each in found.items()}


def written_out(pattern: str) -> dict[str, Any]:
    table = parquet.read_table(sorted(Path(pattern).parent.glob("part-*.parquet")))
    names = ("action", "detector", "rule", "step", "count", "confidence")
    return {
        row["session"]: [tuple(each[name] for name in names) for each in row["decisions"]]
        for row in table.to_pylist()
    }


@pytest.mark.parametrize("name", ["magentic", "sentinel", "captainagent", "trail"])
def test_labelled_runs_are_decided_as_in_process(shared: Path, name: str, tmp_path: Path) -> None:
    path = shared / "traces" / f"{name}.jsonl.gz"
    runs = [each for each in Recording(str(path), ignore) if isinstance(each, Run)]
    for one in islice(runs, 0, None, 5):
        head = {"id": one.id, "source": one.source, "loop": one.loop, "tier": one.tier}
        rows = [(forms.RUN, head), *((forms.STEP, forms.entry_of(step)) for step in one.steps)]
        rows = [(form, parsed(forms.written(row))) for form, row in rows]
        (found,) = replay_session(rows, Settings())  # type: ignore[arg-type]
        expected = result_of(one, Settings())
        assert told(found.decisions) == told(expected.decisions)
        assert (found.session, found.loop, found.spent.steps) == (one.id, one.loop, len(one.steps))


def test_captured_spans_are_decided_as_in_process(shared: Path, tmp_path: Path) -> None:
    """All captures at once: in one process their sessions share nothing but the file."""
    noticed = 0
    for path in sorted((shared / "spans").glob("*.otlp.jsonl"))[::3]:
        expected = results_of(path)
        found = run(str(path), Settings(), tmp_path / path.stem, jobs=1)
        assert written_out(found.parts) == expected, path.name
        noticed += sum(map(len, expected.values()))
    assert noticed > 5


CAPTURES = """
autogen__openinference crewai__openllmetry google-adk__native langgraph__genai langgraph__langsmith
mcp__native openai-agents__logfire pydantic-ai__logfire
"""


@pytest.mark.parametrize("name", CAPTURES.split())
def test_rows_of_clickhouse_are_decided_as_in_process(
    shared: Path, name: str, tmp_path: Path
) -> None:
    """Also though all attributes are text there, and rows lie in any order."""
    path = shared / "spans" / f"{name}.otlp.jsonl"
    spans = spans_of(path)
    table = write_spans(map(exported, reversed(spans)), tmp_path / "spans.parquet")
    found = run(str(table), Settings(), tmp_path / "out", jobs=1)
    assert written_out(found.parts) == results_of(path)
    assert found.notes.rows == len(spans)


def test_broken_rows_are_counted_and_the_rest_is_replayed(shared: Path) -> None:
    spans = spans_of(shared / "spans" / "langgraph__genai.otlp.jsonl")
    bad: list[dict[str, Any]] = [
        {}, {**row_of(spans[0]), "Timestamp": "yesterday"},
        {**row_of(spans[0]), "SpanAttributes": "[1"}, {**row_of(spans[0]), "SpanId": 7},
    ]  # fmt: skip
    broken = Counter[str]()
    good = [(SPAN, row_of(span)) for span in spans]
    rows = [*((SPAN, row) for row in bad), *good]
    found = replay_session(rows, Settings(), broken=broken)
    assert by_session(found) == by_session(replay_session(good, Settings()))
    assert broken == {
        "a span has no valid trace id and span id": 2,
        "a span has no valid `Timestamp`": 1,
        "`SpanAttributes` of a span holds no names and values": 1,
    }


def test_times_are_read_to_the_nanosecond(shared: Path) -> None:
    span = spans_of(shared / "spans" / "langgraph__genai.otlp.jsonl")[0]
    for text in ("2024-01-01 00:00:00.123456789", "2024-01-01T01:00:00.123456789+01:00"):
        read = span_of({**row_of(span), "Timestamp": text})
        assert read.start == 1_704_067_200_123_456_789


def test_what_is_no_json_is_broken() -> None:
    with pytest.raises(BrokenRow, match="not valid JSON"):
        parsed("{")
    with pytest.raises(BrokenRow, match="deep"):
        parsed("[" * 5_000_000)


def test_calls_without_a_cost_have_that_of_their_tokens(tmp_path: Path) -> None:
    """By the package's prices and those of a file, as for limits and transcripts."""
    prices = tmp_path / "prices.toml"
    prices.write_text('[models]\n"mine" = { input = 2, output = 10 }\n')
    used = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "mine"}
    row = {
        "TraceId": "1" * 32, "SpanId": "2" * 16, "SpanName": "chat mine",
        "Timestamp": "2024-01-01 00:00:00", "Duration": 1, "SpanAttributes": {**model, **used},
    }  # fmt: skip
    for file, cost in (("", None), (str(prices), 0.003)):
        (found,) = replay_session([(SPAN, row)], Settings(prices_file=file))
        assert found.spent.cost == cost
