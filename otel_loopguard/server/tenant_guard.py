"""The guard of one tenant, fed with what arrives: in batches, out of order, more than once.

Calls that models asked for are watched until anything else of their session arrives.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import attempt, swallow
from otel_loopguard.engine import (
    UNREACHED,
    Action,
    Annotation,
    Control,
    DecisionRecord,
    Engine,
    Event,
    Kind,
    RecordedSpan,
    SpanView,
    Step,
    answer_people,
    encoded,
    is_unknown,
    joined,
    refusal,
    requested_tools,
)
from otel_loopguard.errors import StoreError
from otel_loopguard.replay import SpanReplay
from otel_loopguard.replay.log_records import EVENT
from otel_loopguard.server.access import DEFAULT
from otel_loopguard.server.forward import EventLog
from otel_loopguard.server.metrics import Cause, Lateness, ServerMetrics
from otel_loopguard.server.otlp import RETRY_S, Refused, decision_record, event_record

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Generator,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from otel_loopguard.server.leases import SessionLeases, SpanId, Taken

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


Read = tuple[RecordedSpan, Step | None]
"""A span, and its step if it is one."""
_T = TypeVar("_T")

# A span comes again within an exporter's minutes of retrying: at 1,000 spans/s the newest three.
# A hundred bytes each.
_SEEN: Final = 200_000
# Few spans carry a decision; those that come again within the same time do so again.
_DECIDED: Final = 10_000
# An answer of Redis takes milliseconds; a runtime that asks for its flag waits for it.
_LOOK_UP_S: Final = 0.2
# Requests that are sent at once, as by the queue of a Collector, arrive within a fraction of it.
_LATENESS_S: Final = 0.2
# Who was answered at once with others packs its next spans no longer, as they do.
_PACKED_S: Final = 1.0
_TIMED: Final = 16
"""Steps of a batch whose delay is recorded: one costs 8 µs, a twentieth of judging a step."""
MOST_WAITING: Final = 20_000
"""Spans and log records that wait for one tenant: what is judged within a few seconds."""


class Busy(Refused):
    """The server cannot take a request now; the sender should retry."""

    status = 503
    code = 8  # RESOURCE_EXHAUSTED
    headers: Mapping[str, str] = {"retry-after": str(RETRY_S)}

    def __init__(self, why: str, cause: Cause = "busy", detail: str = "") -> None:
        super().__init__(why)
        self.cause = cause
        self.detail = detail


class _Feed:
    """A guard whose clock is not moved by spans: hosts do not agree about the time.

    Attributes:
        read_ns: Nanoseconds that reading a span took.
    """

    def __init__(self, guard: Engine) -> None:
        self._guard = guard
        self.read_ns = 0
        self.bind = guard.bind
        self.observe = guard.observe

    def on_start(self, span: SpanView) -> None:
        with swallow(self._guard.faults, "server"):
            self._guard.on_start(span)

    def on_end(self, span: SpanView, *, step: Step | None = None) -> None:
        with swallow(self._guard.faults, "server"):
            self._guard.judge(span, step, self.read_ns)

    def tick(self, now: int) -> None:
        pass


class TenantGuard:
    """Feeds the guard of one tenant with what arrives.

    What arrives within `lateness_s` of each other is put in order before it is judged; by default
    what comes alone is judged at once, for most exporters send nothing more before it is answered.
    Of a span that arrives again, as exporters send after a time-out, only the first counts. Judging
    takes a thread of its own, so that requests are answered meanwhile.

    With leases other workers judge the same sessions, before and after: a request is answered once
    what was judged is stored, and fails where another worker got the session meanwhile.

    Attributes:
        ticked: When its thread was last seen to work, by the monotonic clock.
        store_trouble: Why the store did not answer then; empty if it did, None without one.
        lateness: Sessions whose steps are judged too late to warn their runtime.
        waiting: Spans and log records that wait to be judged.
        requests: Its requests that are not answered yet, from their first byte on.
        log: Its decisions and other events, until the next hop has them; `sent` says so.
    """

    def __init__(
        self, guard: Engine, lateness_s: float | None, tenant: str = DEFAULT,
        leases: SessionLeases | None = None, metrics: ServerMetrics | None = None,
    ) -> None:  # fmt: skip
        self.guard = guard
        self.admin = guard.escalation().admin
        self.admin.others_judge = leases is not None
        self._lateness_s = lateness_s
        self._feed = _Feed(guard)
        self._replay = SpanReplay(self._feed, guard.reader.read)
        self._seen: BoundedDict[SpanId, None] = BoundedDict(_SEEN)
        self._first_seen: BoundedDict[tuple[str, str], tuple[bool, int]] = BoundedDict(_SEEN)
        self._decided: BoundedDict[SpanId, Annotation] = BoundedDict(_DECIDED)
        self._calls = OpenCalls(guard)
        self.lateness = Lateness(guard)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loopguard-server")
        self._batch: list[RecordedSpan] = []  # what arrived within the lateness
        self._judging: asyncio.Task[dict[SpanId, Annotation]] | None = None
        self.waiting = self.requests = 0
        self._together = -math.inf  # when two requests were last under way
        self.log = EventLog(tenant)
        self._leases = leases
        self._metrics = metrics or ServerMetrics()
        for change in ("taken", "taken_over", "lost") if leases is not None else ():
            # From 0, so that the first one is an increase.
            self._metrics.add(semconv.METRIC_SERVER_LEASES, 0, change)
        self._made: list[DecisionRecord] = []
        self.ticked = -math.inf
        self.store_trouble = None if leases is None else "the store was not asked yet"
        guard.subscribe("server", on_decision=self._decide, on_event=self._report)

    @contextmanager
    def taking(self) -> Generator[None]:
        """Counts a request, from its first byte to its answer."""
        self.requests += 1
        try:
            yield
        finally:
            if self.requests > 1:
                self._together = time.monotonic()
            self.requests -= 1

    async def judge(self, spans: Sequence[RecordedSpan]) -> dict[SpanId, Annotation]:
        """Judges spans, and log records as spans; none where the guard is not `enabled`.

        Returns:
            The annotations of the spans, by trace and span id.

        Raises:
            Busy: Too many wait already; a request that is alone may have any number.
        """
        if not self.guard.settings.enabled:
            return {}
        count = len(spans)
        if self.waiting and self.waiting + count > MOST_WAITING:
            raise Busy(f"more than {MOST_WAITING:,} spans would wait to be judged")
        if self._judging is None:
            self._judging = asyncio.create_task(self._run())
        self._batch += spans
        self.waiting += count
        try:
            found = await asyncio.shield(self._judging)
        finally:
            self.waiting -= count
        own = {(span.trace_id, span.span_id) for span in spans}
        return {place: annotation for place, annotation in found.items() if place in own}

    async def read(self, session: str, *, shown: bool = True) -> Control:
        """Returns the control of a session to its runtime, which has heard it then.

        Of a session that is not known it waits for what the store has, for 0.2 s at most.
        """
        if self._leases is not None and self.guard.flag_of(session) is None:
            # Another worker may judge it; its messages arrive for known sessions only.
            loop, answered = asyncio.get_running_loop(), asyncio.Event()

            def answer() -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(answered.set)

            self.guard.look_up(session, answer)
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(answered.wait(), _LOOK_UP_S)
        return self.guard.read(session, shown=shown)

    async def refusal(self, session: str, tool: str, arguments: object) -> Control:
        """Returns the control that refuses a call of a tool, or one that allows it.

        Where another worker denied a loop, the journal says which calls it has, and whether it is
        denied still once another call lowered the flag.
        """
        control, flag = await self.read(session, shown=False), self.guard.flag_of(session)
        denial = control if control.action is Action.DENY or flag is None else flag.denial
        if self._leases is not None and denial is not None and denial.decision is None:
            with suppress(StoreError):
                await self._call(self.guard.recall, session, 0)
        return self.guard.refusal(session, tool, arguments)

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what a person asks; of sessions that are not judged here the other workers do.

        Of a list that lacks the sessions of others `partial` says why.
        """
        asked, faults = encoded(request), self.guard.faults
        own = json.loads(self.admin.answer(asked, faults))
        if self._leases is None or not (is_unknown(own) or "sessions" in own):
            return own
        replies, silent = await asyncio.to_thread(self.guard.ask_others, request)
        found = joined([own, *replies])
        if is_unknown(found):
            session = request.get("session", "")
            if self.guard.flag_of(session) is None:
                if not silent and found["error"] == "unknown_session":
                    silent = await asyncio.to_thread(self._adopt, session)
                if silent:
                    return refusal(UNREACHED, f"{silent}: the session may be there, ask again")
            # Nobody judges it now; this worker may know its flag.
            return json.loads(answer_people(asked, [self.guard.reply], faults))
        if "sessions" in found:
            found["partial"] = silent or None
            # Who was only asked for its flag knows the session, too, and nothing of it.
            rows = sorted(found["sessions"], key=lambda row: row["steps"])
            best = {row["session"]: row for row in rows}.values()
            found["sessions"] = sorted(
                best, key=lambda row: (Action(row["action"]).stops, row["last"]), reverse=True
            )
        return found

    def _adopt(self, session: str) -> str:
        """Makes a session known that only the store knows; returns why that cannot be told."""
        try:
            self.guard.adopt(session)
        except StoreError:
            return "the store does not answer"
        return ""

    async def close(self, send: Callable[[], Awaitable[object]] | None = None) -> None:
        """Judges pending spans, and shuts the guard down.

        Args:
            send: Called then, to send what is left in the log.
        """
        if self._judging is not None:
            # Who sent it is told why it failed.
            await asyncio.gather(self._judging, return_exceptions=True)
        await self._call(self._shutdown)
        if send is not None:
            await send()
        if self._leases is not None:
            await self._call(self._leave, self._leases)
        self._thread.shutdown()

    async def tick(self) -> None:
        """Checks for what is overdue.

        Raises:
            Busy: The store does not answer.
        """
        await self._call(self._tick)

    async def sent(self, events: Sequence[str]) -> None:
        """Notes that the next hop has these events."""
        by_session = self.log.sent(events)
        if self._leases is not None and by_session:
            with suppress(StoreError):  # then they are sent once more, with the same ids
                await self._call(self._leases.sent, by_session)

    async def _call(self, do: Callable[..., _T], *given: Any) -> _T:
        """Calls something on the thread that judges."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, do, *given)

    async def _run(self) -> dict[SpanId, Annotation]:
        alone = self.requests <= 1 and time.monotonic() - self._together > _PACKED_S
        wait_s = 0 if alone else _LATENESS_S
        await asyncio.sleep(wait_s if self._lateness_s is None else self._lateness_s)
        batch, self._batch, self._judging = self._batch, [], None
        return await self._call(self._judge, batch)

    def _judge(self, batch: Sequence[RecordedSpan]) -> dict[SpanId, Annotation]:
        reader, faults = self.guard.reader, self.guard.faults
        began = time.perf_counter_ns()
        read = [(span, attempt(faults, "read", reader.read, span)) for span in batch]
        self._feed.read_ns = (time.perf_counter_ns() - began) // max(len(read), 1)
        homes = {} if self._leases is None else self._take(self._leases, read)
        fresh = self._unseen(read)
        for span, step in fresh.values():
            self._replay.add(span, step)
        self._replay.finish()
        with swallow(self.guard.faults, "server"):
            for session in self._calls.follow(fresh.values()):
                self._share_calls(session)
        steps = [(span.trace_id, step) for span, step in fresh.values() if step is not None]
        self._record_delays(steps)
        with swallow(self.guard.faults, "server"):
            self.lateness.note(steps)
        # What is acknowledged is counted: a span that is still open here will never report its end.
        self.guard.count_held()
        for place in fresh:
            annotation = self.guard.annotation(*place)
            if annotation is not None:
                self._decided[place] = annotation
            if self._leases is not None and place in homes:
                self._leases.judged(homes[place], place, annotation)
        if self._leases is not None and (lost := self._store(self._leases)):
            raise Busy(f"{len(lost)} sessions are judged by another worker now", "lease_lost")
        # Also for a span that is sent again: the next hop may not have taken it before.
        places = {(span.trace_id, span.span_id) for span in batch}
        return {place: self._decided[place] for place in places if place in self._decided}

    def _record_delays(self, steps: Sequence[tuple[int, Step]]) -> None:
        at = time.time()
        for _, step in steps[:: math.ceil(len(steps) / _TIMED) or 1]:
            if step.end is not None:
                # The clock of another host may be ahead.
                delay = max(at - step.end / 1e9, 0)
                self._metrics.add(semconv.METRIC_SERVER_JUDGING_DELAY, delay)

    def _unseen(self, read: Iterable[Read]) -> dict[SpanId, Read]:
        fresh: dict[SpanId, Read] = {}
        for span, step in read:
            place = (span.trace_id, span.span_id)
            if place not in self._seen:
                self._seen[place] = None
                if self._is_new(span, step):
                    fresh[place] = span, step
        return fresh

    def _take(self, leases: SessionLeases, read: Sequence[Read]) -> dict[SpanId, str]:
        """Takes the sessions of a batch, as others left them; returns the session of each span."""
        traces: dict[str, int] = {}
        spans: dict[str, list[SpanId]] = {}
        with _storing():
            homes = self._homes(leases, read)
            for place, session in homes.items():
                spans.setdefault(session, []).append(place)
                traces[session] = place[0]
            for session, taken in leases.take(spans).items():
                self._resume(session, taken, traces.get(session, 0))
                for place in spans[session]:
                    # What is stored, or still waits to be, counts; not what this worker saw.
                    self._seen.pop(place, None)
                for place, annotation in taken.known.items():
                    self._seen[place] = None
                    if annotation is not None:
                        self._decided[place] = annotation
        # Not before: taking a session may forget what was known of it.
        for (trace_id, _), session in homes.items():
            self._bind(trace_id, session)
        return homes

    def _resume(self, session: str, taken: Taken, trace_id: int) -> None:
        """Resumes a taken session where others left it."""
        if taken.is_first or taken.is_new:
            change = "taken" if taken.is_first else "taken_over"
            self._metrics.add(semconv.METRIC_SERVER_LEASES, 1, change)
        calls: list[OpenCall] = []
        waiting: list[Sequence[Any]] = []
        with swallow(self.guard.faults, "server"):
            calls, waiting = unpacked(taken.calls)
        trace_id = trace_id or next((call.span.trace_id for call in calls), 0)
        if taken.is_new:
            self._forget(session)
        if taken.is_new or (not taken.is_first and self.guard.flag_of(session) is None):
            self.guard.recall(session, trace_id)
            if (flag := self.guard.flag_of(session)) is not None and flag.raised:
                # A person may have let it go on since: no step has written that down.
                self.guard.adopt(session)
        unsent: list[tuple[LogRecord, str]] = []
        for decision_id, written in taken.unsent.items():
            record = attempt(self.guard.faults, "server", LogRecord.FromString, written)
            if record is not None:
                unsent.append((record, decision_id))
        # Redis keeps no order of them.
        for record, decision_id in sorted(unsent, key=lambda one: one[0].time_unix_nano):
            self.log.add(record, decision_id, session)
        for call in calls:
            self._bind(call.span.trace_id, session)
        self._calls.open(session, calls)
        self.guard.resume_rounds(session, waiting)

    def _bind(self, trace_id: int, session: str) -> None:
        if session != f"{trace_id:032x}" and self.guard.flag_of(trace_id) is None:
            self.guard.bind(trace_id, session)

    def _watch(self, leases: SessionLeases) -> None:
        """Takes over sessions whose worker is gone while a call was open."""
        with _storing():
            found = leases.watch(self._calls)
            for session, taken in leases.take(dict.fromkeys(found, ())).items():
                self._resume(session, taken, 0)
            leases.unwatch(set(found).difference(self._calls))

    def _share_calls(self, session: str) -> None:
        if self._leases is not None:
            self._leases.call(session, self._calls.packed(session))

    def _homes(self, leases: SessionLeases, read: Sequence[Read]) -> dict[SpanId, str]:
        """The session of each span that is a step."""
        named: dict[int, str] = {}
        for span, step in read:
            if step is not None and step.session is not None:
                named.setdefault(span.trace_id, step.session)
        bound = leases.bound({span.trace_id: named.get(span.trace_id) for span, _ in read})
        named = {**bound, **named}
        homes: dict[SpanId, str] = {}
        for span, step in read:
            if step is not None:
                trace = named.get(span.trace_id) or f"{span.trace_id:032x}"
                homes[span.trace_id, span.span_id] = step.session or trace
        return homes

    def _store(self, leases: SessionLeases) -> list[str]:
        """Stores what was judged; returns the sessions that another worker has."""
        self.guard.write_journals()
        made, self._made = self._made, []
        for one in made:
            record = decision_record(one).SerializeToString()
            leases.decided(one.session.key, one.decision.id, record)
            if one.running:
                self._share_calls(one.session.key)
        with _storing():
            tell, lost = leases.commit()
        for decision_id, (session, record) in tell.items():
            self.log.add(LogRecord.FromString(record), decision_id, session)
        self._lose(lost)
        return lost

    def _lose(self, sessions: Sequence[str]) -> None:
        """Forgets sessions that another worker has."""
        self._metrics.add(semconv.METRIC_SERVER_LEASES, len(sessions), "lost")
        for session in sessions:
            self._forget(session)

    def _forget(self, session: str) -> None:
        """Forgets a session that another worker judges, or did: its state here is old."""
        self._calls.end(session)
        self.guard.forget(session)
        if self._leases is not None:
            self._leases.forgotten(session)
        self.log.forget(session)

    def _tick(self) -> None:
        self.ticked = time.monotonic()
        self.guard.listen()
        self.lateness.log.tick()
        at = now()
        if self._leases is not None:
            try:
                with _storing():
                    self._leases.ping()
                self._watch(self._leases)
                # Others have these sessions by now: their calls are no stalls here.
                with _storing():
                    self._lose(self._leases.lost(self._calls.due(at)))
            except Busy as error:
                self.store_trouble = error.logged
                raise  # whose calls they are is not known now
            self.store_trouble = ""
        self.guard.tick(at)
        if self._leases is not None:
            with suppress(Busy):  # it waits, and is stored with what comes next
                self._store(self._leases)

    def _shutdown(self) -> None:
        self.lateness.log.close()
        self.guard.shutdown()
        if self._leases is not None:
            with suppress(Busy), _storing():
                self._store(self._leases)

    def _leave(self, leases: SessionLeases) -> None:
        with suppress(Busy), _storing():
            leases.abandon(self._calls)
        leases.close()

    def _decide(self, made: DecisionRecord) -> None:
        if self._leases is not None:
            self._made.append(made)
        else:
            self.log.add(decision_record(made), made.decision.id)

    def _report(self, event: Event) -> None:
        self.log.add(event_record(event))

    def _is_new(self, span: RecordedSpan, step: Step | None) -> bool:
        """True unless the call of a span came by a log record before, or the reverse.

        Two of one trace are merged later: each may know what the other lacks.
        """
        if step is None or step.session is None or step.call_id is None:
            return True
        call = (step.session, step.call_id)
        from_log = EVENT in span.attributes
        first, trace_id = self._first_seen.setdefault(call, (from_log, span.trace_id))
        return first is from_log or trace_id == span.trace_id


@contextmanager
def _storing() -> Generator[None]:
    try:
        yield
    except StoreError as error:
        raise Busy("the store does not answer", "store", str(error)) from error
