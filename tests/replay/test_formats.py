"""Files as OpenTelemetry, Jaeger, Langfuse, LangSmith, Phoenix and agents write them.

The log records are what Claude Code 2.1.330, Codex 0.169.0 and gemini-cli 0.61.0 exported;
`samples/README.md` says where the exports come from. `fields.txt` has what single fields mean.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Run
from otel_loopguard.server.otlp import decode, log_views
from otel_loopguard.spans.reader import Reader
from tests.replay import rows
from tests.replay.conftest import Read, Reports
from tests.replay.rows import (
    BASES,
    Ended,
    attribute,
    jaeger,
    loaded,
    log_records,
    request,
    span,
    whole,
)
from tests.replay.transcripts.reading import cases

SAMPLES = Path(__file__).parent / "samples"
LOGS = Path(__file__).resolve().parents[1] / "dialects" / "node_captures"


def steps(spans: list[Any]) -> list[Step]:
    read = Reader().read
    found = [read(span) for span in sorted(spans, key=lambda span: (span.start, -(span.end or 0)))]
    return [step for step in found if step is not None]


SNAKE = {"trace_id": rows.TRACE, "span_id": rows.SPAN, "name": "step", "start_time_unix_nano": 1}
GROUP = {"scope": {"name": rows.SCOPE}, "spans": [SNAKE | {"end_time_unix_nano": 2}]}
DOCUMENTS = {
    "older name of scopes": request(
        span(), scopes="instrumentationLibrarySpans", scope="instrumentationLibrary"
    ),
    "under data": {"data": request(span())},
    "a list under data": {"data": [request(span())]},
    "a list": [request(span())],
    "Tempo": {"trace": {"batches": request(span())["resourceSpans"]}},
    "snake case": {"resource_spans": [{"scope_spans": [GROUP]}]},
    "Jaeger": jaeger(),
    "one trace of Jaeger": jaeger()["data"][0],
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_wrappings(read: Any, reports: Any, name: str) -> None:
    """The same spans are found in every wrapping that files have, on one line or on many."""
    for text in (json.dumps(DOCUMENTS[name]), json.dumps(DOCUMENTS[name], indent=2)):
        [known] = read(text)
        assert (known.name, known.scope) == ("step", rows.SCOPE)
    assert len(read("\n".join([json.dumps(DOCUMENTS[name])] * 3))) == 3
    assert reports == []


def test_the_console_exporters_spans_are_read(read: Any, reports: Any) -> None:
    """All that the form says is read: ids, times to the microsecond, attributes, events, status."""
    ended = Ended()
    call, agent = read(ended.text)
    expected, above = ended.spans
    assert reports == []
    assert expected.context is not None
    assert above.context is not None
    assert (call.trace_id, call.span_id) == (expected.context.trace_id, expected.context.span_id)
    assert (call.parent_id, agent.parent_id) == (above.context.span_id, None)
    assert (call.name, agent.name) == ("execute_tool search", "invoke_agent helper")
    assert (call.kind, agent.kind) == ("CLIENT", "INTERNAL")
    # The SDK writes times by way of a float.
    assert call.start == pytest.approx(expected.start_time, abs=2000, rel=0)
    assert call.end == pytest.approx(expected.end_time, abs=2000, rel=0)
    assert call.attributes == {"n": 1, "l": ["a"]}
    assert (call.status, call.description, agent.status) == ("error", "bad", "unset")
    [(event, attributes)] = call.events
    assert (event, attributes["exception.message"]) == ("exception", "no")


def test_console_spans_stand_in_lines_in_a_list_and_between_other_lines(
    read: Any, reports: Any
) -> None:
    spans = [span.to_json(indent=0).replace("\n", "") for span in Ended().spans]
    assert len(read("\n".join(spans))) == len(read(f"[{','.join(spans)}]")) == 2
    assert reports == []
    assert len(read(Ended(said="Hello, I am an agent.\n").text)) == 2
    assert [number for _, number, _ in reports] == [1]


def test_a_value_of_otlp_that_is_nested_deep(read: Any) -> None:
    """Below 64 levels it is kept as it stands in the file."""
    value: Any = {"stringValue": "deep"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    [known] = read(rows.attribute(value))
    inner = known.attributes["k"]
    for _ in range(64):
        [inner] = inner
    assert "deep" in json.dumps(inner)


def test_spans_without_an_end_are_counted(read: Any, reports: Any) -> None:
    """Only spans that ended are exported: a broken exporter left it out."""
    document = request(span())
    group = document["resourceSpans"][0]["scopeSpans"][0]
    group["spans"] += [span(spanId=f"{n:016x}", endTimeUnixNano="0") for n in range(1, 4)]
    group["spans"].append("x")  # costs nothing but itself
    assert [known.end for known in read(document)] == [2000, 1000, 1000, 1000]
    assert [(number, why) for _, number, why in reports] == [
        (1, "an entry of `spans` is text, expected an object"),
        (1, "3 spans have no end time, and count as ended when they started"),
    ]


def test_every_capture_is_read(shared: Path) -> None:
    """Every capture gives as many spans as a plain count finds, and nothing is reported."""
    captures = sorted((shared / "spans").glob("*.otlp.jsonl"))
    assert captures
    for capture in captures:
        expected = capture.read_text().count('"startTimeUnixNano"')
        assert len(whole(capture)) == expected, capture.name


def test_every_run_is_read(shared: Path) -> None:
    """Every recorded run is read with as many steps as its line has."""
    files = [path for path in (shared / "traces").glob("*.gz") if "otlp" not in path.name]
    total = 0
    for path in files:
        with gzip.open(path, "rt") as text:
            for run, line in zip(whole(path), map(json.loads, text), strict=True):
                assert isinstance(run, Run)
                assert (run.id, run.loop) == (line["id"], line["loop"])
                assert len(run.steps) == len(line["steps"])
                total += len(run.steps)
    assert total > 30_000


def test_a_run_has_its_label_and_its_entries_their_places(read: Any, reports: Any) -> None:
    """An entry that is no step is reported, and keeps its index."""
    label = {"tier": "pos_human", "success": False}
    line = {"id": "a/b", "source": "s", "loop": True, "onset_step": 3, "label": label}
    [run] = read(line | {"steps": [rows.LABELLED, 7, rows.LABELLED | {"tool": "last"}]})
    assert (run.id, run.source, run.tier) == ("a/b", "s", "pos_human")
    assert (run.loop, run.onset_step, run.success) == (True, 3, False)
    assert [known.kind for known in run.steps] == [Kind.TOOL, Kind.OTHER, Kind.TOOL]
    assert run.steps[2].name == "last"
    assert reports
    assert read({"steps": []})[0].id == "recorded.jsonl:1"


EXPORTS = {
    "langfuse-trace.json": "chat-7", "langfuse-observations.jsonl": "chat-7",
    "langsmith-runs.jsonl": "sess-42", "phoenix-dataframe.jsonl": "sess-42",
    "phoenix-api.json": "sess-42",
}  # fmt: skip


@pytest.mark.parametrize(("name", "session"), EXPORTS.items())
def test_an_export_tells_what_the_agent_did(name: str, session: str) -> None:
    """Calls with arguments, outcomes and errors, the answer of the model, session and agent."""
    found = steps(whole(SAMPLES / name))
    assert [step.kind for step in found] == [Kind.AGENT, *[Kind.TOOL] * 4, Kind.MODEL]
    agent, *calls, answer = found
    assert [call.name for call in calls] == ["search"] * 3 + ["broken"]
    query = rows.PARIS["query"] if name.startswith("phoenix") else rows.PARIS  # by OpenInference
    assert [loaded(call.args) for call in calls] == [query] * 3 + [{"x": 1}]
    assert [call.outcome for call in calls[:3]] == ["no results for weather in Paris"] * 3
    assert [call.call_id for call in calls[:3]] == ["call_0", "call_1", "call_2"]
    assert [call.error for call in calls] == [False] * 3 + [True]
    assert "broken backend for x=1" in (calls[3].error_text or "")
    assert "Traceback" not in (calls[3].error_text or "")
    assert (answer.model, answer.tokens_in, answer.tokens_out) == ("fake-loop", 230, 12)
    assert answer.text == "I could not find it. Final answer: unknown."
    assert agent.name == "looper"
    assert {step.session for step in found} == {session}
    assert {step.parent_id for step in calls if not name.startswith("phoenix")} <= {agent.span_id}


@pytest.mark.parametrize("row", [rows.LANGFUSE, rows.LANGSMITH, rows.PHOENIX])
@pytest.mark.parametrize(
    "form", ["%s", "[\n%s\n]", '{"data": [%s], "meta": {}}', '{"runs": [%s]}', '{"cut": [\n%s']
)
def test_forms_of_an_export(read: Any, reports: Any, row: Any, form: str) -> None:
    """A line, a list, an answer, runs, and behind a torn line."""
    [step] = steps(read(form % json.dumps(row)))
    assert (step.kind, loaded(step.args)) == (Kind.TOOL, rows.PARIS)
    assert len(reports) == ("cut" in form)


def test_ids_that_programs_made_up_join_spans(read: Any) -> None:
    """Langfuse takes any text as an id."""
    known = {**rows.LANGFUSE, "traceId": "ticket-9"}
    parent = {**known, "id": "my-agent", "type": "AGENT"}
    child = {**known, "id": "my-call", "parentObservationId": "my-agent"}
    above, below = read(f"{json.dumps(parent)}\n{json.dumps(child)}")
    assert below.parent_id == above.span_id != below.span_id
    assert above.trace_id == below.trace_id != 0


def test_nested_runs_and_the_run_above(read: Any) -> None:
    """The parent is in the field, or in `dotted_order`, of which some exports have only that."""
    order = f"20261126T030902783220Z{rows.UUID}.20261126T030902790455Z{rows.RUN}"
    child = {**rows.LANGSMITH, "dotted_order": order}
    root = {**rows.LANGSMITH, "id": rows.UUID, "run_type": "chain", "child_runs": [child]}
    above, below = read(root)
    assert (above.parent_id, below.parent_id) == (None, above.span_id)
    assert below.span_id == 0x8623_9268_B536_AE7E


def test_a_trace_of_phoenix_with_its_spans(read: Any, reports: Any) -> None:
    """As its command line writes it; spans of Jaeger have no context."""
    span = json.loads((SAMPLES / "phoenix-api.json").read_text())["data"][0]
    assert len(read({"traceId": rows.TRACE, "spans": [span]})) == 1
    assert reports == []


@pytest.mark.parametrize(
    "name", ["claude-code", "claude-code-agents", "claude-code-agents-stuck", "codex", "gemini-cli"]
)
def test_a_file_tells_what_the_wire_tells(name: str) -> None:
    path = LOGS / f"{name}.logs.jsonl"
    found, lines = whole(path), path.read_bytes().splitlines()
    sent = (decode(ExportLogsServiceRequest, line, "application/json") for line in lines)
    assert found == [view for request in sent for view in log_views(request)]
    assert any(step.kind is Kind.TOOL and step.args is not None for step in steps(found))


def test_the_session_of_a_log_record_may_be_that_of_its_resource(read: Any) -> None:
    record = {"event.name": "gemini_cli.tool_call", "function_name": "ls", "function_args": "{}"}
    first, again = read(log_records(record, record, session_id="s-1"))
    assert first.attributes["session.id"] == "s-1"
    assert first.trace_id == again.trace_id != 0


CASES = cases(Path(__file__).with_name("fields.txt"))
RUN = json.dumps({"id": "r", "steps": []})


def written(form: str, fields: str) -> str:
    if form == "document":
        return fields
    given = json.loads(fields)
    return json.dumps(attribute(given) if form == "value of OTLP" else BASES[form](given))


def fields_of(entry: Any, wanted: Any) -> Any:
    if isinstance(entry, Run):
        (entry,) = entry.steps
    found = {name: getattr(entry, name) for name in wanted if name != "step"}
    if "step" in wanted:
        step = Reader().read(entry)
        found["step"] = {name: loaded(getattr(step, name)) for name in wanted["step"]}
    return found


def plain(value: object) -> str:
    """As JSON, so that numbers and truth are told apart; NaN is equal to itself."""
    return json.dumps(value, default=bytes.hex)


@pytest.mark.parametrize(
    ("form", "fields", "wanted"),
    [
        pytest.param(name.partition(":")[0], *row.split(" -> "), id=f"{name}: {row}"[:90])
        for name, rows in CASES.items()
        for row in rows.strip().splitlines()
    ],
)
def test_an_entry(form: str, fields: str, wanted: str, read: Read, reports: Reports) -> None:
    content = written(form, fields)
    wanted, _, why = wanted.partition("! ")
    found = read(content)
    assert [said.startswith(why) for _, _, said in reports][:1] == [True] * bool(why)
    if form == "value of OTLP":
        assert plain(found[0].attributes["k"]) == plain(json.loads(wanted))
    elif wanted.startswith("{"):
        [entry] = found
        assert plain(fields_of(entry, json.loads(wanted))) == plain(json.loads(wanted))
    else:
        assert found == []


@pytest.mark.parametrize("place", range(3))
def test_what_is_broken_costs_nothing_else(place: int, read: Read, reports: Reports) -> None:
    for name, table in CASES.items():
        for row in table.strip().splitlines():
            fields, _, why = row.partition(" -> ! ")
            if why:
                lines = [RUN, RUN]
                lines.insert(place, written(name.partition(":")[0], fields))
                reports.clear()
                assert [run.id for run in read("\n".join(lines))] == ["r", "r"], row
                told = {(file.rpartition("/")[2], number) for file, number, _ in reports}
                assert told == {("recorded.jsonl", place + 1)}
