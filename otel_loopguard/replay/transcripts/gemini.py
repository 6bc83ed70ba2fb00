"""gemini-cli: `session-*.jsonl` (and `.json`) below `~/.gemini/tmp/*/chats`.

Read off sessions of 0.61.0, and google-gemini/gemini-cli packages/core/src/services
(`chatRecordingService.ts`, `chatRecordingTypes.ts`) of that version. A message is written anew
under its `id` each time it grows; a call has its result beside it. Older versions keep a session as
one document. A sub-agent's session lies in a folder named after the session above it.
"""

from __future__ import annotations

from typing import Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import JsonObject, instant, is_map, kind_of, mapping, rows, text
from otel_loopguard.replay.transcripts.session import Reader, Transcript, tokens
from otel_loopguard.spans.coding_tools import gemini_result

_CONTEXT: Final = "<session_context>"
_MESSAGES: Final = 10_000
"""Ids of messages that are remembered, so that one written again counts once: 170 bytes each."""
_OVER: Final = frozenset(("success", "error", "cancelled"))


class Gemini(Reader):
    """Reads one session."""

    agent = "gemini"

    def _begin(self) -> None:
        super()._begin()
        self._agent: str | None = None
        self._waiting: JsonObject | None = None  # the message that may grow yet
        self._known: BoundedDict[str, None] = BoundedDict(_MESSAGES)
        self._last = 0

    @staticmethod
    def begins(line: JsonObject) -> bool:
        """True if a line is the head of a session, or all of it."""
        return isinstance(line.get("sessionId"), str) and "projectHash" in line

    def take(self, line: JsonObject) -> Transcript | None:
        """Takes a line; the head of another session starts a new one."""
        before = None
        if self.begins(line):
            key = text(line.get("sessionId"))
            before = self._named(key)
            self._agent = key if line.get("kind") == "subagent" else None
            self._messages(line)
        elif is_map(line.get("$set")):
            self._messages(mapping(line["$set"]))
        elif "id" in line:
            self._message(line)
        elif "$rewindTo" not in line:
            self.report("neither a message nor what is set of the session")
        return before

    def finish(self) -> Transcript | None:
        """The session so far."""
        self._let_go()
        return super().finish()

    def _messages(self, within: JsonObject) -> None:
        for message in rows(within, ("messages",), self.report):
            self._message(message)

    def _message(self, message: JsonObject) -> None:
        key = text(message.get("id"))
        if self._waiting is not None and text(self._waiting.get("id")) != key:
            self._let_go()
        if key and key in self._known:
            return  # written anew with a shorter result: its calls were made once
        self._waiting = message

    def _let_go(self) -> None:
        message, self._waiting = self._waiting, None
        if message is None:
            return
        self._known[text(message.get("id"))] = None
        time = instant(message.get("timestamp"))
        if message.get("type") == "gemini":
            self._answer(message, time)
        elif message.get("type") == "user":
            found = self._blocks(message.get("content"))
            written = "".join(text(block.get("text")) for block in found)
            if written and self._agent is None and not written.startswith(_CONTEXT):
                self.session.prompt(time)
        elif not isinstance(message.get("type"), str):
            self.report(f"the `type` of a message is {kind_of(message.get('type'))}, expected text")
        self._last = max(self._last, time)

    def _answer(self, message: JsonObject, time: int) -> None:
        session = self.session
        model = text(message.get("model")) or None
        step = session.answer(model, self._last or time, time, self._agent)
        content = message.get("content")
        said = self._blocks([content] if is_map(content) else content)
        session.say(step, "".join(text(block.get("text")) for block in said))
        used = mapping(message.get("tokens"))
        if used:
            out = tokens(used, "output", "thoughts")
            whole = tokens(used, "input", "tool")
            session.used(step, whole, out, tokens(used, "cached"))
        session.ending = "finished"
        for call in rows(message, ("toolCalls",), self.report):
            session.ending = "unknown"
            self._call(call, time)

    def _call(self, call: JsonObject, time: int) -> None:
        key, status = call.get("id"), text(call.get("status"))
        self.session.call(key, call.get("name"), call.get("args"), time, self._agent)
        if status not in _OVER:
            return
        outcome, broken = gemini_result(call.get("result"))
        end = instant(call.get("timestamp"))
        self.session.result(
            key,
            outcome,
            end,
            error=broken or ("" if status == "error" else None),
            stopped=status == "cancelled",
        )
        self._last = max(self._last, end)
