"""The calls that models asked for, watched until anything else of their session arrives."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.clock import now
from otel_loopguard.core import Kind
from otel_loopguard.sessions.requested_calls import WaitingRound
from otel_loopguard.spans.messages import calls_on
from otel_loopguard.spans.views import RecordedSpan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_loopguard.core import Step
    from otel_loopguard.guard.guard import LoopGuard

_SESSIONS: Final = 10_000
_CALLS: Final = 32
_ROUNDS: Final = 4
_NAMED: Final = 200


class SharedCalls(NamedTuple):
    """What another worker knows of the calls of a session that have not returned.

    Attributes:
        open: The calls that it watched.
        waiting: Calls known from messages only, which count once their results appear.
    """

    open: Sequence[OpenCall] = ()
    waiting: Sequence[WaitingRound] = ()


class OpenCall(NamedTuple):
    """A call that has not returned.

    Attributes:
        span: Stands for it while it is open.
        said: Codes of what was said about its limits.
    """

    span: RecordedSpan
    said: frozenset[str] = frozenset()


class OpenCalls:
    """The open calls of one guard's sessions, the newest 10,000 of them, each with 32 calls.

    A span comes when it ends, so a call that hangs is known only from the model's answer that asked
    for it: it counts as begun then, and as over once anything else of its session arrives.
    """

    def __init__(self, guard: LoopGuard) -> None:
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
            flag = self._guard.flag_in(span.trace_id)
            trace = f"{span.trace_id:032x}"
            session = trace if flag is None else flag.control.session or trace
            if session != trace and self.end(trace):
                changed.add(trace)  # it has got its final key since
            if step is not None or session in self._spans:
                newest[session] = span, step
        for session, (span, step) in newest.items():
            if self.end(session):
                changed.add(session)
            if step is not None and step.kind is Kind.MODEL:
                requested = enumerate(calls_on(span)[:_CALLS])
                calls = [
                    _requested_call(span, step, call.name, number) for number, call in requested
                ]
                if calls:
                    self.open(session, map(OpenCall, calls))
                    changed.add(session)
        return changed

    def open(self, session: str, calls: Iterable[OpenCall]) -> None:
        """Watches calls of a session, or continues to."""
        spans: list[RecordedSpan] = []
        for span, said in calls:
            self._guard.on_start(span)
            opened = self._guard.active.by_id.get(span.span_id)
            if opened is not None:
                opened.said = set(said)
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
        active = self._guard.active.by_id
        return [
            session
            for session, spans in self._spans.items()
            for opened in (active.get(span.span_id) for span in spans)
            if opened is not None and opened.ticket is not None and opened.ticket[0] <= at
        ]

    def packed(self, session: str) -> bytes:
        """Packs the open calls of a session for `unpacked`; empty if it has none."""
        active = self._guard.active.by_id
        calls = [
            (
                *(span.trace_id, span.span_id, span.parent_id, span.scope[:_NAMED], span.start),
                span.attributes[_TOOL], span.attributes.get(_AGENT),
                sorted(opened.said or ()),
            )
            for span in self._spans.get(session, ())
            if (opened := active.get(span.span_id)) is not None
        ]  # fmt: skip
        found = self._guard.find(session)
        waiting = [] if found is None else found.requested()[-_ROUNDS:]
        return json.dumps([calls, waiting]).encode() if calls else b""


def unpacked(packed: bytes) -> SharedCalls:
    """Unpacks the calls of another worker."""
    calls, waiting = json.loads(packed or b"[[], []]")
    return SharedCalls(
        [
            OpenCall(_call(trace, span, parent, scope, start, tool, agent), frozenset(said))
            for trace, span, parent, scope, start, tool, agent, said in calls
        ],
        [WaitingRound(*fields) for fields in waiting],
    )


_TOOL: Final = "gen_ai.tool.name"
_AGENT: Final = "gen_ai.agent.name"


def _requested_call(model: RecordedSpan, step: Step, tool: str, number: int) -> RecordedSpan:
    """Returns a requested call as a span that is open since the response arrived."""
    # The same id in every worker that judges the answer, and so the same decisions.
    place = f"{model.trace_id:x}-{model.span_id:x}-{number}".encode()
    span_id = int.from_bytes(hashlib.blake2b(place, digest_size=8).digest(), "big") or 1
    agent = None if step.agent is None else step.agent[:_NAMED]
    return _call(
        model.trace_id, span_id, model.parent_id, model.scope, now(), tool[:_NAMED], agent
    )  # fmt: skip


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
