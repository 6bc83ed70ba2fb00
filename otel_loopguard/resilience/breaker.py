"""Circuit breakers: those that code names, and those of hosts and calls that fail."""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

import orjson

from otel_loopguard._control.context import current_flag
from otel_loopguard._control.flag import note_refusal
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import Log, logger
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import StrEnum
from otel_loopguard._util.worker import suppress_instrumentation
from otel_loopguard.core.evidence import ErrorClass, exception_class
from otel_loopguard.errors import BreakerOpenError, StoreError
from otel_loopguard.evidence import is_runner
from otel_loopguard.evidence.normalize import as_data, canonical, parsed, text_bytes

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Writer


class BreakerState(StrEnum):
    """State of a breaker: all calls pass, none, or one trial."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class BreakerStatus(NamedTuple):
    """The state of a breaker at a moment.

    Attributes:
        state: Whether calls pass.
        failures: Failures in a row that counted.
        until: End of the time that it is open, nanoseconds since the epoch; 0 if it is closed.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    until: int = 0


@dataclass(slots=True)
class Breaker:
    """One breaker, or what another process knows of it. Times are nanoseconds since the epoch."""

    name: str = ""  # of the tool or agent
    failures: int = 0  # in a row, that counted
    until: int = 0  # end of the time that it is open; 0 if it is closed
    changed: int = 0  # when it was opened or closed last; 0 if it never was
    trial: int = 0  # until when the trial that is under way may take; 0 if none is

    def state(self, now: int) -> BreakerState:
        """State at `now`."""
        if not self.until:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.until else BreakerState.HALF_OPEN

    def failed(self, now: int, most: int, longest_ns: int, first_ns: int | None = None) -> bool:
        """Counts a failure; whether it opened (again). While it is open nothing changes.

        It opens for `longest_ns`; where `first_ns` is given, for that the first time, and for twice
        as long with each failure after it.
        """
        state = self.state(now)
        if state is BreakerState.OPEN:
            return False
        self.failures += 1
        if state is BreakerState.CLOSED and self.failures < most:
            return False
        open_ns = longest_ns
        if first_ns is not None:
            again = min(max(self.failures - most, 0), _DOUBLED)
            open_ns = min(first_ns << again, longest_ns)
        self._change(now, now + open_ns)
        return True

    def succeeded(self, now: int) -> bool:
        """Counts a success; whether that closed it. Also while it is open: the tool works."""
        self.failures = 0
        if not self.until:
            return False
        self._change(now, 0)
        return True

    def learn(self, other: Breaker, latest: int) -> None:
        """Applies what another process knows."""
        self.failures, self.changed, self.trial = other.failures, other.changed, 0
        self.until = min(other.until, latest)

    def _change(self, now: int, until: int) -> None:
        self.until, self.trial = until, 0
        # Later than what it follows, also where another process' clock is ahead.
        self.changed = max(now, self.changed + 1)


_KIND: Final = "breaker"
_RECORD: Final = ("failures", "until", "at")
"""Names of what processes share of a breaker; of two records the later one holds."""
# Breakers that are kept, the newest that failed: a process calls fewer tools and hosts.
_BREAKERS: Final = 1024
# Seconds that a breaker fed by spans is open first. A limit of requests or a restart is over in
# seconds; doubled six times it is `breaker_open_s`.
_FIRST_S: Final = 5.0
# Seconds after which a trial without outcome is replaced: its caller is gone.
_TRIAL_S: Final = 60.0
# Seconds between looks at what other processes know: a breaker is open for longer than that.
_LOOK_S: Final = 1.0
# Times that a wait is doubled at most: any first one is the longest by then.
_DOUBLED: Final = 32
# Characters of a name; longer ones are cut: a model may make up names of any length.
_LONGEST_NAME: Final = 200
_NEVER: Final = float("inf")
# Characters of an argument that are looked through for an address: a command has it near its start.
_SEARCHED: Final = 10_000


def _read(raw: bytes) -> Breaker | None:
    """A breaker as the store has it; None if it is not one."""
    try:
        found = orjson.loads(raw)
        numbers = [found[name] for name in _RECORD]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return None
    whole = all(type(value) is int and 0 <= value < 2**63 for value in numbers)
    return Breaker("", *numbers) if whole else None


Of = Literal["tool", "agent"]

