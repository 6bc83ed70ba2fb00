"""Agents that tell of their calls by log records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.server import Server
from tests.server.serving import CLIENT, log_record, pair, post, serving, sessions
from tests.tables import rows

DIALECTS = Path(__file__).resolve().parents[1] / "dialects"
CAPTURES = DIALECTS / "node_captures"
JSON = {"content-type": "application/json"}
RECORDS: dict[str, dict[str, Any]] = {
    event: json.loads(has) for event, has in (row.values for row in rows(__file__, "records"))
}


def records(event: str, number: int, *, named: bool = True) -> bytes:
    """A request with one log record, numbered, as an event or as a text."""
    agent, _, kind = event.partition(".")
    (fields,) = (list(given.items()) for name, given in RECORDS.items() if name.startswith(agent))
    told = [] if named else [pair("event.name", kind)]
    for name, value in fields if event in RECORDS else fields[:1]:  # the session of a prompt
        written = value.format(number) if isinstance(value, str) and "{}" in value else value
        told.append(pair(name, number if name == "event.sequence" else written))
    return log_record(event if named else "", number, *told, body="" if named else event)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("event", sorted(RECORDS))
def test_a_loop_told_by_logs_is_found_and_a_record_sent_twice_counts_once(
    event: str, named: bool
) -> None:
    with serving() as server:
        for number in range(4):
            for _ in range(2):
                body = records(event, number, named=named)
                post(server, body=body, path="logs").raise_for_status()
        row = CLIENT.get(f"{server.url}/v1/sessions/run-1").json()["session"]
        assert row["steps"] == 4
        assert row["action"] in {"hint", "deny", "abort"}, json.dumps(row)


@pytest.mark.parametrize("event", sorted(RECORDS))
def test_a_prompt_ends_an_abort_unless_it_was_written_before(event: str) -> None:
    prompt = event.partition(".")[0] + ".user_prompt"
    with serving() as server:

        def send(event: str, number: int) -> str:
            post(server, body=records(event, number), path="logs").raise_for_status()
            return CLIENT.get(f"{server.url}/v1/sessions/run-1").json()["session"]["action"]

        said = [send(event, number) for number in range(1, 7)]
        assert said[-1] == "abort"
        assert send(prompt, 0) == "abort"
        assert send(prompt, 8) == "allow"


def told(server: Server, capture: Path, order: Sequence[str]) -> dict[str, Any]:
    """The session of a capture whose spans and records are sent in an order."""
    for kind in order:
        path = "traces" if kind == "otlp" else "logs"
        for line in capture.with_suffix(f".{kind}.jsonl").read_bytes().splitlines():
            post(server, body=line, path=path, **JSON).raise_for_status()
    (row,) = sessions(server)
    return CLIENT.get(f"{server.url}/v1/sessions/{row['session']}").json()["session"]


@pytest.mark.parametrize("order", [("otlp", "logs"), ("logs", "otlp", "logs")])
def test_messages_that_are_logged_below_the_span_of_a_model_tell_of_calls(
    order: Sequence[str],
) -> None:
    """By OpenTelemetry's agent for Java, of a loop around OpenAI's client that searches thrice."""
    with serving() as server:
        found = told(server, DIALECTS / "java_capture/openai-java", order)
    assert found["totals"]["tools"] == {"search": 3}
    assert (found["totals"]["model_calls"], found["tokens"]) == (4, 120)
    assert found["action"] == "hint"


@pytest.mark.parametrize("order", [("otlp", "logs"), ("logs", "otlp")])
@pytest.mark.parametrize("name", ["claude-code", "claude-code-agents", "gemini-cli"])
def test_what_an_agent_tells_by_spans_and_by_records_counts_once(
    name: str, order: tuple[str, str]
) -> None:
    """As Claude Code and gemini-cli export both, among records that are no steps.

    See `tests/dialects/captures.txt`.
    """
    with serving() as server:
        found = told(server, CAPTURES / name, order)
    calls, answers = (6, 8) if name == "claude-code-agents" else (4, 5)
    prompts, around = 1, 4 if name == "gemini-cli" else 1
    assert found["steps"] == calls + answers + prompts + around
    assert found["tokens"] == {"claude-code-agents": 250}.get(name, 175 if around == 4 else 75)
