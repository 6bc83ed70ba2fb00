"""Recorded runs of Claude Code as the events that its hooks would have had."""

import gzip
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from otel_loopguard import Settings
from otel_loopguard.hooks.agents import AGENTS, EventKind, Reply
from otel_loopguard.hooks.hook_guard import HookGuard
from otel_loopguard.hooks.state import HookState

Event = tuple[int, dict[str, Any]]
"""When it was, nanoseconds since the epoch, and what stands on standard input."""


class Outcome(NamedTuple):
    """The outcome of one run: how many hints and stops (asked, refused, or the turn ended)."""

    id: str
    solved: bool | None
    hints: int
    stops: int


def events(line: dict[str, Any]) -> list[Event]:
    """The events of a run, in order of time."""
    session = line["id"]
    steps = [step for step in line["steps"] if step["kind"] == "tool"]
    first = min((step["t_start"] for step in steps), default=0.0)
    found: list[Event] = [
        (_ns(first) - 2, _event("UserPromptSubmit", session, prompt=line["task"]))
    ]
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        more = {
            "tool_name": step["tool"], "tool_input": step["args"],
            "tool_use_id": f"toolu_{number}",
        }  # fmt: skip
        kind, _, agent = step["agent"].partition(":")
        if agent:
            more |= {"agent_id": agent, "agent_type": kind}
            last[agent] = max(last.get(agent, 0), _ns(step["t_end"]))
        # Parallel calls begin before the first of them ends.
        found.append((_ns(step["t_start"]), _event("PreToolUse", session, **more)))
        if step["error"]:
            after = _event("PostToolUseFailure", session, error=step["output"], **more)
        else:
            shell = {"stdout": step["output"], "stderr": "", "interrupted": False}
            response = shell if step["tool"] == "Bash" else step["output"]
            after = _event("PostToolUse", session, tool_response=response, **more)
        found.append((max(_ns(step["t_end"]), _ns(step["t_start"]) + 1), after))
    found += [(at + 1, _event("SubagentStop", session, agent_id=one)) for one, at in last.items()]
    end = max(at for at, _ in found) + 1
    found.append((end, _event("Stop", session, stop_hook_active=False)))
    return sorted(found, key=lambda event: event[0])


def judged(engine: HookGuard, line: dict[str, Any]) -> Outcome:
    """What an engine says of a run, whose agent does as recorded, except for what is refused."""
    agent, refused, replies = AGENTS["claude-code"], set[str](), list[Reply]()
    for at, payload in events(line):
        call = payload.get("tool_use_id", "")
        event = None if call in refused else agent.read(payload)
        if event is not None:
            replies.append(engine.handle(event, at).reply)
            if event.kind is EventKind.CALL and replies[-1] in (Reply.DENY, Reply.STOP):
                refused.add(call)
    stops = sum(map(replies.count, (Reply.ASK, Reply.DENY, Reply.STOP)))
    return Outcome(line["id"], line["label"]["success"], replies.count(Reply.HINT), stops)


def outcomes(files: Iterable[Path], folder: Path) -> list[Outcome]:
    with closing(HookState(folder)) as state, closing(HookGuard(Settings(), state)) as engine:
        return [
            judged(engine, json.loads(line))
            for path in files for line in gzip.open(path, "rt", encoding="utf-8")
        ]  # fmt: skip


def _event(name: str, session: str, **more: Any) -> dict[str, Any]:
    return {
        "hook_event_name": name, "session_id": session, "cwd": "/app", "permission_mode": "default",
        "transcript_path": f"/root/.claude/projects/app/{session}.jsonl", **more,
    }  # fmt: skip


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
