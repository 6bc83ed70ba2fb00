"""Leases of sessions in Redis: of several servers, one judges a session at a time."""

from __future__ import annotations

import json
import secrets
import time
from collections import OrderedDict
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import LogOnce
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.tables import read_parts
from otel_loopguard.engine import Annotation, Written, append_script
from otel_loopguard.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from otel_loopguard.engine import RedisStore


SpanId = tuple[int, int]
"""Trace and span id."""
_Of = TypeVar("_Of")
_Call = tuple["Sequence[str]", "Sequence[object]"]
"""Keys and arguments of a script."""

# Twice as long as exporters of the Collector try again by default.
_KEPT_MS: Final = 600_000
# Judged spans of a session that are known in that time: 17 a second, 24 bytes each.
_SPANS: Final = 10_000
# Decisions of a session: far more than a run has before it is stopped; about 1 kB each until sent.
_DECISIONS: Final = 1_000
_NAMES: Final = ("lease", "spans", "notes", "made", "outbox")
# Past any pause of a worker, and before `step_timeout_s` is over: a stall is told in time.
_WATCHED_S: Final = 30.0
# Of a worker that is gone the others each get a part of its sessions.
_AT_ONCE: Final = 100
# Lua's `unpack` takes 8,000 values at most, and Redis answers nobody while a script runs.
_NAMES_AT_ONCE: Final = 1_000
_UNCHANGED: Final = b"="

_SCRIPTS: Final = read_parts(__name__, "leases.lua")
_COMMIT: Final = (
    f"local function append(KEYS, ARGV)\n{append_script()}\nend\n"
    f"local most_spans, most_decisions = {_SPANS}, {_DECISIONS}\n" + _SCRIPTS["commit"]
)


class Taken(NamedTuple):
    """A session that this worker took."""

    is_first: bool  # nobody had it before
    is_new: bool  # another worker had it, and may have judged more
    known: dict[SpanId, Annotation | None]  # spans that were judged before, with what is on them
    unsent: dict[str, bytes]  # decisions of another worker that were not sent, by id
    calls: bytes = b""  # open calls that another worker watched


@dataclass(slots=True)
class _Held:
    """Unsaved changes of one session."""

    number: int = 0
    spans: dict[SpanId, Annotation | None] = field(
        default_factory=dict[SpanId, "Annotation | None"]
    )
    decisions: dict[str, bytes] = field(default_factory=dict[str, bytes])
    entries: list[Written] = field(default_factory=list["Written"])
    calls: bytes | None = None  # None: as they are stored

    @property
    def waits(self) -> bool:
        return bool(self.spans or self.decisions or self.entries or self.calls is not None)


