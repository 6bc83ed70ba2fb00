"""Exports of Langfuse, LangSmith and Phoenix; `samples/README.md` says where they come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Recording
from otel_loopguard.spans.reader import Reader

SAMPLES = Path(__file__).parent / "samples"
SESSIONS = {
    "langfuse-trace.json": "chat-7",
    "langfuse-observations.jsonl": "chat-7",
    "langsmith-runs.jsonl": "sess-42",
    "phoenix-dataframe.jsonl": "sess-42",
    "phoenix-api.json": "sess-42",
}
PARIS = {"query": "weather in Paris"}
TRACE = "d776782dbc0e3ea5a3d507ddcf44a936"
RUN = "01a215d3-f7c6-717b-8623-9268b536ae7e"
UUID = "01a215d3-f7bf-74ef-a692-1097da473ed9"

OBSERVATION = {
    "id": "c89334a9e35316af", "traceId": TRACE, "type": "TOOL", "name": "search",
    "startTime": "2026-11-21T20:26:12.542Z", "endTime": "2026-11-21T20:26:12.543Z",
    "level": "DEFAULT", "input": PARIS, "output": "none",
}  # fmt: skip
LANGSMITH = {
    "id": RUN, "trace_id": UUID, "run_type": "tool", "name": "search",
    "start_time": "2026-11-21T20:26:12.542000", "end_time": "2026-11-21T20:26:12.543000",
    "inputs": PARIS, "outputs": {"output": "none"},
}  # fmt: skip
PHOENIX = {
    "name": "search", "span_kind": "TOOL", "parent_id": None, "status_code": "OK",
    "start_time": 1795292772542, "end_time": 1795292772543,
    "context.trace_id": TRACE, "context.span_id": "c89334a9e35316af",
    "attributes.tool.name": "search", "attributes.input.value": json.dumps(PARIS),
    "attributes.output.value": "none",
}  # fmt: skip
ROWS = {"langfuse": OBSERVATION, "langsmith": LANGSMITH, "phoenix": PHOENIX}


def steps(spans: list[Any]) -> list[Step]:
    """The steps of spans in the order in which they started."""
    read = Reader().read
    found = [read(span) for span in sorted(spans, key=lambda span: (span.start, -(span.end or 0)))]
    return [step for step in found if step is not None]


def loaded(value: object) -> object:
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


@pytest.mark.parametrize(("name", "session"), SESSIONS.items())
def test_an_export_tells_what_the_agent_did(name: str, session: str) -> None:
    """Calls with arguments, outcomes and errors, the answer of the model, session and agent."""
    broken: list[Any] = []
    found = steps(list(Recording(str(SAMPLES / name), lambda *each: broken.append(each))))
    assert broken == []
    assert [step.kind for step in found] == [Kind.AGENT, *[Kind.TOOL] * 4, Kind.MODEL]
    agent, *calls, answer = found
    assert [call.name for call in calls] == ["search"] * 3 + ["broken"]
    plain = "weather in Paris" if name.startswith("phoenix") else PARIS  # as OpenInference has it
    assert [loaded(call.args) for call in calls] == [plain] * 3 + [{"x": 1}]
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


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(json.dumps, id="a line"),
        pytest.param(lambda row: json.dumps([row], indent=2), id="a list"),
        pytest.param(lambda row: json.dumps({"data": [row], "meta": {}}), id="an answer"),
        pytest.param(lambda row: json.dumps({"runs": [row], "cursors": {}}), id="runs"),
        pytest.param(lambda row: f'{{"cut": [\n{json.dumps(row)}', id="after a torn line"),
    ],
)
def test_forms_of_the_file(read: Any, reports: Any, kind: str, wrap: Any) -> None:
    content = wrap(ROWS[kind])
    found = steps(read(content))
    assert [step.kind for step in found] == [Kind.TOOL]
    assert loaded(found[0].args) == PARIS
    assert len(reports) == ("cut" in content)


@pytest.mark.parametrize(
    ("kind", "unsaid"),
    [
        pytest.param("langfuse", {"input": None, "output": None}, id="langfuse null"),
        pytest.param("langfuse", {"input": "", "output": ""}, id="langfuse empty text"),
        pytest.param("langsmith", {"inputs": {}, "outputs": {}}, id="langsmith hidden"),
        pytest.param("langsmith", {"inputs": None, "outputs": None}, id="langsmith null"),
        pytest.param(
            "phoenix", {"attributes.input.value": None, "attributes.output.value": None}, id="null"
        ),
    ],
)
def test_what_a_row_does_not_say_is_unknown(read: Any, kind: str, unsaid: Any) -> None:
    """Neither empty arguments nor an empty outcome, which would be equal to another call's."""
    [step] = steps(read({**ROWS[kind], **unsaid}))
    assert (step.kind, step.args, step.outcome) == (Kind.TOOL, None, None)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("langfuse", {"traceId": 5}),
        ("langfuse", {"id": None}),
        ("langsmith", {"id": "7"}),
        ("phoenix", {"context.trace_id": "zz"}),
    ],
)
def test_a_row_without_ids_is_reported(read: Any, reports: Any, kind: str, change: Any) -> None:
    good = json.dumps(ROWS[kind])
    bad = json.dumps({**ROWS[kind], **change})
    assert len(read("\n".join([good, bad, good[:-20]]))) == 1
    assert [(number, why.partition(" at ")[0]) for _, number, why in reports] == [
        (2, "a span has no valid trace id and span id"),
        (3, "no valid JSON"),
    ]