_NOTHING: Final = BreakerStatus()
_NAMED_KEYS: Final = ("tool:", "agent:")
_HOST_KEY: Final = "host:"
_CALL_KEY: Final = "call:"
_ADDRESS: Final = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,15}://(?:[^\s/@'\"]{1,200}@)?(\[[0-9a-f:.]{2,45}\]|[\w.-]{1,253})(:\d{1,5})?",
    re.IGNORECASE,
)


def host_of(tool: str, arguments: object) -> str | None:
    """Host and port of the address that a call is about; None if it names none, or several.

    An address is looked for where an argument begins, and anywhere in a command.
    """
    texts = (value[:_SEARCHED] for value in _values(arguments) if isinstance(value, str))
    if is_runner(tool):
        matches = [found for text in texts for found in _ADDRESS.finditer(text)]
    else:
        matches = [found for text in texts if (found := _ADDRESS.match(text))]
    hosts = {(found[1] + (found[2] or "")).lower() for found in matches}
    return hosts.pop() if len(hosts) == 1 else None


def _unwrapped(arguments: object) -> object:
    """A single text in place of the map around it, as some instrumentations write it."""
    values = _values(arguments)
    return values[0] if len(values) == 1 and isinstance(values[0], str) else arguments


def _values(arguments: object) -> list[object]:
    named = isinstance(arguments, Mapping)
    return list(cast("Mapping[str, object]", arguments).values()) if named else [arguments]


