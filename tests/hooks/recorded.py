"""Recorded runs of Claude Code as the events that its hooks would have had."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_loopguard.hooks.agents import AGENTS, EventKind, Reply
from otel_loopguard.hooks.hook_guard import HookGuard
from otel_loopguard.hooks.state import HookState
from otel_loopguard.settings import Settings

STOPS = (Reply.ASK, Reply.DENY, Reply.STOP)

Event = tuple[int, dict[str, Any]]
"""When it was, nanoseconds since the epoch, and what stands on standard input."""


@dataclass
class Outcome:
    """The outcome of one run: hints, and why calls were refused, asked about or the turn ended."""

    id: str
    solved: bool | None
    hints: list[str] = field(default_factory=list[str])
    stops: list[str] = field(default_factory=list[str])


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


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
    outcome = Outcome(line["id"], line["label"]["success"])
    agent, refused = AGENTS["claude-code"], set[str]()
    for at, payload in events(line):
        call = payload.get("tool_use_id", "")
        event = None if call in refused else agent.read(payload)
        if event is None:
            continue
        answer = engine.handle(event, at)
        if answer.reply is Reply.HINT:
            outcome.hints.append(answer.hint)
        elif answer.reply in STOPS:
            outcome.stops.append(answer.reason)
            if event.kind is EventKind.CALL and answer.reply is not Reply.ASK:
                refused.add(call)
    return outcome


def outcomes(files: Iterable[Path], folder: Path) -> list[Outcome]:
    engine = HookGuard(Settings(), HookState(folder))
    try:
        return [judged(engine, line) for path in files for line in lines(path)]
    finally:
        engine.close()


def _event(name: str, session: str, **more: Any) -> dict[str, Any]:
    return {
        "hook_event_name": name, "session_id": session, "cwd": "/app", "permission_mode": "default",
        "transcript_path": f"/root/.claude/projects/app/{session}.jsonl", **more,
    }  # fmt: skip


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
