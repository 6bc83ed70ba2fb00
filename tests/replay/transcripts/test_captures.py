"""What Claude Code 2.1.330, Codex 0.169.0 and gemini-cli 0.61.0 kept of sessions is read.

They ran against model servers with a script: a file that is missing is looked for three times (by
gemini-cli twice), then two calls are made at once, and Claude Code asks a sub-agent. Without what
is of the machine, and without prompts of the system.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Kind
from otel_loopguard.settings import Settings
from tests.replay.transcripts import opencode
from tests.replay.transcripts.reading import CAPTURES, one

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay import Transcript

MISSING = "cat: missing.txt: No such file or directory"


def of(run: Transcript, kind: Kind) -> list[Step]:
    return [step for step in run.steps if step.kind is kind]


def test_claude_code_and_its_sub_agent_are_one_session() -> None:
    run = one(CAPTURES / "claude")
    assert (run.agent, run.version, run.cwd) == ("claude-code", "2.1.330", "/app")
    assert run.id == "996c115b-4f4b-4a0e-9161-c4e20b794525"
    calls = of(run, Kind.TOOL)
    names = [call.name for call in calls]
    assert names == ["Bash"] * 3 + ["Read", "Bash", "Bash", "Task", "Edit"]
    assert [call.error for call in calls] == [True] * 3 + [False] * 5
    assert calls[0].error_text == f"Exit code 1\n{MISSING}"
    assert calls[3].outcome == "1\thello there\n2\t"
    helper = "a5e4a1e0eab70c0b8"
    assert [call.agent for call in calls] == ["main"] * 5 + [helper] + ["main"] * 2
    assert run.endings == ("finished",)


def test_tokens_count_once_for_each_answer_of_claude_code() -> None:
    """Its own sum is 1150 + 450 + 45 in, 180 out: the two requests for titles are no answers."""
    answers = of(one(CAPTURES / "claude"), Kind.MODEL)
    assert [answer.tokens_in for answer in answers if answer.agent == "main"] == [
        155, 165, 175, 185, 205, 215, 225,
    ]  # fmt: skip
    assert {(step.tokens_out, step.cache_read, step.cache_write) for step in answers} == {
        (20, 50, 5)
    }
    assert [answer.text for answer in answers if answer.agent != "main"] == [
        "Looking.",
        "It is not here.",
    ]


def test_the_stream_of_claude_code_has_the_same_calls_as_its_transcript() -> None:
    kept, streamed = one(CAPTURES / "claude"), one(CAPTURES / "claude-code.stream.jsonl")
    assert streamed.id == kept.id
    assert streamed.endings == ("finished",)
    told = [
        [
            (call.name, call.args, call.outcome, call.error, call.agent)
            for call in of(run, Kind.TOOL)
        ]
        for run in (kept, streamed)
    ]
    assert told[0] == told[1]


def test_codex_says_in_its_answers_what_failed() -> None:
    run = one(CAPTURES / "codex")
    assert (run.agent, run.version, run.endings) == ("codex", "0.169.0", ("finished",))
    calls = of(run, Kind.TOOL)
    assert [call.error_text for call in calls[:3]] == [f"{MISSING}\n"] * 3
    assert (calls[3].args, calls[3].outcome) == ({"cmd": "ls"}, "note.txt\n")
    assert calls[4].error_text == "unsupported call: update_plan"
    answers = of(run, Kind.MODEL)
    assert [(answer.tokens, answer.cache_read) for answer in answers] == [
        (tokens, 40) for tokens in (120, 130, 140, 150, 170)
    ]
    assert {answer.model for answer in answers} == {"gpt-5"}


def test_gemini_writes_a_message_anew_and_it_counts_once() -> None:
    run = one(CAPTURES / "gemini")
    assert (run.agent, run.endings) == ("gemini", ("finished",))
    calls = of(run, Kind.TOOL)
    assert [call.name for call in calls] == [
        "run_shell_command", "run_shell_command", "read_file", "read_file", "list_directory",
    ]  # fmt: skip
    assert [call.error for call in calls] == [True, True, True, False, False]
    assert calls[2].error_text == "File not found: /app/nope.txt"
    assert calls[3].outcome == "bye there\n"
    answers = of(run, Kind.MODEL)
    assert [answer.tokens for answer in answers] == [124, 134, 144, 154, 174]
    assert len(of(run, Kind.OTHER)) == 1


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "opencode"])
def test_looking_for_a_missing_file_again_brings_a_hint(agent: str, tmp_path: Path) -> None:
    place = CAPTURES / agent
    if agent == "opencode":
        place = opencode.whole(tmp_path / "opencode.db")
    first = result_of(one(place), Settings()).decisions[0]
    assert (first.action.value, first.reason) == ("hint", "equal_error")
