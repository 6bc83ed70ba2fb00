"""Recorded spans of one trace, replayed, and what was decided about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.replay import SpanReplay
from otel_loopguard.spans.views import RecordedSpan
from tests.calls import EPOCH, SECOND

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

OPERATIONS = {"tool": "execute_tool", "model": "chat", "agent": "invoke_agent"}


def span(
    kind: str, name: str, start: float, end: float | None, *, key: int, parent: int | None = 1,
    **more: Any,
) -> RecordedSpan:  # fmt: skip
    """A span of the GenAI conventions, in seconds after the epoch of the tests."""
    named = {"tool": "gen_ai.tool.name", "model": "gen_ai.request.model"}
    operation = OPERATIONS.get(kind)
    attributes: dict[str, Any] = {"gen_ai.conversation.id": "c", **more}
    if operation is not None:
        attributes["gen_ai.operation.name"] = operation
        attributes[named.get(kind, "gen_ai.agent.name")] = name
    return RecordedSpan(
        span_id=key,
        trace_id=1,
        start=EPOCH + round(start * SECOND),
        end=None if end is None else EPOCH + round(end * SECOND),
        parent_id=parent,
        name=f"{operation or kind} {name}",
        attributes=attributes,
    )


@dataclass
class Replayed:
    """A guard on a recording's own clock."""

    settings: dict[str, Any] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = LoopGuard(
            Settings(**self.settings),
            clock="replay",
            on_decision=lambda _session, decision: self.decisions.append(decision),
        )

    def feed(self, *spans: RecordedSpan) -> Replayed:
        """Replays spans to their end."""
        replay = SpanReplay(self.guard, self.guard.reader.read)
        for one in spans:
            replay.add(one)
        replay.finish()
        return self

    @property
    def said(self) -> list[tuple[float, str, str]]:
        """Of all stalls: seconds since the epoch of the tests, reason, action."""
        return [
            ((one.time - EPOCH) / SECOND, one.reason, one.action.value)
            for one in self.decisions
            if one.detector == "stall"
        ]


def agent(start: float, end: float | None, *, key: int = 1, name: str = "a") -> RecordedSpan:
    """The topmost span of a run."""
    return span("agent", name, start, end, key=key, parent=None)
