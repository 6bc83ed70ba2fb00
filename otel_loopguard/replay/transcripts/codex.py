"""Codex: `rollout-*.jsonl` below `~/.codex/sessions`.

Read off rollouts of 0.169.0, and openai/codex codex-rs/protocol (`RolloutItem`, `ResponseItem`,
`EventMsg`) of that version and of 0.30. A line is `{"timestamp", "type", "payload"}`; the oldest
have the payload alone. A sub-agent has a rollout of its own, which names the one above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.fields import JsonObject, instant, kind_of, mapping, sequence, text
from otel_loopguard.replay.transcripts.session import Reader, Transcript, tokens

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_LINES: Final = frozenset(
    ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
)
_CALLS: Final = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_OUTPUTS: Final = frozenset(("function_call_output", "custom_tool_call_output"))
_ITEMS: Final = _CALLS | _OUTPUTS | {"message", "reasoning"}
_HARNESS: Final = ("<", "# AGENTS.md instructions", "# Context from my IDE setup")
"""Beginnings of text that Codex itself puts into a user's message."""


class Codex(Reader):
    """Reads one rollout."""

    agent = "codex"

    def _begin(self) -> None:
        super()._begin()
        self._agent: str | None = None
        self._answer: Step | None = None  # the answer that the lines now are parts of
        self._asked: Step | None = None  # the last one whose tokens are not known yet
        self._last = 0  # when the model had last been given something

    @staticmethod
    def begins(line: JsonObject) -> bool:
        """True if a line is one of a rollout."""
        if text(line.get("type")) in _LINES:
            return "payload" in line
        return "instructions" in line and "id" in line and "timestamp" in line

    def take(self, line: JsonObject) -> Transcript | None:
        """Takes a line; the head of another rollout starts a new session."""
        kind, time = text(line.get("type")), instant(line.get("timestamp"))
        before = None
        if kind == "session_meta" or (not kind and "instructions" in line):
            before = self._meta(self._map(line, "payload") or line)
        elif kind in _ITEMS:
            self._item(line, time)
        elif kind:
            self._payload(kind, self._map(line, "payload"), time)
        elif "record_type" not in line:
            self.report(f"`type` is {kind_of(line.get('type'))}, expected text")
        return before

    def _meta(self, meta: JsonObject) -> Transcript | None:
        own = text(meta.get("id"))
        above = text(meta.get("session_id")) or own
        spawned = mapping(mapping(mapping(meta.get("source")).get("subagent")).get("thread_spawn"))
        above = text(spawned.get("parent_thread_id")) or above
        if self.session.id and own in (self.session.id, self._agent):
            return None  # a session that was resumed
        before = self._begin_anew() if self.session.id else None
        self.session.id = above
        self.session.cwd = text(meta.get("cwd"))
        self.session.version = text(meta.get("cli_version"))
        self._agent = own if own != above or spawned else None
        return before

    def _payload(self, kind: str, payload: JsonObject, time: int) -> None:
        if kind == "response_item":
            self._item(payload, time)
        elif kind == "event_msg":
            self._event(payload, time)
        elif kind == "turn_context":
            self.session.model = text(payload.get("model")) or self.session.model
        elif kind == "token_usage_record":
            self._tokens(self._map(payload, "usage"))

    def _item(self, item: JsonObject, time: int) -> None:
        kind = text(item.get("type"))
        if kind == "message":
            self._message(item, time)
        elif kind == "reasoning":
            self._answering(time)
        elif kind in _CALLS:
            self._answering(time)
            action = mapping(item.get("action"))
            args = item.get("arguments", item.get("input", action))
            name = item.get("name") or ("local_shell" if action else None)
            key = item.get("call_id") or item.get("id")
            self.session.call(key, name, args, time, self._agent)
        elif kind in _OUTPUTS:
            self._answer, self._last = None, max(self._last, time)
            # Text, a list of parts, or in old versions `{content, success}`.
            output = item.get("output")
            outcome = mapping(output).get("content", output)
            self.session.result(item.get("call_id"), outcome, time)
        elif kind == "web_search_call":
            self._answering(time)
            key = text(item.get("id")) or f"search-{time}"
            self.session.call(key, "web_search", item.get("action"), time, self._agent)
            self.session.result(key, None, time)

    def _message(self, item: JsonObject, time: int) -> None:
        found = self._blocks(item.get("content"))
        written = "\n".join(text(block.get("text")) for block in found)
        if item.get("role") == "assistant":
            self.session.say(self._answering(time), written)
        elif item.get("role") == "user" and self._is_prompt(item, written):
            self._prompt(time)

    def _is_prompt(self, item: JsonObject, written: str) -> bool:
        meta = mapping(item.get("internal_chat_message_metadata_passthrough"))
        kinds = sequence(meta.get("content_item_kinds"))
        if kinds:
            return any(text(kind).startswith("user.") for kind in kinds)
        return bool(written) and not written.lstrip().startswith(_HARNESS)

    def _event(self, event: JsonObject, time: int) -> None:
        kind = event.get("type")
        if kind == "user_message" or (
            kind == "item_completed" and mapping(event.get("item")).get("type") == "UserMessage"
        ):
            self._prompt(time)
        elif kind == "token_count":
            self._tokens(mapping(mapping(event.get("info")).get("last_token_usage")))
        elif kind in ("task_complete", "turn_complete"):
            self.session.ending = "finished"
        elif kind == "turn_aborted":
            self.session.ending = "interrupted"

    def _prompt(self, time: int) -> None:
        """A prompt begins a turn, unless it is a sub-agent's, which came from an agent."""
        self._answer, self._last = None, max(self._last, time)
        if self._agent is None:
            self.session.prompt(time)

    def _answering(self, time: int) -> Step:
        if self._answer is None:
            self._answer = self.session.answer(None, self._last or time, time, self._agent)
            self._asked = self._answer
        self._answer.end = max(self._answer.end or 0, time)
        return self._answer

    def _tokens(self, usage: JsonObject) -> None:
        """Counts the tokens of the last answer once; a second event repeats them."""
        if self._asked is None or not usage:
            return
        read = tokens(usage, "cached_input_tokens")
        written = tokens(usage, "cache_write_input_tokens")
        whole, out = tokens(usage, "input_tokens"), tokens(usage, "output_tokens")
        self.session.used(self._asked, whole, out, read, written)
        self._asked = self._answer = None
