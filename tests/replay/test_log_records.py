"""Log records of coding agents, as a Collector's file exporter writes them.

The captures are what Claude Code 2.1.330, Codex 0.169.0 and gemini-cli 0.61.0 exported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_loopguard.core import Kind, Step
from otel_loopguard.replay import Recording
from otel_loopguard.server.otlp import decode, log_views
from otel_loopguard.spans.reader import Reader

CAPTURES = Path(__file__).resolve().parents[1] / "dialects" / "node_captures"
NAMES = ["claude-code", "claude-code-agents", "claude-code-agents-stuck", "codex", "gemini-cli"]
TIME = 1_795_409_875_000_000_000


def pairs(attributes: dict[str, Any]) -> list[Any]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]


def request(
    *records: Any, resource: Any = (), scope: str = "codex_otel.log_only"
) -> dict[str, Any]:
    """An export request with these records: names of events with their attributes, or anything."""
    written = [
        {
            "timeUnixNano": str(TIME + place),
            "attributes": pairs({"event.name": each[0], **each[1]}),
        }
        if isinstance(each, tuple)
        else each
        for place, each in enumerate(records)
    ]
    group = {"scope": {"name": scope}, "logRecords": written}
    shared = {"attributes": pairs(dict(resource))}
    return {"resourceLogs": [{"resource": shared, "scopeLogs": [group]}]}


def steps(spans: list[Any]) -> list[Step]:
    read = Reader().read
    return [step for step in map(read, spans) if step is not None]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_tells_what_the_wire_tells(name: str) -> None:
    path = CAPTURES / f"{name}.logs.jsonl"
    broken: list[Any] = []
    found = list(Recording(str(path), lambda *each: broken.append(each)))
    sent = [
        view
        for line in path.read_bytes().splitlines()
        for view in log_views(decode(ExportLogsServiceRequest, line, "application/json"))
    ]
    assert found == sent
    assert broken == []
    assert any(step.kind is Kind.TOOL and step.args is not None for step in steps(found))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ("claude_code.tool_result", {"session.id": "s", "tool_name": "Bash", "success": "true"}),
        ("codex.tool_result", {"conversation.id": "s", "tool_name": "shell", "success": "true"}),
        ("gemini_cli.tool_call", {"session.id": "s", "function_name": "ls", "success": "true"}),
    ],
)
def test_contents_that_are_not_logged_are_unknown(read: Any, event: str, said: Any) -> None:
    """Neither no arguments nor an empty outcome, which would be equal to another call's."""
    [step] = steps(read(request((event, said))))
    assert (step.kind, step.args, step.outcome, step.error) == (Kind.TOOL, None, None, False)


def test_a_session_may_be_that_of_the_resource(read: Any) -> None:
    record = ("gemini_cli.tool_call", {"function_name": "ls", "function_args": '{"path": "."}'})
    first, again = read(request(record, record, resource={"session.id": "s-1"}))
    assert first.attributes["session.id"] == "s-1"
    assert first.trace_id == again.trace_id != 0


def test_snake_case_and_the_name_in_the_body(read: Any) -> None:
    record = {
        "time_unix_nano": TIME, "body": {"stringValue": "claude_code.tool_result"},
        "attributes": pairs({"event.name": "tool_result", "session.id": "s", "tool_name": "Bash"}),
    }  # fmt: skip
    [span] = read({"resource_logs": [{"scope_logs": [{"log_records": [record]}]}]})
    assert (span.name, span.end) == ("claude_code.tool_result", TIME)


def test_events_that_tell_of_no_call_are_passed_over(read: Any, reports: Any) -> None:
    found = read(request(("codex.tool_decision", {"conversation.id": "s", "call_id": "c"})))
    assert (found, reports) == ([], [])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        pytest.param(
            request(("http.request", {"session.id": "s"})),
            "none of the log records is of Claude Code, Codex or gemini-cli",
            id="of another program",
        ),
        pytest.param(
            request(("codex.tool_result", {"tool_name": "shell"})),
            "a log record has no session id and no trace id",
            id="without a session",
        ),
        pytest.param(
            request(3, ("codex.user_prompt", {"conversation.id": "s"})),
            "an entry of `logRecords` is a number, expected an object",
            id="no record",
        ),
        pytest.param(
            {"resourceLogs": {"scopeLogs": []}},
            "`resourceLogs` is an object, expected a list",
            id="no list",
        ),
    ],
)
def test_what_is_wrong_is_reported(read: Any, reports: Any, document: Any, why: str) -> None:
    good = json.dumps(request(("codex.tool_result", {"conversation.id": "s"})))
    found = read("\n".join([json.dumps(document), good, good[:-9]]))
    assert [span.name for span in found][-1] == "codex.tool_result"
    assert (1, why) in [(number, said) for _, number, said in reports]
    assert [number for _, number, _ in reports][-1] == 3