BEGUN = 1_795_292_772_542_000_000


@pytest.mark.parametrize(
    ("row", "end"),
    [
        ({**OBSERVATION, "endTime": None}, None),
        ({**LANGSMITH, "end_time": None}, None),
        ({**PHOENIX, "end_time": None}, None),
        ({**OBSERVATION, "type": "EVENT", "endTime": None}, BEGUN),
    ],
    ids=["langfuse", "langsmith", "phoenix", "event of langfuse"],
)
def test_a_call_under_way_has_no_end_and_an_event_ends_at_once(
    read: Any, row: Any, end: int | None
) -> None:
    [span] = read(row)
    assert (span.start, span.end) == (BEGUN, end)


def test_ids_that_programs_made_up_join_spans(read: Any) -> None:
    """Langfuse takes any text as an id."""
    parent = {**OBSERVATION, "id": "my-agent", "traceId": "ticket-9", "type": "AGENT"}
    child = {
        **OBSERVATION,
        "id": "my-call",
        "traceId": "ticket-9",
        "parentObservationId": "my-agent",
    }
    above, below = read(f"{json.dumps(parent)}\n{json.dumps(child)}")
    assert below.parent_id == above.span_id != below.span_id
    assert above.trace_id == below.trace_id != 0


def test_a_failed_observation_without_its_trace(read: Any) -> None:
    row = {**OBSERVATION, "level": "ERROR", "statusMessage": "no route", "output": None,
           "metadata": '{"thread_id": "t-1"}'}  # fmt: skip
    [step] = steps(read(row))
    assert (step.error, step.error_text, step.session) == (True, "no route", "t-1")


def test_a_trace_of_langfuse_that_names_its_observations_only(read: Any, reports: Any) -> None:
    """As the list of traces has it: what they did is not in there."""
    assert read({"id": TRACE, "sessionId": "s", "observations": ["a"]}) == []
    assert reports[0][2] == "an entry of `observations` is text, expected an object"


def test_nested_runs_and_the_run_above(read: Any) -> None:
    """The parent is in the field, or in `dotted_order`, of which some exports have only that."""
    order = f"20261126T030902783220Z{UUID}.20261126T030902790455Z{RUN}"
    child = {**LANGSMITH, "dotted_order": order}
    root = {**LANGSMITH, "id": UUID, "run_type": "chain", "child_runs": [child]}
    above, below = read(root)
    assert (above.parent_id, below.parent_id) == (None, above.span_id)
    assert below.span_id == 0x8623_9268_B536_AE7E


def test_the_session_of_a_run_is_not_its_project(read: Any) -> None:
    """LangSmith calls a project a session; bulk exports have inner objects as text."""
    row = {**LANGSMITH, "session_id": UUID, "extra": '{"metadata": {"thread_id": "t-1"}}',
           "inputs": json.dumps(PARIS), "outputs": '{"output": "none"}'}  # fmt: skip
    [step] = steps(read(row))
    assert (step.session, loaded(step.args), step.outcome) == ("t-1", PARIS, "none")


def test_nested_attributes_of_phoenix_get_their_names_back(read: Any) -> None:
    row = {
        **{key: value for key, value in PHOENIX.items() if not key.startswith("attributes.")},
        "span_kind": "UNKNOWN",
        "attributes.gen_ai": {
            "operation": {"name": "execute_tool"},
            "tool.name": "search",
            "tool": {"call": {"arguments": json.dumps(PARIS), "result": "none"}},
            "conversation": {"id": "s-1"},
        },
        "attributes.llm.output_messages": [{"message.role": "assistant", "tools": ["a", "b"]}],
    }
    [span] = read(row)
    assert span.attributes["llm.output_messages.0.message.role"] == "assistant"
    assert span.attributes["llm.output_messages.0.tools"] == ["a", "b"]
    [step] = steps([span])
    assert (step.kind, step.name, step.session) == (Kind.TOOL, "search", "s-1")
    assert (loaded(step.args), step.outcome) == (PARIS, "none")


def test_a_trace_of_phoenix_with_its_spans(read: Any, reports: Any) -> None:
    """As its command line writes it; spans of Jaeger have no context."""
    span = json.loads((SAMPLES / "phoenix-api.json").read_text())["data"][0]
    assert len(read({"traceId": TRACE, "spans": [span]})) == 1
    assert reports == []
