"""What agents in TypeScript and coding agents really export is read as what really ran.

Written by `tests/typescript/capture.mjs` (AI SDK 7.0.173, Mastra 1.71.0), and by Claude Code
2.1.330,
Codex 0.169.0 and gemini-cli 0.61.0 against model servers with a script; without what is of the
machine, and without prompts of the system.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_loopguard.core import Kind
from otel_loopguard.server.otlp import JSON, decode, log_views
from tests.dialects import captures

if TYPE_CHECKING:
    from otel_loopguard.core import Step

FOLDER = Path(__file__).parent / "node_captures"
AGENTS = ("ai-sdk-7", "ai-sdk-7-stream", "ai-sdk-7-legacy", "mastra", "mastra-stream")
PARIS, FAILING = {"query": "weather in Paris"}, {"x": 1}
MISSING = "cat: missing.txt: No such file or directory\n"


@pytest.fixture
def run(name: str, monkeypatch: pytest.MonkeyPatch) -> captures.Run:
    monkeypatch.setattr(captures, "SPANS", FOLDER)
    return captures.recorded.__wrapped__(name)


def told(name: str) -> list[Step]:
    """The steps that the log records of a capture tell of, in their order."""
    reader = captures.Reader()
    read = [
        reader.read(view)
        for line in (FOLDER / f"{name}.logs.jsonl").read_bytes().splitlines()
        for view in log_views(decode(ExportLogsServiceRequest, line, JSON))
    ]
    return [step for step in read if step is not None]


@pytest.mark.parametrize("name", AGENTS)
def test_the_calls_of_an_agent_in_typescript_come_back(run: captures.Run) -> None:
    calls = run.of(Kind.TOOL)
    assert [call.name for call in calls] == ["search"] * 3 + ["broken"]
    assert [captures.loaded(call.args) for call in calls] == [PARIS] * 3 + [FAILING]
    assert [call.outcome for call in calls[:3]] == ["no results for weather in Paris"] * 3
    assert [call.call_id for call in calls] == ["call_1", "call_2", "call_3", "call_4"]
    assert [call.error for call in calls] == [False, False, False, True]
    assert calls[3].error_text == "broken backend for x=1"


@pytest.mark.parametrize("name", AGENTS)
def test_what_its_model_wrote_and_used_counts_once(run: captures.Run) -> None:
    answers = run.of(Kind.MODEL)
    assert [answer.text for answer in answers] == ["Let me look."] * 4 + ["I found nothing."]
    assert [answer.tokens for answer in answers] == [15, 25, 35, 45, 55]
    assert {answer.model for answer in answers} == {"scripted-model"}
    assert [agent.name for agent in run.of(Kind.AGENT)] == ["helper"]
    assert all(step.tokens is None for step in run.read if step.kind is not Kind.MODEL)


@pytest.mark.parametrize("name", ["ai-sdk-7", "mastra", "mastra-stream"])
def test_each_span_says_whose_it_is(run: captures.Run) -> None:
    """`enrichSpan` of the AI SDK and `threadId` in Mastra's metadata."""
    assert {step.session for step in run.read} == {"chat-1"}


@pytest.mark.parametrize(("name", "kind"), [("ai-sdk-7", "TypeError"), ("mastra", "Error")])
def test_an_error_has_the_most_exact_type_that_its_span_has(run: captures.Run, kind: str) -> None:
    assert run.of(Kind.TOOL)[3].error_type == kind


@pytest.mark.parametrize("name", ["claude-code"])
def test_spans_of_claude_code(run: captures.Run) -> None:
    calls = run.of(Kind.TOOL)
    assert [call.name for call in calls] == ["Bash"] * 4
    assert [call.args for call in calls[:3]] == [{"command": "cat missing.txt"}] * 3
    assert [call.outcome for call in calls] == [None, None, None, "found"]
    assert [answer.tokens for answer in run.of(Kind.MODEL)] == [15] * 5
    (turn,) = run.of(Kind.AGENT)
    assert (turn.name, turn.args) == ("claude-code", "find it")
    assert len({step.session for step in run.read}) == 1


def test_log_records_of_claude_code_say_what_failed() -> None:
    steps = told("claude-code")
    calls = [step for step in steps if step.kind is Kind.TOOL]
    assert [call.call_id for call in calls] == ["toolu_1", "toolu_2", "toolu_3", "toolu_4"]
    assert [call.error for call in calls] == [True, True, True, False]
    # What it says is the same for each command that fails.
    assert {(call.error_text, call.error_type) for call in calls[:3]} == {(None, "ShellError")}
    answers = [step for step in steps if step.kind is Kind.MODEL]
    assert [answer.cost for answer in answers] == pytest.approx([0.00014] * 5)


def test_log_records_of_codex() -> None:
    """Its outputs have an id and a time, and a command that fails is a success."""
    steps = told("codex")
    calls = [step for step in steps if step.kind is Kind.TOOL]
    assert [call.name for call in calls] == ["exec_command"] * 4
    assert [call.args for call in calls[:3]] == [{"cmd": "cat missing.txt"}] * 3
    assert [call.outcome for call in calls] == [MISSING] * 3 + ["found\n"]
    assert [call.error for call in calls] == [True, True, True, False]
    answers = [step for step in steps if step.kind is Kind.MODEL]
    assert [answer.tokens for answer in answers] == [15, 25, 35, 45, 55]
    assert len({step.session for step in steps}) == 1


@pytest.mark.parametrize("name", ["gemini-cli"])
def test_spans_of_gemini_cli(run: captures.Run) -> None:
    """Its requests have ids, its results the number of a process."""
    calls = run.of(Kind.TOOL)
    assert [call.name for call in calls] == ["run_shell_command"] * 4
    command = {"command": "cat missing.txt", "description": "Look"}
    assert [call.args for call in calls[:3]] == [command] * 3
    assert len({call.outcome for call in calls[:3]}) == 1
    assert "No such file or directory" in str(calls[0].outcome)
    assert [call.error for call in calls] == [True, True, True, False]
    answers = run.of(Kind.MODEL)
    assert [answer.text for answer in answers] == ["Let me look."] * 4 + ["I found nothing."]
    assert [answer.tokens for answer in answers] == [15, 25, 35, 45, 55]
    assert len({step.session for step in run.read}) == 1


def test_log_records_of_gemini_cli() -> None:
    steps = told("gemini-cli")
    answers = [step for step in steps if step.kind is Kind.MODEL]
    assert [answer.tokens for answer in answers] == [15, 25, 35, 45, 55]
    calls = [step for step in steps if step.kind is Kind.TOOL]
    assert [call.name for call in calls] == ["run_shell_command"] * 4
    assert calls[0].args == {"command": "cat missing.txt", "description": "Look"}
    assert [call.error for call in calls] == [True, True, True, False]


def test_captures_have_nothing_of_the_machine() -> None:
    for path in FOLDER.glob("*.jsonl"):
        text = path.read_text()
        assert json.loads(text.splitlines()[0])
        for word in ("/tmp", "/work", "user.id", "host.name", "installation.id"):
            assert word not in text, (path.name, word)
