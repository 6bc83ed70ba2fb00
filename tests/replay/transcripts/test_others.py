"""Codex, gemini-cli and ATIF: what of them no capture shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from otel_loopguard.core import Kind
from tests.replay.transcripts.reading import lines, one, read

Line = dict[str, Any]
TIME = "2026-11-23T06:50:0{}.000Z"


def item(second: int, kind: str, **payload: object) -> Line:
    return {"timestamp": TIME.format(second), "type": kind, "payload": payload}


def meta(own: str, above: str | None = None) -> Line:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": above, "depth": 1}}}
    return item(0, "session_meta", id=own, source=spawn if above else "cli", cwd="/app")


def called(second: int, key: str, command: str = "ls") -> Line:
    args = json.dumps({"cmd": command})
    call = {"type": "function_call", "name": "exec_command", "arguments": args, "call_id": key}
    return item(second, "response_item", **call)


def answered(second: int, key: str, output: object = "ok") -> Line:
    return item(second, "response_item", type="function_call_output", call_id=key, output=output)


def calls(run: Any) -> list[tuple[str | None, str | None]]:
    return [(step.agent, step.call_id) for step in run.steps if step.kind is Kind.TOOL]


def test_a_sub_agent_of_a_sub_agent_of_codex_is_part_of_the_session(tmp_path: Path) -> None:
    prompt = item(1, "event_msg", type="user_message", message="go")
    lines(tmp_path / "rollout-a.jsonl", [meta("a"), prompt, called(2, "1"), answered(8, "1")])
    lines(tmp_path / "rollout-b.jsonl", [meta("b", "a"), prompt, called(3, "2"), answered(6, "2")])
    lines(tmp_path / "rollout-c.jsonl", [meta("c", "b"), called(4, "3"), answered(5, "3")])
    run = one(tmp_path)
    assert run.id == "a"
    assert calls(run) == [("c", "3"), ("b", "2"), ("main", "1")]
    assert sum(step.kind is Kind.OTHER for step in run.steps) == 1


def test_sub_agents_that_name_each_other_are_read_all_the_same(tmp_path: Path) -> None:
    for own, above in (("a", "b"), ("b", "a")):
        written = [meta(own, above), called(2, own), answered(3, own)]
        lines(tmp_path / f"rollout-{own}.jsonl", written)
    assert sorted(call for run in read(tmp_path) for call in calls(run)) == [("a", "a"), ("b", "b")]


def test_a_rollout_of_the_oldest_kind_has_the_payload_alone(tmp_path: Path) -> None:
    text = {"type": "input_text", "text": "<environment_context>\n</environment_context>"}
    output = json.dumps({"output": "no such file\n", "metadata": {"exit_code": 1}})
    written = [
        {"id": "old", "timestamp": TIME.format(0), "instructions": None},
        {"type": "message", "role": "user", "content": [text]},
        {"type": "message", "role": "user", "content": [text | {"text": "find it"}]},
        {"type": "reasoning", "summary": []},
        {
            "type": "function_call", "name": "shell", "call_id": "1",
            "arguments": '{"command": ["bash", "-lc", "cat x"]}',
        },
        {"record_type": "state"},
        {"type": "function_call_output", "call_id": "1", "output": output},
    ]  # fmt: skip
    run = one(lines(tmp_path / "rollout-old.jsonl", written))
    assert run.id == "old"
    assert [step.kind for step in run.steps] == [Kind.OTHER, Kind.MODEL, Kind.TOOL]
    assert run.steps[2].args == {"command": "cat x"}
    assert run.steps[2].error_text == "no such file\n"


def test_a_turn_that_a_person_broke_off_did_not_finish(tmp_path: Path) -> None:
    written = [
        meta("a"),
        item(1, "event_msg", type="user_message", message="go"),
        called(2, "1", "sleep 100"),
        answered(3, "1", "aborted by user after 1.0s"),
        item(3, "event_msg", type="turn_aborted", reason="interrupted"),
    ]
    run = one(lines(tmp_path / "rollout.jsonl", written))
    assert run.endings == ("interrupted",)
    assert (run.steps[-1].error, run.steps[-1].outcome) == (False, None)


def test_tokens_that_codex_tells_again_count_once(tmp_path: Path) -> None:
    count = item(2, "event_msg", type="token_count")
    count["payload"]["info"] = {"last_token_usage": {"input_tokens": 10, "output_tokens": 5}}
    written = [meta("a"), called(2, "1"), count, answered(3, "1"), count, called(4, "2"), count]
    run = one(lines(tmp_path / "rollout.jsonl", written))
    assert [step.tokens for step in run.steps if step.kind is Kind.MODEL] == [15, 15]


def test_a_session_of_gemini_that_is_one_document(tmp_path: Path) -> None:
    call = {"id": "c", "name": "read_file", "args": {"file_path": "a"}, "timestamp": TIME.format(3)}
    response = {"functionResponse": {"response": {"output": "x = 1"}}}
    messages = [
        {"id": "1", "timestamp": TIME.format(1), "type": "user", "content": "look"},
        {
            "id": "2", "timestamp": TIME.format(2), "type": "gemini", "content": "Let me see.",
            "toolCalls": [
                call | {"status": "success", "result": [response]},
                call | {"id": "d", "status": "cancelled", "result": []},
                call | {"id": "e", "status": "executing"},
            ],
        },
        {"id": "3", "timestamp": TIME.format(4), "type": "info", "content": "Request cancelled."},
    ]  # fmt: skip
    whole = {"sessionId": "s", "projectHash": "p", "messages": messages}
    place = tmp_path / "session-old.json"
    place.write_text(json.dumps(whole, indent=2))
    run = one(place)
    assert run.id == "s"
    assert [(step.outcome, step.error) for step in run.steps[2:]] == [
        ("x = 1", False),
        (None, False),
    ]


def test_a_sub_agent_of_gemini_lies_in_a_folder_of_the_session(tmp_path: Path) -> None:
    def session(key: str, kind: str) -> list[Line]:
        call = {"id": f"c-{key}", "name": "ls", "args": {}, "status": "success", "result": []}
        head = {"sessionId": key, "projectHash": "p", "kind": kind}
        asked = {"id": "u", "type": "user", "content": "go"}
        return [head, asked, {"id": "m", "type": "gemini", "content": "", "toolCalls": [call]}]

    (tmp_path / "chats/top").mkdir(parents=True)
    lines(tmp_path / "chats/session-1-top.jsonl", session("top", "main"))
    lines(tmp_path / "chats/top/sub.jsonl", session("sub", "subagent"))
    run = one(tmp_path)
    assert (run.id, sorted(calls(run))) == ("top", [("main", "c-top"), ("sub", "c-sub")])


def test_atif_of_an_agent_at_a_terminal_has_one_screen_for_all_calls(tmp_path: Path) -> None:
    keys = [
        {
            "tool_call_id": f"c{number}",
            "function_name": "bash_command",
            "arguments": {"keystrokes": key},
        }
        for number, key in enumerate(("ls\n", "cat x\n"))
    ]
    steps = [
        {"step_id": 1, "source": "system", "message": "You are an agent."},
        {"step_id": 2, "source": "user", "message": "go"},
        {
            "step_id": 3, "source": "agent", "message": "I look.", "tool_calls": keys,
            "observation": {"results": [{"content": "a.txt\ncat: x: No such file"}]},
            "metrics": {"prompt_tokens": 7, "completion_tokens": 3},
        },
        {"step_id": 4, "source": "agent", "message": "Done."},
    ]  # fmt: skip
    whole = {
        "schema_version": "ATIF-v1.8", "session_id": "t",
        "agent": {"name": "terminus-2", "version": "2.0", "model_name": "m"}, "steps": steps,
    }  # fmt: skip
    run = one(lines(tmp_path / "trajectory.json", [whole]))
    assert (run.agent, run.id, run.endings) == ("terminus-2", "t", ("finished",))
    assert [step.kind for step in run.steps] == [Kind.OTHER, Kind.MODEL, Kind.TOOL, Kind.MODEL]
    assert run.steps[2].outcome == "a.txt\ncat: x: No such file"
    assert (run.steps[1].model, run.steps[1].tokens) == ("m", 10)
