"""Claude Code: the JSON lines below `~/.claude/projects`, and `--output-format stream-json`.

Read off transcripts of 2.1.330 (and of 2.0.29 and 2.1.207 as others published them). One answer of
a model is spread over several lines with one `message.id`, and each repeats its `usage`.
Sub-agents have files of their own (`<session>/subagents/**/agent-<id>.jsonl`), or stand between the
lines of the session: with their `agentId`, or in old versions only as a side chain of `parentUuid`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import JsonObject, instant, kind_of, mapping, sequence, text
from otel_loopguard.replay.transcripts.session import Reader, Transcript, tokens
from otel_loopguard.spans import coding_tools

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_TALK: Final = frozenset(("user", "assistant"))
_BESIDE: Final = frozenset(
    (
        "system", "summary", "attachment", "progress", "result", "queue-operation", "last-prompt",
        "file-history-snapshot", "permission-mode", "ai-title", "custom-title", "agent-name",
        "agent-setting", "mode", "cost-state", "tools-used",
    )
)  # fmt: skip
"""Lines that tell nothing of a call, but may be the first of a file."""
_IDS: Final = ("sessionId", "session_id", "leafUuid", "messageId", "snapshot")
_AGENTS: Final = ("agentId", "agent_id", "parent_tool_use_id")
_INTERRUPTED: Final = "[Request interrupted by user"
_CACHE: Final = ("cache_read_input_tokens", "cache_creation_input_tokens")
# Answers whose further lines are waited for: they follow at once, beside those of sub-agents.
_ANSWERS: Final = 1_000
# Lines of side chains, which old versions wrote: a number of them is a day's work; 20 MB.
_SIDE_LINES: Final = 100_000


class ClaudeCode(Reader):
    """Reads one transcript, or one stream."""

    agent = "claude-code"

    def _begin(self) -> None:
        super()._begin()
        self._answers: BoundedDict[str, Step] = BoundedDict(_ANSWERS)
        # Time of the last line of each agent.
        self._last: BoundedDict[str | None, int] = BoundedDict(_ANSWERS)
        self._sides: dict[str, str] = {}  # side chains by the `uuid` of their lines

    @staticmethod
    def begins(line: JsonObject) -> bool:
        """True if a line says that it belongs to a session, in the words of Claude Code."""
        kind = text(line.get("type"))
        if kind in _TALK:
            message = mapping(line.get("message"))
            return message.get("role") == kind and ("content" in message or "uuid" in line)
        return kind in _BESIDE and any(name in line for name in _IDS)

    def take(self, line: JsonObject) -> Transcript | None:
        """Takes a line; one of another session starts a new one."""
        key = text(line.get("sessionId")) or text(line.get("session_id"))
        before = self._named(key) if key else None
        session = self.session
        session.cwd = session.cwd or text(line.get("cwd"))
        version = text(line.get("version")) or text(line.get("claude_code_version"))
        session.version = version or session.version
        kind = text(line.get("type"))
        if kind in _TALK:
            self._message(line, answers=kind == "assistant")
        elif kind == "result":
            # The last line of a stream says how the turn ended.
            success = line.get("subtype") == "success" and line.get("is_error") is not True
            session.ending = "finished" if success else "interrupted"
        elif kind == "system" and line.get("subtype") == "init":
            session.prompt(instant(line.get("timestamp")))
        elif not kind:
            self.report(f"`type` is {kind_of(line.get('type'))}, expected text")
        return before

    def _message(self, line: JsonObject, *, answers: bool) -> None:
        message = self._map(line, "message")
        time = instant(line.get("timestamp"))
        agent = self._agent(line)
        read = self._answer if answers else self._user
        read(line, message, time, agent)
        self._last[agent] = max(time, self._last.get(agent, 0))

    def _agent(self, line: JsonObject) -> str | None:
        """Id of the sub-agent that a line is of."""
        named = next((name for key in _AGENTS if (name := text(line.get(key)))), None)
        if named is not None or line.get("isSidechain") is not True:
            return named
        # A side chain is identified by its first line; each line names the one before it.
        above = self._sides.get(text(line.get("parentUuid")))
        side = above or f"side-{text(line.get('uuid'))[:8] or len(self._sides)}"
        if len(self._sides) < _SIDE_LINES:
            self._sides[text(line.get("uuid"))] = side
        return side

    def _answer(self, line: JsonObject, message: JsonObject, time: int, agent: str | None) -> None:
        found, model = self._blocks(message.get("content")), text(message.get("model"))
        if line.get("isApiErrorMessage") is True or model == "<synthetic>":
            return
        session, key = self.session, text(message.get("id"))
        step = self._answers.get(key) if key else None
        if step is None:
            step = session.answer(model or None, self._last.get(agent, 0) or time, time, agent)
            self._answers[key] = step
        step.end = max(step.end or 0, time)
        for block in found:
            if block.get("type") == "text":
                session.say(step, text(block.get("text")))
            elif block.get("type") == "tool_use":
                session.call(block.get("id"), block.get("name"), block.get("input"), time, agent)
        usage = self._map(message, "usage")
        # What `/branch` and forks copied was paid for in the session that it is of.
        if usage and not line.get("forkedFrom"):
            out = max(tokens(usage, "output_tokens"), step.tokens_out or 0)
            read, written = (tokens(usage, name) for name in _CACHE)
            session.used(step, tokens(usage, "input_tokens", *_CACHE), out, read, written)
        if agent is None and message.get("stop_reason") in ("end_turn", "stop_sequence"):
            session.ending = "finished"

    def _user(self, line: JsonObject, message: JsonObject, time: int, agent: str | None) -> None:
        found = self._blocks(message.get("content"))
        answered = False
        stopped = _stopped(line)
        for block in found:
            if block.get("type") == "tool_result":
                answered = True
                self.session.result(
                    block.get("tool_use_id"),
                    block.get("content"),
                    time,
                    error="" if block.get("is_error") is True else None,
                    stopped=stopped,
                )
        written = "\n".join(text(block.get("text")) for block in found).lstrip()
        if written.startswith(_INTERRUPTED):
            self.session.ending = "interrupted"
        elif not answered and agent is None and _is_prompt(line, found, written):
            self.session.prompt(time)


def _is_prompt(line: JsonObject, found: list[JsonObject], written: str) -> bool:
    unseen = ("isMeta", "isCompactSummary", "isVisibleInTranscriptOnly")
    if any(line.get(name) is True for name in unseen):
        return False
    return bool(found) and coding_tools.by_person(written)


def _stopped(line: JsonObject) -> bool:
    """True if a person refused the call that a line answers, or interrupted it."""
    told = map(mapping, sequence(line.get("tool_result_meta")))
    decisions = [line.get("permissionDecision"), *(one.get("permission_decision") for one in told)]
    by_person = any(
        one.get("decision") == "reject" and text(one.get("source")).startswith("user")
        for one in map(mapping, decisions)
    )
    result = line.get("toolUseResult") or line.get("tool_use_result")
    return by_person or mapping(result).get("interrupted") is True
