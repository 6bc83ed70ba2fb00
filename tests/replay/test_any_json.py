"""No JSON value in any place of any format makes a reader throw."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.replay.labelled_runs import run
from otel_loopguard.replay.recording import span_reader_of
from otel_loopguard.spans.reader import Reader

SAMPLES = Path(__file__).parent / "samples"
TRACE, SPAN = "5b8aa5a2d2c872e8321cf37308d69df2", "5fb397be34d26b51"
TIMES = {"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000000000000001"}
PAIRS = [
    {"key": "gen_ai.tool.name", "value": {"stringValue": "x"}},
    {"key": "l", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
    {"key": "event.name", "value": {"stringValue": "codex.tool_result"}},
    {"key": "conversation.id", "value": {"stringValue": "s"}},
    {"key": "duration_ms", "value": {"intValue": "3"}},
]
IDS = {"traceId": TRACE, "spanId": SPAN, "attributes": PAIRS}
OTLP = {
    "name": "execute_tool x", "kind": 3, "status": {"code": 2, "message": "no"}, **IDS, **TIMES,
    "events": [{"name": "exception", "attributes": PAIRS}],
}  # fmt: skip
TAG = {"key": "span.kind", "type": "string", "value": "client"}
JAEGER = {
    "traceID": TRACE, "spanID": SPAN, "operationName": "x", "startTime": 1_700_000_000_000_001,
    "duration": 2_500, "tags": [TAG, {"key": "n", "type": "int64", "value": "1"}],
    "logs": [{"timestamp": 1, "fields": [TAG]}],
    "references": [{"refType": "CHILD_OF", "traceID": TRACE, "spanID": "ff"}],
}  # fmt: skip
CONSOLE = {
    "name": "execute_tool x", "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}"},
    "kind": "SpanKind.CLIENT", "parent_id": None, "start_time": "2026-11-21T20:26:12.542000Z",
    "end_time": "2026-11-21T20:26:12.543000Z", "status": {"status_code": "ERROR"},
    "attributes": {"n": 1}, "events": [{"name": "exception", "attributes": {"a": "b"}}],
}  # fmt: skip
RUN = {
    "id": "a/b", "source": "s", "loop": True, "onset_step": 3, "label": {"tier": "pos_human"},
    "steps": [
        {
            "kind": "tool", "agent": "a", "tool": "t", "args": {"x": 1}, "output": "out",
            "error": False, "t_start": 1.5, "t_end": 2.0, "tokens": 12, "text": "said",
        }
    ],
}  # fmt: skip
RECORD = {"timeUnixNano": "1700000000000000000", "body": {"stringValue": "b"}, **IDS}
DOCUMENTS: dict[str, Any] = {
    "OTLP": {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "s"}, "spans": [OTLP]}]}]},
    "logs": {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": [RECORD]}]}]},
    "Jaeger": {"traceID": TRACE, "spans": [JAEGER]},
    "console": CONSOLE,
    "labelled": RUN,
    **{
        path.name: json.loads(path.read_text() if path.suffix == ".json" else first)
        for path in sorted(SAMPLES.glob("*.json*"))
        for first in [path.read_text().splitlines()[0]]
    },
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def places(value: Any, *above: Any) -> list[tuple[Any, ...]]:
    """Every place in a document, by keys and indices."""
    if not isinstance(value, (dict, list)):
        return []
    found: list[tuple[Any, ...]] = []
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        found += [(*above, key), *(places(each, *above, key))]
    return found


@given(st.sampled_from(sorted(DOCUMENTS)), st.data())
def test_any_json_is_read(name: str, data: Any) -> None:
    """Two values of a real document are replaced by any others; no entry of a run is lost."""
    document = deepcopy(DOCUMENTS[name])
    for _ in range(2):
        place = data.draw(st.sampled_from(places(document) or [("steps",)]))
        inner = document
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = data.draw(VALUES)
    if name == "labelled":
        steps = document["steps"]
        found = run(document, "r", lambda _why: None)
        assert len(found.steps) == (len(steps) if isinstance(steps, list) else 0)
        return
    reads = span_reader_of(document)
    if reads is not None:
        for span in reads(document, lambda _why: None):
            Reader().read(span)
