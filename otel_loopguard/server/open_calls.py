"""The calls that models asked for, watched until anything else of their session arrives."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_loopguard._util.clock import now
from otel_loopguard.engine import Kind, RecordedSpan, requested_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_loopguard.engine import Engine, Step

# As many sessions as `max_sessions` by default: the calls of older ones are no news to anybody.
_SESSIONS: Final = 10_000
# Models ask for a handful at once; each call watched is an open span of the guard.
_CALLS: Final = 32
# Rounds of calls that are handed over to another worker; older ones were answered or given up.
_ROUNDS: Final = 4
# Names are from the wire, and 10,000 sessions keep 32 of them.
_LONGEST_NAME: Final = 200
_TOOL: Final = "gen_ai.tool.name"
_AGENT: Final = "gen_ai.agent.name"


class OpenCall(NamedTuple):
    """A call that has not returned.

    Attributes:
        span: Stands for it while it is open.
        said: Codes of what was said about its limits.
    """

    span: RecordedSpan
    said: Sequence[str] = ()


class OpenCalls:
    """The open calls of one guard's sessions, the newest 10,000 of them, each with 32 calls.

    A span comes when it ends, so a call that hangs is known only from the model's answer that asked
    for it: it counts as begun then, and as over once anything else of its session arrives.
    """

    def __init__(self, guard: Engine) -> None:
        self._guard = guard
        self._spans: OrderedDict[str, list[RecordedSpan]] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        """The sessions."""
        return iter(self._spans)

    def follow(self, read: Iterable[tuple[RecordedSpan, Step | None]]) -> set[str]:
        """Opens the calls that the newest span of a session asks for, and ends those before.

        Args:
            read: Spans that came, and their steps.

        Returns:
            The sessions whose open calls are others now.
        """
        newest: dict[str, tuple[RecordedSpan, Step | None]] = {}
        changed: set[str] = set()
        for span, step in sorted(read, key=lambda one: one[0].end or one[0].start):
            trace, session = f"{span.trace_id:032x}", self._guard.session_of(span.trace_id)
            if session != trace and self.end(trace):
                changed.add(trace)  # it has got its final key since
            if step is not None or session in self._spans:
                newest[session] = span, step
        for session, (span, step) in newest.items():
            if self.end(session):
                changed.add(session)
            if step is not None and step.kind is Kind.MODEL:
                tools = requested_tools(span)[:_CALLS]
                calls = [_requested(span, step, tool, number) for number, tool in enumerate(tools)]
                if calls:
                    self.open(session, map(OpenCall, calls))
                    changed.add(session)
        return changed

    def open(self, session: str, calls: Iterable[OpenCall]) -> None:
        """Watches calls of a session, or continues to."""
        spans: list[RecordedSpan] = []
        for span, said in calls:
            self._guard.watch(span, said)
            spans.append(span)
        if spans:
            self._spans[session] = spans
        while len(self._spans) > _SESSIONS:
            self.end(next(iter(self._spans)))

    def end(self, session: str) -> bool:
        """Stops watching the calls of a session; returns whether any was open."""
        spans = self._spans.pop(session, ())
        for span in spans:
            self._guard.let_go(span.span_id)
        return bool(spans)

    def due(self, at: int) -> list[str]:
        """Returns the sessions with a call that is due by then, nanoseconds since the epoch."""
        if self._guard.due > at:
            return []
        return [
            session
            for session, spans in self._spans.items()
            if any(self._guard.is_due(span.span_id, at) for span in spans)
        ]

    def packed(self, session: str) -> bytes:
        """Packs the open calls of a session for `resume`; empty if it has none."""
        calls = [
            (
                *(span.trace_id, span.span_id, span.parent_id, span.scope[:_LONGEST_NAME]),
                *(span.start, span.attributes[_TOOL], span.attributes.get(_AGENT), sorted(said)),
            )
            for span in self._spans.get(session, ())
            if (said := self._guard.said(span.span_id)) is not None
        ]
        waiting = self._guard.waiting_rounds(session)[-_ROUNDS:]
        return json.dumps([calls, waiting]).encode() if calls else b""


def unpacked(packed: bytes) -> tuple[list[OpenCall], list[Sequence[Any]]]:
    """Unpacks what another worker packed: open calls, and rounds of calls without a result."""
    calls, waiting = json.loads(packed or b"[[], []]")
    return [OpenCall(_call(*fields), said) for *fields, said in calls], waiting


def _requested(model: RecordedSpan, step: Step, tool: str, number: int) -> RecordedSpan:
    """Returns a requested call as a span that is open since the response arrived."""
    # The same id in every worker that judges the answer, and so the same decisions.
    place = f"{model.trace_id:x}-{model.span_id:x}-{number}".encode()
    span_id = int.from_bytes(hashlib.blake2b(place, digest_size=8).digest(), "big") or 1
    agent = None if step.agent is None else step.agent[:_LONGEST_NAME]
    tool = tool[:_LONGEST_NAME]
    return _call(model.trace_id, span_id, model.parent_id, model.scope, now(), tool, agent)


def _call(  # noqa: PLR0913, PLR0917
    trace_id: int, span_id: int, parent_id: int | None, scope: str, start: int, tool: str,
    agent: str | None,
) -> RecordedSpan:  # fmt: skip
    attributes: dict[str, object] = {"gen_ai.operation.name": "execute_tool", _TOOL: tool}
    if agent is not None:
        attributes[_AGENT] = agent
    return RecordedSpan(
        f"execute_tool {tool}", scope, trace_id=trace_id, span_id=span_id, parent_id=parent_id,
        start=start, attributes=attributes,
    )  # fmt: skip
