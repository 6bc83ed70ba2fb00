"""Labelled runs written as the transcripts that each coding agent would have kept of them."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from itertools import count
from pathlib import Path
from typing import Any, Final

Line = dict[str, Any]
Labelled = Mapping[str, Any]

USAGE: Final = {"input_tokens": 10, "cache_read_input_tokens": 80, "output_tokens": 7}


def write(labelled: Labelled, form: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return FORMS[form](labelled, folder)


def _claude(labelled: Labelled, folder: Path) -> Path:
    key = _key(labelled)
    lines: dict[str, list[Line]] = {"main": [_person(key)]}
    for agent, line in _messages(labelled):
        line |= {"sessionId": key, "uuid": f"u{len(lines)}-{id(line)}", "version": "2.1.330"}
        line |= {"isSidechain": agent != "main", "cwd": "/app"}
        if agent != "main":
            line["agentId"] = agent
        lines.setdefault(agent, []).append(line)
    place = folder / f"{key}.jsonl"
    _write(place, lines.pop("main"))
    for number, sub in enumerate(lines.values()):
        _write(folder / key / "subagents" / f"agent-{number}.jsonl", sub)
    return place


def _messages(labelled: Labelled) -> Iterator[tuple[str, Line]]:
    """What Claude Code writes: a text, then each call with its result, and usage on every line."""
    numbers = count()
    asked: dict[str, tuple[str, str]] = {}
    for step in labelled["steps"]:
        agent = step["agent"]
        if step["kind"] == "llm":
            asked[agent] = f"msg_{next(numbers)}", step["tool"]
            said = [{"type": "text", "text": step["text"]}] if step["text"] else []
            thought = [{"type": "thinking", "thinking": "hm"}]
            yield agent, _assistant(asked[agent], step["t_end"], said or thought)
        elif step["kind"] == "tool":
            key = f"toolu_{next(numbers)}"
            if agent not in asked:
                asked[agent] = f"msg_{next(numbers)}", "m"
            use = {"type": "tool_use", "id": key, "name": step["tool"], "input": step["args"]}
            yield agent, _assistant(asked[agent], step["t_start"], [use])
            result = {"type": "tool_result", "tool_use_id": key, "content": step["output"]}
            if step["error"]:
                result["is_error"] = True
            message = {"role": "user", "content": [result]}
            yield agent, {"type": "user", "message": message, "timestamp": _iso(step["t_end"])}


def _assistant(asked: tuple[str, str], time: float, content: list[Line]) -> Line:
    message = {"role": "assistant", "id": asked[0], "model": asked[1], "content": content}
    message |= {"usage": USAGE, "stop_reason": None}
    return {"type": "assistant", "message": message, "timestamp": _iso(time)}


def _person(key: str) -> Line:
    message = {"role": "user", "content": "do it"}
    return {"type": "user", "message": message, "uuid": "u", "sessionId": key}


def _codex(labelled: Labelled, folder: Path) -> Path:
    key = _key(labelled)
    numbers = count()
    files: dict[str, list[Line]] = {}
    for step in labelled["steps"]:
        if step["agent"] not in files:
            files[step["agent"]] = _head(key, step)
        lines = files[step["agent"]]
        if step["kind"] == "llm":
            lines.append(_line(step["t_start"], "turn_context", {"model": step["tool"]}))
            lines.append(_line(step["t_end"], "response_item", _said(step)))
            info = {"last_token_usage": {"input_tokens": 90, "output_tokens": 7}}
            lines.append(_line(step["t_end"], "event_msg", {"type": "token_count", "info": info}))
        elif step["kind"] == "tool":
            call_id = f"call_{next(numbers)}"
            args = json.dumps(step["args"])
            call = {"type": "function_call", "name": step["tool"], "arguments": args}
            # As in a rollout: all calls of an answer stand before its tokens and the results.
            kinds = [line["payload"].get("type") for line in lines]
            ends = max((at for at, kind in enumerate(kinds) if kind == "token_count"), default=None)
            asked = _line(step["t_start"], "response_item", call | {"call_id": call_id})
            lines.insert(len(lines) if ends is None else ends, asked)
            said = f"Chunk ID: 1a\nProcess exited with code {int(step['error'])}\nOutput:\n"
            output = {"type": "function_call_output", "output": said + step["output"]}
            lines.append(_line(step["t_end"], "response_item", output | {"call_id": call_id}))
    folder /= "2026/11/23"
    for number, lines in enumerate(files.values()):
        _write(folder / f"rollout-{number}.jsonl", lines)
    return folder


def _head(key: str, step: Mapping[str, Any]) -> list[Line]:
    main = step["agent"] == "main"
    own = key if main else step["agent"]
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": key, "depth": 1}}}
    meta = {"id": own, "session_id": key, "source": "exec" if main else spawn, "cwd": "/app"}
    said = {"session_meta": meta, "event_msg": {"type": "user_message", "message": "do it"}}
    return [_line(step["t_start"], kind, payload) for kind, payload in said.items()]


def _said(step: Mapping[str, Any]) -> Line:
    if not step["text"]:
        return {"type": "reasoning", "summary": []}
    content = [{"type": "output_text", "text": step["text"]}]
    return {"type": "message", "role": "assistant", "content": content}


def _line(time: float, kind: str, payload: Line) -> Line:
    return {"timestamp": _iso(time), "type": kind, "payload": payload}


def _gemini(labelled: Labelled, folder: Path) -> Path:
    key = _key(labelled)
    files: dict[str, list[Line]] = {}
    for number, step in enumerate(labelled["steps"]):
        own = key if step["agent"] == "main" else f"sub-{step['agent'].replace(':', '-')}"
        if own not in files:
            kind = "main" if own == key else "subagent"
            files[own] = [{"sessionId": own, "projectHash": "x", "kind": kind}]
            files[own].append({"id": "u", "type": "user", "content": [{"text": "do it"}]})
        lines = files[own]
        if step["kind"] == "llm":
            message = {"id": f"m{number}", "timestamp": _iso(step["t_end"]), "type": "gemini"}
            message |= {"content": step["text"] or "", "model": step["tool"]}
            tokens = {"input": 90, "output": 5, "thoughts": 2, "cached": 80}
            lines.append(message | {"tokens": tokens})
        elif step["kind"] == "tool":
            before = lines[-1]
            if before["type"] != "gemini":
                before = {"id": f"m{number}", "type": "gemini", "content": ""}
                before["timestamp"] = _iso(step["t_start"])
            calls = [*before.get("toolCalls", ()), _gemini_call(step, f"c{number}")]
            lines.append(before | {"toolCalls": calls})
            lines.append({"$set": {"lastUpdated": _iso(step["t_end"])}})
            lines.append(lines[-2])  # written anew as it is
    for own, lines in files.items():
        place = folder / "chats" / (f"session-{own}.jsonl" if own == key else f"{key}/{own}.jsonl")
        _write(place, lines)
    return folder


def _gemini_call(step: Mapping[str, Any], key: str) -> Line:
    call = {"id": key, "name": step["tool"]}
    response = {"error" if step["error"] else "output": step["output"]}
    status = {"args": step["args"], "status": "error" if step["error"] else "success"}
    result = [{"functionResponse": call | {"response": response}}]
    return call | status | {"timestamp": _iso(step["t_end"]), "result": result}


def _atif(labelled: Labelled, folder: Path) -> Path:
    key = _key(labelled)
    steps: dict[str, list[Line]] = {}
    for number, step in enumerate(labelled["steps"]):
        if step["agent"] not in steps:
            steps[step["agent"]] = [{"step_id": 1, "source": "user", "message": "do it"}]
        own = steps[step["agent"]]
        if step["kind"] == "llm":
            found: Line = {"source": "agent", "message": step["text"] or ""}
            found |= {"timestamp": _iso(step["t_end"]), "model_name": step["tool"]}
            found["metrics"] = {"prompt_tokens": 90, "completion_tokens": 7, "cached_tokens": 80}
            own.append(found | {"step_id": len(own) + 1})
        elif step["kind"] == "tool":
            call_id = f"c{number}"
            call = {"tool_call_id": call_id, "function_name": step["tool"]}
            own[-1].setdefault("tool_calls", []).append(call | {"arguments": step["args"]})
            result = {"source_call_id": call_id, "content": step["output"]}
            result["extra"] = {"is_error": step["error"]}
            if step["tool"] == "Task":
                result["subagent_trajectory_ref"] = [{"trajectory_id": one} for one in steps]
            own[-1].setdefault("observation", {"results": []})["results"].append(result)
    agent = {"name": "claude-code", "version": "2.1.89", "model_name": "m"}
    head = {"schema_version": "ATIF-v1.7", "session_id": key, "agent": agent}
    whole = head | {"steps": steps.pop("main")}
    whole["subagent_trajectories"] = [
        head | {"trajectory_id": own, "steps": found} for own, found in steps.items()
    ]
    place = folder / "trajectory.json"
    place.write_text(json.dumps(whole, indent=2))
    return place


def _write(place: Path, lines: list[Line]) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return place


def _key(labelled: Labelled) -> str:
    return str(labelled["id"]).replace("/", "-")


def _iso(seconds: float | None) -> str:
    moment = datetime.fromtimestamp(seconds or 0, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


FORMS: Final[Mapping[str, Callable[[Labelled, Path], Path]]] = {
    "claude-code": _claude, "codex": _codex, "gemini": _gemini, "atif": _atif,
}  # fmt: skip