class Breakers:
    """The breakers of a process. Any thread may call it.

    One that code names (`resilience.breaker("search")`) is shared by all runs: it opens after
    `breaker_failures` (3) failures in a row that count, for `breaker_open_s` (300) seconds. Then
    one call is let through, of all threads and, with a store, of all processes: it closes the
    breaker or opens it again.

    With the setting `breaker` there is one, fed by spans, for each host that a call names by its
    address, and for the exact arguments of calls that name none: what fails is a host or a call,
    and not all of a shell. It opens for 5 seconds first, and twice as long after each further
    failure, up to `breaker_open_s`. `session` keeps runs apart.

    Which errors count says `breaker_errors`: by default only those where trying again may help, for
    three calls with wrong arguments say nothing about a tool that other runs use. Such an error is
    an answer: it starts the count anew. An error of unknown kind neither counts nor starts anew.

    The newest 1024 that have failed are kept. In mode `shadow` they are counted and let all pass.
    """

    def __init__(self, settings: Settings, writer: Writer | None = None, log: Log = logger) -> None:
        self._log = log
        self._settings = settings
        self._writer = writer
        self.watches = settings.breaker != "off"  # spans feed breakers
        self._rule = settings.tuning.resilience
        self._open_ns = int(self._rule.breaker_open_s * 1e9)
        self._shadow = settings.mode == "shadow"
        digest_key = settings.digest_key.get_secret_value()
        self._digest_key = digest_key.encode("utf-8", "surrogatepass")[:64]
        self._breakers: BoundedDict[str, Breaker] = BoundedDict(_BREAKERS)
        # When the store may be asked for a breaker again; infinite for records not understood.
        self._next_look: BoundedDict[str, float] = BoundedDict(_BREAKERS)
        self._lock = new_lock()

    def standing(self, name: str, kind: Of = "tool") -> BreakerStatus:
        """The state of a breaker, from memory. Does not wait, begins no trial."""
        breaker = self._known(_key(name, kind))
        if breaker is None:
            return _NOTHING
        return BreakerStatus(breaker.state(now()), breaker.failures, breaker.until)

    @property
    def all(self) -> list[tuple[str, Of, bool]]:
        """Name, kind, and whether it is open, of every breaker that has failed; from memory."""
        at = now()
        with self._lock:
            known = list(self._breakers.items())
        return [
            (
                breaker.name,
                "agent" if key.startswith("agent:") else "tool",
                breaker.state(at) is BreakerState.OPEN,
            )
            for key, breaker in known
        ]

    def allow(self, name: str, kind: Of = "tool") -> bool:
        """True if a call may be made now. For a breaker that is half-open, this begins the trial.

        With a store it is asked for the trial, which may take as long as the store does.
        """
        key, at = _key(name, kind), now()
        self._look(key)
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None or self._shadow:
                return True
            state = breaker.state(at)
            if state is not BreakerState.HALF_OPEN or at < breaker.trial:
                return state is BreakerState.CLOSED
            breaker.trial = at + int(_TRIAL_S * 1e9)
            opened = breaker.changed
        return not self._shares(key) or self._may_try(key, breaker, opened)

    def check(self, name: str, kind: Of = "tool") -> None:
        """As `allow`, but raises."""
        if not self.allow(name, kind):
            msg = _refusal(self.standing(name, kind), name, kind)
            note_refusal(current_flag(), msg)
            raise BreakerOpenError(msg)

    def open(self, name: str | None, kind: Of) -> str | None:
        """Why no call passes, in a sentence; None if one may. From memory; begins no trial."""
        standing = _NOTHING if name is None else self.standing(name, kind)
        if name is None or standing.state is not BreakerState.OPEN:
            return None
        return _refusal(standing, name, kind)

    def refusal(self, session: str | None, tool: str, args: object) -> str | None:
        """Why a call is not to be made now, in a sentence; None if it may be. From memory."""
        key = self._failing_key(session, tool, args)
        if key is None or self._shadow:
            return None
        breaker = self._known(key)
        if breaker is None or breaker.state(now()) is not BreakerState.OPEN:
            return None
        what = "calls of this host" if key.startswith(_HOST_KEY) else f"this call of {tool!r}"
        return f"{what} failed {breaker.failures} times in a row: {_again_in(breaker.until)}"

    def finished(
        self, session: str, tool: str, args: object, *, error: bool, error_class: ErrorClass
    ) -> None:
        """Counts a call that ended, from its span. Does not wait."""
        key = self._failing_key(session, tool, args)
        if key is None:
            return
        if self._known(key) is not None or error:
            self._ended(key, error_class if error else None, tool)

    def _failing_key(self, session: str | None, tool: str, args: object) -> str | None:
        """Key of what fails when a call does: its host, or the call; None where none is kept."""
        settings = self._settings
        kept = settings.breaker == "shared" or (settings.breaker == "session" and session)
        if not kept or args is None or tool in settings.exempt:
            return None
        arguments = parsed(as_data(args))
        host = host_of(tool, arguments)
        if host is None:
            kind, what = _CALL_KEY, text_bytes(f"{tool}\0") + canonical(_unwrapped(arguments))
        else:
            kind, what = _HOST_KEY, text_bytes(host)
        digest = hashlib.blake2b(key=self._digest_key, digest_size=16)
        digest.update(b"" if settings.breaker == "shared" else text_bytes(f"{session}\0"))
        digest.update(what)
        return kind + digest.hexdigest()

    @contextmanager
    def guarding(self, name: str, kind: Of = "tool") -> Generator[None]:
        """A block that runs if its breaker lets it, and that counts by how it ends."""
        self.check(name, kind)
        try:
            yield
        except BaseException as error:
            self.ended(name, kind, error)
            raise
        self.ended(name, kind, None)

    def ended(self, name: str, kind: Of, error: BaseException | None) -> None:
        """Counts the outcome of a call of a tool or agent. Waits for nothing."""
        key = _key(name, kind)
        if error is None or isinstance(error, Exception):
            self._look(key)
            self._ended(key, None if error is None else exception_class(error), name)
            return
        with self._lock:
            if key in self._breakers:
                self._breakers[key].trial = 0

    def reset(self, name: str, kind: Of = "tool") -> None:
        """Closes a breaker manually, in all processes."""
        self._ended(_key(name, kind), None, name)

    def _ended(self, key: str, error: ErrorClass | None, name: str) -> None:
        first_ns = None if key.startswith(_NAMED_KEYS) else int(_FIRST_S * 1e9)
        at, counts = now(), self._counts(error)
        with self._lock:
            breaker = self._breakers.get(key)
            if breaker is None:
                if not counts:
                    return
                breaker = self._breakers[key] = Breaker(name[:_LONGEST_NAME])
            if counts:
                most = self._rule.breaker_failures
                changed = breaker.failed(at, most, self._open_ns, first_ns)
            elif error is None or self._answers(error, breaker.state(at)):
                changed = breaker.succeeded(at)
            else:
                return
        if changed:
            self._changed(key, name, breaker, at)

    def _counts(self, error: ErrorClass | None) -> bool:
        which = self._rule.breaker_errors
        if error is None or which == "all":
            return error is not None
        if which == "unclear":
            return error is not ErrorClass.DETERMINISTIC
        return error is ErrorClass.TRANSIENT

    @staticmethod
    def _answers(error: ErrorClass, state: BreakerState) -> bool:
        """True if an error that does not count shows that the tool works."""
        if state is BreakerState.CLOSED:
            return error is ErrorClass.DETERMINISTIC
        # It is no outage any more: a trial has to have an outcome.
        return state is BreakerState.HALF_OPEN

    def _changed(self, key: str, name: str, breaker: Breaker, at: int) -> None:
        of = "agent" if key.startswith("agent:") else "tool"
        what = "" if key.startswith(_NAMED_KEYS) else "a host or call of "
        if breaker.until:
            said = "breaker of %s%s %r is open for %.0f s after %d failures in a row"
            self._log.warning(said, what, of, name, (breaker.until - at) / 1e9, breaker.failures)
        else:
            self._log.info("breaker of %s%s %r is closed", what, of, name)
        self._look(key, at_once=True)

    def _shares(self, key: str) -> bool:
        """True if a breaker is exchanged with other processes.

        One fed by spans only where it is declared shared, under a digest that nobody can guess.
        """
        if self._writer is None:
            return False
        declared = self._settings.breaker == "shared" and bool(self._digest_key)
        return declared or key.startswith(_NAMED_KEYS)

    def _known(self, key: str) -> Breaker | None:
        """A breaker from memory, which is compared with the store soon; None if it never failed."""
        self._look(key)
        return self._breakers.get(key)

    def _look(self, key: str, *, at_once: bool = False) -> None:
        """Compares a breaker with the store's record, in the background, once a second."""
        if self._writer is None or not self._shares(key):
            return
        now = time.monotonic()
        with self._lock:
            due = self._next_look.get(key, 0.0)
            if now < due and not (at_once and due < _NEVER):
                return
            self._next_look[key] = now + _LOOK_S
        self._writer.ask(lambda store: store.get(_KIND, key), lambda raw: self._compare(key, raw))

    def _compare(self, key: str, raw: bytes | None) -> None:
        """Learns a newer record from the store, or has ours written there."""
        found = None if raw is None else _read(raw)
        if raw is not None and found is None:
            # An unreadable record is not overwritten.
            if self._next_look.get(key) != _NEVER:
                msg = "the record of breaker %r in the store is not readable: left alone"
                self._log.warning(msg, key)
            with self._lock:
                self._next_look[key] = _NEVER
            return
        with self._lock:
            breaker = self._breakers.get(key)
            own = breaker or Breaker()
            if found is not None and found.changed > own.changed:
                name = key.partition(":")[2] if key.startswith(_NAMED_KEYS) else ""
                breaker = breaker or self._breakers.setdefault(key, Breaker(name))
                # A clock that is wrong shuts nothing for longer than usual.
                breaker.learn(found, now() + self._open_ns)
                return
            record = dict(zip(_RECORD, (own.failures, own.until, own.changed), strict=True))
        if self._writer is not None and own.changed > (0 if found is None else found.changed):
            keep_s = 2 * self._rule.breaker_open_s + _TRIAL_S
            self._writer.put(_KIND, key, orjson.dumps(record), keep_s)

    def _may_try(self, key: str, breaker: Breaker, opened: int) -> bool:
        """True if the one trial of all processes is this one, after a look at what they know.

        Calls the store. If it fails, each process makes a trial of its own: a store that is down
        does not keep a working tool refused.
        """
        store = cast("Writer", self._writer).store
        try:
            with suppress_instrumentation():
                self._compare(key, store.get(_KIND, key))
                if breaker.changed != opened:
                    return breaker.state(now()) is BreakerState.CLOSED
                owner = uuid.uuid4().hex
                return store.claim(_KIND, f"{key}:trial:{opened}", owner, _TRIAL_S)
        except StoreError:
            return True


def _refusal(standing: BreakerStatus, name: str, kind: Of) -> str:
    again = _again_in(standing.until) or "no call passes until the trial has an outcome"
    failed = f"after {standing.failures} failures in a row"
    return f"the breaker of the {kind} {name!r} is {standing.state} {failed}: {again}"


def _again_in(until: int) -> str:
    """When to try again; empty where it may be tried now."""
    left_s = -((now() - until) // 1_000_000_000)
    return f"try again in {left_s} s" if left_s > 0 else ""


def _key(name: str, kind: Of) -> str:
    if kind not in ("tool", "agent"):
        raise ValueError(f"kind of a breaker must be tool or agent, got {kind!r:.100}")
    return f"{kind}:{name[:_LONGEST_NAME]}"
