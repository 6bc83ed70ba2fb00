"""One visit of a node, or one run of an agent among others: what graphs are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.core.step import Kind


@dataclass(frozen=True, slots=True)
class Visit:
    """A node of a graph was visited, or an agent beside others has run.

    What is new is told from everything that ended since the visit before in the same graph run:
    the state of the node, tool calls and their answers, what models wrote, what was handed over.

    Attributes:
        kind: `NODE` or `AGENT`.
        name: Name of the node or agent.
        key: Key of graph run and name, as the identity of a loop.
        place: Key of graph run, name and state: equal for two visits that gave the same.
        graph: Key of the graph run; a user's turn and a new root run begin another one.
        state: Key of what the node gave (where that is unknown: of what it got), whatever order it
            stands in and however often; None if neither was captured.
        news: Whether anything was seen that the graph run had not seen before.
        known: Whether it can be told that there was nothing new: by the node's state, or by a tool
            call with its answer.
        unseen: Whether something happened that may be new, and was not captured.
        waiting: Whether time was given: a wait, or `wait_gap_s` without work of a model.
        again: Whether there was a visit of the same place since the last news.
        home: Whether a stretch without news has come round again: true once per go-round, which is
            where detectors speak, so that a go-round confirms a loop once.
        gap: Nanoseconds since the start of the visit before in the same graph run; None for the
            first, or without times.
    """

    kind: Kind
    name: str
    key: int
    place: int
    graph: int
    state: int | None
    news: bool
    known: bool
    unseen: bool
    waiting: bool
    again: bool
    home: bool
    gap: int | None

    @property
    def moves(self) -> bool:
        """Whether the graph got on, or gave time: what was counted before is over."""
        return self.news or self.waiting

    @property
    def idle(self) -> bool:
        """Whether surely nothing new came of it, and no time was given."""
        return self.known and not (self.news or self.unseen or self.waiting)
