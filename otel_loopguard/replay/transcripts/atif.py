"""ATIF, the Agent Trajectory Interchange Format of Harbor and Terminal-Bench: one document each.

After rfcs/0001-trajectory-format.md of harbor-framework/harbor, versions 1.0 to 1.8. Whether a call
failed stands in `extra`, where Harbor's converters put what the agent itself said
(`tool_result_is_error`); a text decides where nothing does.
"""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard._util.fields import JsonObject, instant, mapping, rows, sequence, text
from otel_loopguard.replay.transcripts.session import Reader, Session, Transcript, tokens

_VERSION: Final = "ATIF-"
_AGENTS: Final = {"gemini-cli": "gemini"}
# Sub-agents within sub-agents: none that was seen starts any, a hostile file may nest them.
_DEPTH: Final = 4
_FAILED: Final = re.compile(
    r"\A(?:Exit code [1-9-]|<tool_use_error>)|\[error\] tool reported failure\s*\Z"
)


class Atif(Reader):
    """Reads trajectories, each a line or a document of its own."""

    agent = "atif"

    def _begin(self) -> None:
        super()._begin()
        self._last = self._calls = 0

    @staticmethod
    def begins(line: JsonObject) -> bool:
        """True if an object is a trajectory."""
        return text(line.get("schema_version")).startswith(_VERSION)

    def take(self, line: JsonObject) -> Transcript | None:
        """Adds a trajectory; returns the one before."""
        before = self._begin_anew()
        agent = self._map(line, "agent")
        name = text(agent.get("name"))
        session = self.session = Session(_AGENTS.get(name, name) or self.agent, self.report)
        session.id = text(line.get("session_id")) or text(line.get("trajectory_id"))
        session.version = text(agent.get("version"))
        session.cwd = text(mapping(agent.get("extra")).get("cwd"))
        session.model = text(agent.get("model_name")) or None
        self._steps(line, None, 0)
        return before

    def _steps(self, trajectory: JsonObject, agent: str | None, depth: int) -> None:
        """Puts the steps of a trajectory, and of those inside of it, into the session."""
        inner = {
            text(one.get("trajectory_id")) or text(one.get("session_id")): one
            for one in map(mapping, sequence(trajectory.get("subagent_trajectories")))
        }
        if trajectory.get("steps") is None:
            self.report("a trajectory has no `steps`")
        for step in rows(trajectory, ("steps",), self.report):
            time = instant(step.get("timestamp"))
            if step.get("source") == "user" and agent is None:
                self.session.prompt(time)
            elif step.get("source") == "agent":
                keys = self._answered(step, time, agent)
                for reference in self._references(step) if depth < _DEPTH else ():
                    if reference in inner:
                        self._steps(inner.pop(reference), reference or None, depth + 1)
                self._observed(step, keys, time)
            self._last = max(self._last, time)

    def _references(self, step: JsonObject) -> list[str]:
        results = sequence(mapping(step.get("observation")).get("results"))
        found = (
            reference
            for result in map(mapping, results)
            for reference in map(mapping, sequence(result.get("subagent_trajectory_ref")))
        )
        return [text(one.get("trajectory_id")) or text(one.get("session_id")) for one in found]

    def _answered(self, step: JsonObject, time: int, agent: str | None) -> list[str]:
        """Adds an answer of a model; returns the keys of the calls that it asks for."""
        session = self.session
        model = text(step.get("model_name")) or None
        answer = session.answer(model, self._last or time, time, agent)
        said = self._blocks(step.get("message"))
        session.say(answer, "\n".join(text(block.get("text")) for block in said))
        metrics = self._map(step, "metrics")
        if metrics:
            whole, out = tokens(metrics, "prompt_tokens"), tokens(metrics, "completion_tokens")
            session.used(answer, whole, out, tokens(metrics, "cached_tokens"))
        keys = self._called(step, time, agent)
        if agent is None:
            session.ending = "unknown" if keys else "finished"
        return keys

    def _called(self, step: JsonObject, time: int, agent: str | None) -> list[str]:
        keys: list[str] = []
        for call in rows(step, ("tool_calls",), self.report):
            self._calls += 1
            # An id needs to be unique only within its step.
            key = f"{text(call.get('tool_call_id')) or 'call'}#{self._calls}"
            keys.append(key)
            name, args = call.get("function_name"), call.get("arguments")
            self.session.call(key, name, args, time, agent)
        return keys

    def _observed(self, step: JsonObject, keys: list[str], time: int) -> None:
        results = sequence(self._map(step, "observation").get("results"))
        extra = mapping(step.get("extra"))
        for result in map(mapping, results):
            source = text(result.get("source_call_id"))
            # Terminal agents tell what stands on the screen after all calls of a step.
            key = next(
                (one for one in keys if source and one.rpartition("#")[0] == source),
                "" if source or not keys else keys[-1],
            )
            if not key or not self.session.is_open(key):
                continue
            content = result.get("content")
            failed = _first(mapping(result.get("extra")), result, extra)
            if failed is None:
                failed = isinstance(content, str) and _FAILED.search(content) is not None
            # Nobody says when it ended; calls of one step that end with it are made side by side.
            end = time and time + 1_000_000
            self.session.result(key, content, end, error="" if failed else None)


def _first(*maps: JsonObject) -> bool | None:
    """True if something says that a call failed."""
    for one in maps:
        for name in ("tool_result_is_error", "is_error"):
            found = one.get(name)
            if isinstance(found, bool):
                return found
    return None
