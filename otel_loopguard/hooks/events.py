"""Events and answers of hooks, whichever coding agent sends them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Answering = Callable[[bytes], "tuple[bytes, Callable[[], None] | None]"]
"""Gives the answer to a request, and a callback for when it is not delivered."""


class EventKind(enum.Enum):
    """The content of an event of a coding agent."""

    CALL = "call"  # a tool is about to be called, and may be refused
    RESULT = "result"  # a tool has answered or failed
    PROMPT = "prompt"  # a user has written: a new turn
    RESPONSE = "response"  # text of the model
    STOP = "stop"  # the agent, or a sub-agent, has ended its turn
    SESSION_START = "session_start"
    SESSION_END = "session_end"
    COMPACTION = "compaction"  # the model's context was made smaller
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event; None where the agent does not say.

    Attributes:
        agent: Name of the coding agent, as on the command line: `claude-code`.
        name: The agent's own name for the event: `PreToolUse`.
        kind: What it tells.
        session: Id of the session, the one that the agent's own telemetry has.
        sub_agent: Id of the sub-agent that it is about; None for the main agent.
        turn: Id of the user's turn.
        call_id: Joins a call with its result.
        tool: Name of the tool.
        args: Arguments of the call.
        outcome: What the tool answered.
        error: What went wrong, in the tool's words; empty where it failed without any.
        duration_ns: How long the call took.
        text: What the user or the model wrote.
        model: Name of the model.
        cwd: Folder that the agent works in.
        accepts_hint: Whether an answer to it can tell the model something.
    """

    agent: str
    name: str
    kind: EventKind
    session: str
    sub_agent: str | None = None
    turn: str | None = None
    call_id: str | None = None
    tool: str | None = None
    args: Mapping[str, Any] | None = None
    outcome: object = None
    error: str | None = None
    duration_ns: int | None = None
    text: str | None = None
    model: str | None = None
    cwd: str | None = None
    accepts_hint: bool = False


class Reply(enum.Enum):
    """An answer to a coding agent; each agent gets as much of it as it understands."""

    NOTHING = "nothing"
    HINT = "hint"  # go on, and tell the model something
    ASK = "ask"  # ask the user whether the call may be made
    DENY = "deny"  # do not make this call
    STOP = "stop"  # end the turn


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The guard's answer to an event."""

    reply: Reply = Reply.NOTHING
    reason: str = ""  # why a call is refused or the turn ended: for the model and for people
    hint: str = ""  # what to tell the model


class HookAgent(Protocol):
    """A coding agent: how its events are read, how it is answered, where its hooks are set."""

    name: str

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """Reads the event on standard input; None for an unknown one."""
        ...

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """Returns the answer for standard output; `{}` for none.

        It is `{}`, too, where this agent can be told nothing at this event, as a hint at the end of
        a turn: then nobody was told. An agent that cannot do what is asked is told the nearest that
        it can: without a way to ask, a call is denied; where a turn cannot be ended, each call is.
        """
        ...