class SessionLeases:
    """The sessions that one worker holds, and the store of their journals.

    Who gets spans of a session takes its lease, at once and with a higher number; who had it before
    learns of that when it stores, for what comes with a lower number is refused. Journal, spans,
    decisions and open calls of one session are stored in one step. All but `submit` blocks: called
    on the thread that judges.

    A session of which the store refuses something, as one of its keys is somebody else's, goes on
    without it: what is noted of it is dropped, and this worker alone has it.

    Of a session whose call hangs nothing more comes, so nobody would take it over from a worker
    that died: others look for such sessions.

    Args:
        store: The store that all workers share.
        most: Sessions that are remembered at once.
        ttl_s: Seconds a lease is kept; as long as the journal.
        watched_s: Seconds without a sign of a worker after which others watch its open calls.

    Attributes:
        answered: Called after each call of the store with its name, its seconds and its trouble.
    """

    def __init__(
        self, store: RedisStore, most: int, ttl_s: float, watched_s: float = _WATCHED_S
    ) -> None:
        self._store = store
        self._most = most
        self._ttl_ms = max(1, int(ttl_s * 1000))
        self._owner = secrets.token_hex(8)
        self._lock = new_lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        # Those that may have something to store, so that not all are looked at.
        self._changed: dict[str, None] = {}
        self._of_trace: BoundedDict[int, str] = BoundedDict(4 * most)
        self._watched_s = watched_s
        self._watched_at = -watched_s
        self._watching = store.keys.value("server", "open_calls")
        self._log_once = LogOnce("store")
        self.answered: Callable[[str, float, str], object] | None = None

    def submit(self, session: str, entries: Sequence[Written]) -> None:
        """Adds entries of a journal, for the next `commit`."""
        with self._lock:
            self._change(session).entries.extend(entries)

    def ping(self) -> None:
        """Raises `StoreError` if the store does not answer, or accepts no writes."""
        with self._timed("ping"):
            self._store.ping()

    def journal(self, session: str, after: str | None = None) -> list[Written]:
        """The stored journal of a session."""
        with self._timed("journal"):
            return self._store.journal(session, after)

    def bound(self, traces: Mapping[int, str | None]) -> dict[int, str]:
        """Returns the sessions of traces whose spans do not name them, as other workers know them.

        Args:
            traces: The session of each trace, if known here; shared with the other workers.
        """
        known = self._of_trace
        for trace_id, session in traces.items():
            if session is not None and known.get(trace_id) not in (None, session):
                known[trace_id] = session
        asked = [trace_id for trace_id in traces if known.get(trace_id) is None]
        calls = {
            trace_id: (
                self._store.keys.session(f"{trace_id:032x}", "session"),
                [(traces[trace_id] or "").encode("utf-8", "surrogatepass"), self._ttl_ms],
            )
            for trace_id in asked
        }
        for trace_id, found in self._run("bind", _SCRIPTS["bind"], calls).items():
            if found is not None:
                known[trace_id] = found.decode("utf-8", "surrogatepass")
        return {trace_id: known[trace_id] for trace_id in traces if known.get(trace_id) is not None}

    def take(self, spans: Mapping[str, Sequence[SpanId]]) -> dict[str, Taken]:
        """Takes the leases of sessions, or renews them; raises `StoreError`.

        Args:
            spans: The spans that came, by session.
        """
        with self._lock:
            held = {session: self._of(session) for session in spans}
        calls = {
            session: (
                self._store.keys.session(session, *_NAMES),
                [self._owner, one.number, self._ttl_ms, *map(_member, spans[session])],
            )
            for session, one in held.items()
        }
        taken: dict[str, Taken] = {}
        for session, answer in self._run("take", _SCRIPTS["take"], calls).items():
            number, is_new, notes, unsent, open_ = answer
            one = held[session]
            with self._lock:
                if is_new:
                    # Others do not go on from what was judged under an old number.
                    self._held[session] = _Held(number)
                else:
                    one.number = number
                known = {} if is_new else dict(one.spans)
            for span, note in zip(spans[session], notes, strict=True):
                if note is not None:
                    known[span] = _annotation(note)
            pairs = zip(unsent[::2], unsent[1::2], strict=True)
            taken[session] = Taken(
                is_new == 1 and number == 1,
                is_new == 1 and number > 1,
                known,
                {name.decode("utf-8", "replace"): record for name, record in pairs},
                open_ or b"",
            )
        return taken

    def judged(self, session: str, span: SpanId, annotation: Annotation | None) -> None:
        """Notes a judged span; once stored, it counts no second time."""
        with self._lock:
            self._change(session).spans[span] = annotation

    def decided(self, session: str, decision_id: str, record: bytes) -> None:
        """Notes a decision; `record` is for the next hop."""
        with self._lock:
            self._change(session).decisions[decision_id] = record

    def call(self, session: str, calls: bytes) -> None:
        """Notes the open calls of a session, for the worker that takes it over."""
        with self._lock:
            self._change(session).calls = calls

    def commit(self) -> tuple[dict[str, tuple[str, bytes]], list[str]]:
        """Stores what waits. After a `StoreError` it waits on.

        Returns:
            The decisions to send to the next hop, by id with their session and record, and the
            sessions that another worker has: nothing of them was stored.
        """
        with self._lock:
            without = [key for key, one in self._waiting().items() if not one.number]
        lost = self._begin(without)
        with self._lock:
            waiting = {key: one for key, one in self._waiting().items() if key not in lost}
        # First this: watching a session in vain is harmless.
        self._watch((key for key, one in waiting.items() if one.calls), self._watched_s)
        calls = {
            session: self._commit(session, one) for session, one in waiting.items() if one.number
        }
        answers = self._run("commit", _COMMIT, calls)
        tell: dict[str, tuple[str, bytes]] = {}
        over: list[str] = []
        for session, one in waiting.items():
            # What was refused is stored nowhere, and nobody else sends its decisions.
            unsent = answers.get(session, [1] * len(one.decisions))
            if unsent == -1:
                lost.append(session)
                continue
            for (name, record), open_ in zip(one.decisions.items(), unsent, strict=True):
                if open_:
                    tell[name] = session, record
            with self._lock:
                if one.calls == b"":
                    over.append(session)
                one.spans.clear()
                one.decisions.clear()
                one.entries.clear()
                one.calls = None
                self._changed.pop(session, None)
        self.unwatch(over)
        return tell, lost

    def lost(self, sessions: Iterable[str]) -> list[str]:
        """Returns those of some sessions that another worker has by now; raises `StoreError`."""
        with self._lock:
            numbers = {session: self._of(session).number for session in sessions}
        held = {session: number for session, number in numbers.items() if number}
        calls = {session: (self._store.keys.session(session, "lease"), ()) for session in held}
        script = "return redis.call('HMGET', KEYS[1], 'owner', 'number')"
        mine = self._owner.encode()
        return [
            session
            for session, (owner, now) in self._run("lost", script, calls).items()
            if now is not None and (owner, int(now)) != (mine, held[session])
        ]

    def watch(self, sessions: Iterable[str]) -> list[str]:
        """Renews, now and then, that this worker watches the open calls of sessions.

        Returns:
            Some of the sessions that nobody watches any more.
        """
        now = time.monotonic()
        since = now - self._watched_at
        if since < self._watched_s / 6:
            return []
        self._watch(sessions, self._watched_s)
        self._watched_at = now
        if since > self._watched_s:
            return []  # who was away itself, as at the start, lets the others come back first
        values = [int(self._watched_s * 1000), _AT_ONCE]
        found = self._run("watch", _SCRIPTS["abandoned"], {0: ([self._watching], values)})
        return [session.decode("utf-8", "surrogatepass") for session in found.get(0, ())]

    def unwatch(self, sessions: Iterable[str]) -> None:
        """No call of these sessions is open."""
        self._on_watch("return redis.call('ZREM', KEYS[1], unpack(ARGV))", [], sessions)

    def abandon(self, sessions: Iterable[str]) -> None:
        """Stops watching these sessions: others may at once."""
        self._watch(sessions, 0)

    def _watch(self, sessions: Iterable[str], for_s: float) -> None:
        self._on_watch(_SCRIPTS["watch"], [self._ttl_ms, int(for_s * 1000)], sessions)

    def _on_watch(self, script: str, values: list[object], sessions: Iterable[str]) -> None:
        names = [session.encode("utf-8", "surrogatepass") for session in sessions]
        calls = {
            begin: ([self._watching], [*values, *names[begin : begin + _NAMES_AT_ONCE]])
            for begin in range(0, len(names), _NAMES_AT_ONCE)
        }
        self._run("watch", script, calls)

    def sent(self, decisions: Mapping[str, Iterable[str]]) -> None:
        """Notes that the next hop has these decisions, by session."""
        calls = {
            session: (self._store.keys.session(session, "outbox"), list(names))
            for session, names in decisions.items()
        }
        self._run("sent", "return redis.call('HDEL', KEYS[1], unpack(ARGV))", calls)

    def forgotten(self, session: str) -> None:
        """Drops what waits of a session that another worker judges, or did."""
        with self._lock:
            held = self._held.pop(session, None)
            if held is not None:
                self._held[session] = _Held(held.number)

    def close(self) -> None:
        """Closes the connections to the store."""
        self._store.close()

    def _run(self, operation: str, script: str, calls: Mapping[_Of, _Call]) -> dict[_Of, Any]:
        """The answers to the calls of a script, each by what it is of; of a refused one none."""
        if not calls:
            return {}
        with self._timed(operation) as refused:
            answers = self._store.connection.run_all(script, [*calls.values()])
            found: dict[_Of, Any] = {}
            for one, answer in zip(calls, answers, strict=True):
                if isinstance(answer, StoreError):
                    refused.append(answer)
                    # A script does not say which of its keys it is.
                    what = "it, or another key of its session, is left as it is and goes unused"
                    self._log_once.log(calls[one][0][0], f"{answer}; {what}")
                else:
                    found[one] = answer
        return found

    @contextmanager
    def _timed(self, operation: str) -> Generator[list[StoreError]]:
        """Counts a call of the store; yields a list for what it refused."""
        began, trouble, refused = time.monotonic(), "", list[StoreError]()
        try:
            yield refused
        except StoreError as error:
            trouble = error.reason
            raise
        finally:
            if self.answered is not None:
                trouble = trouble or ("refused" if refused else "")
                self.answered(operation, time.monotonic() - began, trouble)

    def _begin(self, sessions: Sequence[str]) -> list[str]:
        """Takes leases for sessions that have none yet; returns those that others have."""
        calls = {
            session: (self._store.keys.session(session, *_NAMES), [self._owner, 0, self._ttl_ms])
            for session in sessions
        }
        answers = self._run("take", _SCRIPTS["take"], calls)
        with self._lock:
            for session, (number, *_) in answers.items():
                self._of(session).number = number
        return [session for session, (number, *_) in answers.items() if number > 1]

    def _commit(self, session: str, one: _Held) -> tuple[list[str], list[object]]:
        keys = [*self._store.keys.session(session, *_NAMES), *self._store.keys.journal(session)]
        values: list[object] = [
            self._owner, one.number, self._ttl_ms, _KEPT_MS, len(one.spans), len(one.decisions),
            _UNCHANGED if one.calls is None else one.calls,
        ]  # fmt: skip
        for span, annotation in one.spans.items():
            values += (_member(span), _note(annotation))
        for name, record in one.decisions.items():
            values += (name, record)
        return keys, [*values, *self._store.packed(one.entries)]

    def _change(self, session: str) -> _Held:
        """The record of a session, to change. The lock is held."""
        self._changed[session] = None
        return self._of(session)

    def _waiting(self) -> dict[str, _Held]:
        """Unsaved changes by session. The lock is held."""
        found = {key: one for key in self._changed if (one := self._held.get(key)) and one.waits}
        self._changed = dict.fromkeys(found)
        return found

    def _of(self, session: str) -> _Held:
        """The record of a session. The lock is held."""
        one = self._held.get(session)
        if one is None:
            while len(self._held) >= self._most:
                oldest = next((key for key, each in self._held.items() if not each.waits), None)
                if oldest is None:
                    break
                del self._held[oldest]
            one = self._held[session] = _Held()
        else:
            self._held.move_to_end(session)
        return one


def _member(span: SpanId) -> bytes:
    trace_id, span_id = span
    return trace_id.to_bytes(16, "big") + span_id.to_bytes(8, "big")


def _note(annotation: Annotation | None) -> bytes:
    if annotation is None:
        return b""
    return json.dumps([dict(annotation.attributes), annotation.error, annotation.links]).encode()


def _annotation(note: bytes) -> Annotation | None:
    # Without its note a span counts as judged all the same.
    with suppress(ValueError, TypeError):
        attributes, error, links = json.loads(note or b"[]")
        return Annotation(attributes, error, tuple((trace, span) for trace, span in links))
    return None
