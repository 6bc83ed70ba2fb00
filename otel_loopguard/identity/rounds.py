"""Rounds: what one message of a model asked for, and calls that ran in parallel, share one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

_HOUR: Final = 3_600_000_000_000
_AGENTS: Final = 32
_CALLS: Final = 24
"""Calls that one message may ask for; more of them are a program's own loop."""
_EQUAL: Final = 2
"""Equal calls, one after the other, that one message may ask for; likewise."""
_PAUSE: Final = 250_000_000
"""Nanoseconds between two calls in which a model may have been asked unseen."""


@dataclass(slots=True)
class _Message:
    """The calls since an agent's model was asked last."""

    asked: tuple[int, int]
    round: int
    calls: int = 0
    equal: dict[int, int] = field(default_factory=dict[int, int])


class Rounds:
    """Numbers the rounds of one session: by its model calls where they are seen, else by times."""

    __slots__ = ("_asked", "_end", "_messages", "_models", "_number")

    def __init__(self) -> None:
        self._number = 0
        self._end = 0
        self._models = 0
        # By agent, and under 0 of those of which it is not known whose they are.
        self._asked: OrderedDict[int, int] = OrderedDict()
        self._messages: OrderedDict[int, _Message] = OrderedDict()

    def asked(self, agent: int = 0) -> None:
        """A model was asked.

        Args:
            agent: Key of its agent; 0 if that is not known.
        """
        self._models += 1
        self._asked[agent] = self._asked.pop(agent, 0) + 1
        if len(self._asked) > _AGENTS:
            self._asked.popitem(last=False)

    def of(self, start: int, end: int, agent: int = 0, call: int | None = None) -> int:
        """Number of the round; a clock that jumped by an hour or more begins a new one.

        Args:
            start: Start of the call, nanoseconds since the epoch; 0 if it is not known.
            end: Its end, likewise.
            agent: Key of its agent; 0 if that is not known.
            call: Key of the call; None if it is not known.
        """
        beside = bool(start) and -_HOUR < start - self._end < 0
        paused = bool(start and self._end) and start - self._end > _PAUSE
        message = self._message(agent, call, paused=paused) if self._models else None
        self._end = max(self._end, end) if beside else end
        if message is not None and message.calls > 1 and not beside:
            return message.round
        if not beside:
            self._number += 1
        if message is not None:
            message.round = self._number
        return self._number

    def _message(self, agent: int, call: int | None, *, paused: bool) -> _Message | None:
        """What the agent's model was asked last, with this call; None if that asks for no more."""
        own = self._asked.get(agent) if agent else None
        # Where nothing is known of the agent's model, any model may be its.
        asked = (-1, self._models) if own is None else (self._asked.get(0, 0), own)
        message = self._messages.pop(agent, None)
        if message is None or message.asked != asked or paused:
            message = _Message(asked, 0)
        self._messages[agent] = message
        if len(self._messages) > _AGENTS:
            self._messages.popitem(last=False)
        message.calls += 1
        if call is not None and message.calls <= _CALLS:
            message.equal[call] = message.equal.get(call, 0) + 1
            if message.equal[call] > _EQUAL:
                return None
        return message if message.calls <= _CALLS else None
