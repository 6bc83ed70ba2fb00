"""One call of a coding agent is one step, whoever reports it."""

from __future__ import annotations

import json

import pytest

from otel_loopguard.core import Kind
from otel_loopguard.evidence.effects import command_of
from otel_loopguard.spans.coding_tools import gemini_result, prompt_step, tool_step

REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was "
    "a file edit, the new_string was NOT written to the file)."
)
EXIT = "Chunk ID: 566639\nWall time: 0.0000 seconds\nProcess exited with code {}\nOutput:\n{}"


@pytest.mark.parametrize("args", [{"command": "ls -l"}, '{"command": "ls -l"}'])
def test_arguments_are_a_map_however_they_are_written(args: object) -> None:
    assert tool_step("codex", "shell", args).args == {"command": "ls -l"}


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["bash", "-lc", "pytest -q | tail"], "pytest -q | tail"),
        (["git", "commit", "-m", "a b"], "git commit -m 'a b'"),
    ],
)
def test_a_command_that_is_a_list_is_the_line_it_stands_for(command: list[str], line: str) -> None:
    assert command_of(tool_step("codex", "shell", {"command": command}).args) == line


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (EXIT.format(1, "no such file\n"), True),
        (EXIT.format(0, "no such file\n"), False),
        (json.dumps({"output": "no such file\n", "metadata": {"exit_code": 1}}), True),
        (json.dumps({"output": "no such file\n", "metadata": {"exit_code": 0}}), False),
    ],
)
def test_codex_says_in_its_text_whether_a_command_failed(output: str, error: bool) -> None:
    step = tool_step("codex", "exec_command", {"cmd": "cat x"}, output)
    assert (step.outcome, step.error) == ("no such file\n", error)
    assert step.error_text == ("no such file\n" if error else None)


def test_codex_says_in_a_sentence_that_a_patch_does_not_fit() -> None:
    said = "apply_patch verification failed: Failed to find expected lines in a.py"
    step = tool_step("codex", "apply_patch", "*** Begin Patch", said)
    assert step.error
    assert step.error_text == said


def test_an_error_without_words_has_those_of_the_answer() -> None:
    step = tool_step("claude-code", "Bash", {"command": "make"}, "Exit code 2\nno rule", error="")
    assert step.error
    assert step.error_text == "Exit code 2\nno rule"
    assert step.outcome == "Exit code 2\nno rule"


@pytest.mark.parametrize(
    ("agent", "said", "error"),
    [
        ("claude-code", REFUSED, True),
        ("claude-code", "[Request interrupted by user for tool use]", True),
        ("claude-code", "<tool_use_error>Cancelled: parallel tool call</tool_use_error>", True),
        ("codex", "exec command rejected by user", None),
        ("codex", "aborted by user after 5.0s", None),
        ("codex", "Wall time: 3.2 seconds\naborted by user", None),
    ],
)
def test_what_a_person_refused_or_interrupted_is_no_failure_of_the_tool(
    agent: str, said: str, error: object
) -> None:
    step = tool_step(agent, "Bash", {"command": "rm -r x"}, said, error=error)
    assert not step.error
    assert step.outcome is None
    assert not tool_step(agent, "Bash", {}, "half", stopped=True).error


def test_a_file_that_quotes_an_interruption_was_read() -> None:
    said = "[Request interrupted by user]\nis what it writes"
    assert tool_step("claude-code", "Read", {}, said).outcome == said


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ({"stdout": "out\n", "stderr": "err", "interrupted": False}, "out\nerr"),
        ({"type": "text", "file": {"filePath": "a", "content": "x = 1"}}, "x = 1"),
        ({"filePath": "a", "originalFile": "long"}, {"filePath": "a"}),
        ({"llmContent": [{"text": "Process Group PGID: 12\nok"}], "returnDisplay": "ok"}, "ok"),
        ({"status": "queued"}, {"status": "queued"}),
    ],
)
def test_an_answer_is_what_the_model_is_shown(answer: object, shown: object) -> None:
    assert tool_step("claude-code", "Any", {}, answer).outcome == shown


def test_gemini_answers_in_the_parts_of_a_response() -> None:
    def part(**response: str) -> list[object]:
        return [{"functionResponse": {"id": "1", "name": "x", "response": response}}]

    assert gemini_result(part(output="found")) == ("found", None)
    assert gemini_result(part(error="no file"))[1] == "no file"
    assert gemini_result([]) == (None, None)


def test_calls_belong_to_their_sub_agent_and_a_prompt_to_nobody() -> None:
    assert tool_step("claude-code", "Read", {}).agent == "main"
    assert tool_step("claude-code", "Read", {}, sub_agent="a1").agent == "a1"
    prompt = prompt_step("gemini")
    assert (prompt.kind, prompt.name, prompt.dialect) == (Kind.OTHER, "user", "gemini_cli")
