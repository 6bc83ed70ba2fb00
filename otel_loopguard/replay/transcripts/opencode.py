"""opencode: the sessions in `~/.local/share/opencode/opencode.db`.

Read off sessions of 1.18.33, and its code. A line is a row (`replay/opencode_database.py`): the
session, then the parts of a message and, behind them, the message; an answer is one, with its calls
and their results. A sub-agent has a session of its own, which names the one above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

from otel_loopguard.replay.fields import integer, is_map, kind_of, mapping, text, time
from otel_loopguard.replay.transcripts.session import (
    Ending,
    Reader,
    Transcript,
    map_of,
    tokens,
)

_ROWS: Final = frozenset(("session", "message", "part"))
_PARTS: Final = 1_000
"""Parts of a message that are held: an answer with its calls, of which agents make a few."""
_STOPPED: Final = (
    "The user rejected permission",
    "The user dismissed",
    "Tool execution aborted",
    "Cancelled",
)
"""How the error of a call begins that a person refused or interrupted."""


class OpenCode(Reader):
    """Reads one session."""

    agent = "opencode"

    def _begin(self) -> None:
        super()._begin()
        self._agent: str | None = None
        self._parts: list[tuple[str, Mapping[str, object]]] = []  # of the message that follows

    @staticmethod
    def begins(line: Mapping[str, object]) -> bool:
        """True if a line is a row of a session."""
        return text(line.get("opencode")) in _ROWS and "data" in line

    def take(self, line: Mapping[str, object]) -> Transcript | None:
        """Takes a line; that of another session starts a new one."""
        kind, key = text(line.get("opencode")), text(line.get("id"))
        data = line.get("data")
        if kind not in _ROWS or not is_map(data):
            self.report(f"`data` of a row is {kind_of(data)}, expected an object")
            return None
        before = None
        if kind == "session":
            before = self._named(key)
            self.session.cwd = text(data.get("directory"))
            self.session.version = text(data.get("version"))
            self._agent = key if text(data.get("parentID")) else None
        elif kind == "message":
            self._message(key, data)
            self._parts.clear()
        elif len(self._parts) >= _PARTS:
            self.report(f"the message has more than {_PARTS:,} parts, the rest is left out")
        elif data.get("type") in ("text", "tool"):
            self._parts.append((key, data))
        return before

    def _message(self, key: str, message: Mapping[str, object]) -> None:
        made = _time(mapping(message.get("time")), "created")
        if message.get("role") == "assistant":
            self._answer(message, made)
        elif message.get("role") == "user":
            written = (part for _, part in self._parts if part.get("type") == "text")
            # opencode itself writes in a user's name, too: to go on after a compaction.
            if self._agent is None and any(not part.get("synthetic") for part in written):
                self.session.prompt(made)
        else:
            self.report(f"the `role` of message {key[:40]} is neither `user` nor `assistant`")

    def _answer(self, message: Mapping[str, object], made: int) -> None:
        session = self.session
        texts = [part for _, part in self._parts if part.get("type") == "text"]
        calls = [
            (key, part, map_of(part, "state", self.report))
            for key, part in self._parts
            if part.get("type") == "tool"
        ]
        # A message is complete when its calls are; the model was, when they began.
        times = [_time(mapping(part.get("time")), "end") for part in texts]
        times += [_time(mapping(state.get("time")), "start") for _, _, state in calls]
        over = max(times, default=0) or _time(mapping(message.get("time")), "completed")
        model = text(message.get("modelID")) or None
        step = session.answer(model, made, max(made, over), self._agent)
        for part in texts:
            session.say(step, text(part.get("text")))
        used = mapping(message.get("tokens"))
        read, written = (tokens(mapping(used.get("cache")), name) for name in ("read", "write"))
        whole = tokens(used, "input") + read + written
        session.used(step, whole, tokens(used, "output", "reasoning"), read, written)
        ended: list[tuple[int, str, Mapping[str, object]]] = []
        for key, part, state in calls:
            moments = mapping(state.get("time"))
            begun = _time(moments, "start") or made
            session.call(key, part.get("tool"), state.get("input"), begun, self._agent)
            if state.get("status") in ("completed", "error"):
                ended.append((_time(moments, "end"), key, state))
        for end, key, state in sorted(ended, key=itemgetter(0)):
            self._result(key, state, end)
        session.ending = _ending(message)

    def _result(self, key: str, state: Mapping[str, object], end: int) -> None:
        if state.get("status") == "error":
            why = text(state.get("error"))
            self.session.result(key, None, end, error=why, stopped=why.startswith(_STOPPED))
            return
        # A command that failed is a success to opencode.
        code = integer(mapping(state.get("metadata")).get("exit"))
        self.session.result(key, state.get("output"), end, error="" if code else None)


def _ending(message: Mapping[str, object]) -> Ending:
    """How the turn ended, if this message is its last."""
    error = mapping(message.get("error"))
    if error:
        return "interrupted" if error.get("name") == "MessageAbortedError" else "unknown"
    return "finished" if message.get("finish") == "stop" else "unknown"


def _time(moments: Mapping[str, object], name: str) -> int:
    return time(moments.get(name), 1_000_000) or 0  # milliseconds
