"""The session that the OpenTelemetry context names, and the flag that belongs to it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from opentelemetry import context as otel_context
from opentelemetry import trace

from otel_loopguard._control.flag import STOPPING, Flag, asks, board_of, declare, plan_of
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.bounded import BoundedDict, WeakList
from otel_loopguard._util.clock import off
from otel_loopguard._util.errors import InternalErrors, attempt, warn_blind
from otel_loopguard._util.text import named
from otel_loopguard._util.worker import Callbacks

if TYPE_CHECKING:
    from otel_loopguard.core import Remaining
    from otel_loopguard.core.admission import Admission, Objection
    from otel_loopguard.core.report import AgentCycle, Context, Escalation, Happening, Report, Topic
    from otel_loopguard.core.task import Task
    from otel_loopguard.policy.explain import Explanation
    from otel_loopguard.settings import Settings

_CONFIG: Final = "langchain_core.runnables.config"
_OPENINFERENCE: Final = "openinference.instrumentation.langchain"
_ADAPTER: Final = "otel_loopguard.integrations.langchain"
_KEYS: Final = ("session_id", "conversation_id", "thread_id")
"""Keys under which the instrumentations of LangChain look for a session, first found wins."""
_faults: Final = InternalErrors()


class CurrentCall(NamedTuple):
    """A call of a tool that is under way; what is known of it is a JSON value or text."""

    tool: str
    args: object
    outcome: object = None


_call: ContextVar[CurrentCall | None] = ContextVar("loopguard-call-now", default=None)


current_call: Callable[[], CurrentCall | None] = _call.get
"""Returns the tool call of this context; None if no adapter set one."""


def set_current_call(call: CurrentCall | None) -> CurrentCall | None:
    """Sets the tool call of this context; returns the previous one."""
    before = _call.get()
    _call.set(call)
    return before


def places_around() -> Iterator[str | int]:
    """Yields the places of the LangChain or LangGraph run around this, if there is one."""
    # Looked up, not imported: an application that uses one of them has imported it.
    module = sys.modules.get(_CONFIG)
    variable = None if module is None else getattr(module, "var_child_runnable_config", None)
    config = None if variable is None else variable.get(None)
    if not isinstance(config, Mapping):
        return
    key = _key(cast("Mapping[str, Any]", config))
    if key is not None:
        yield key
    for name, find in ((_OPENINFERENCE, _trace), (_ADAPTER, methodcaller("session_around"))):
        module = sys.modules.get(name)
        place = None if module is None else attempt(_faults, "around", find, module)
        if place is not None:
            yield place


def _key(config: Mapping[str, Any]) -> str | None:
    for part in ("metadata", "configurable"):
        found = config.get(part)
        if isinstance(found, Mapping):
            known = cast("Mapping[str, object]", found)
            key = next((known[name] for name in _KEYS if known.get(name)), None)
            if isinstance(key, (str, int)):
                return str(key)
    return None


def _trace(module: Any) -> int | None:
    if not module.LangChainInstrumentor().is_instrumented_by_opentelemetry:
        return None
    span = module.get_current_span()
    context = None if span is None else span.get_span_context()
    return context.trace_id if context is not None and context.is_valid else None


_KEY = otel_context.create_key("loopguard-session")
_used = False


class SessionHandle(Protocol):
    """A session of a guard, for its application; `guard.queries` has the implementation."""

    @property
    def guard(self) -> Guard: ...
    @property
    def key(self) -> str: ...
    @property
    def flag(self) -> Flag: ...
    @property
    def steps(self) -> int: ...
    def report(self) -> Report: ...
    def wait_advice(self) -> float: ...
    def remaining(self) -> Remaining: ...
    def explain(self) -> Explanation: ...
    @property
    def allowed(self) -> frozenset[int] | None: ...
    def allow(self, scope: Literal["call", "session"], by: str) -> str: ...
    def escalate(self, reason: str, *, hold: bool) -> str | None: ...
    def denied_by(
        self, tool: str, args: object, *, span_id: int, agent: str | None
    ) -> str | None: ...
    def cycles(self) -> tuple[AgentCycle, ...]: ...
    def context(self) -> Context: ...
    def remember(self, topic: Topic, text: str) -> None: ...
    def compacted(self) -> None: ...
    def happened(self, what: Happening, times: int = 1) -> None: ...
    def saved(self) -> object: ...
    def restore(self, saved: object) -> None: ...


class Guard(Protocol):
    """Answers applications for a guard; `guard.queries` has the implementation."""

    @property
    def settings(self) -> Settings: ...
    @property
    def sees_steps(self) -> bool: ...
    @property
    def sees_calls(self) -> bool: ...
    def find(self, place: str | int) -> SessionHandle | None: ...
    def happened(self, what: Happening, times: int = 1) -> None: ...
    @property
    def admissions(self) -> Any: ...  # as `execution` has them, which stands above
    @property
    def resilience(self) -> Any: ...  # of `resilience`, likewise
    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool: ...
    def admit(
        self,
        tasks: Sequence[Task],
        *,
        session: str | None,
        span_id: int,
        user: str,
        parallel: bool | None,
    ) -> Admission: ...
    def objection(
        self, tool: str, args: object, *, session: str | None, span_id: int
    ) -> Objection | None: ...
    def limit_s(self, tool: str, args: object) -> float: ...
    def tell(self, span_id: int, args: object, outcome: object) -> None: ...
    def next_run(self, session: str | None, trace_id: int, span_id: int) -> None: ...


_guards: Final[WeakList[Guard]] = WeakList()
DECISIONS: Final = Callbacks("on_decision")
ESCALATIONS: Final = Callbacks("on_escalation")


class EscalationBackend(Protocol):
    """The escalations of one guard."""

    def answer(self, escalation_id: str, said: Mapping[str, object]) -> bool: ...
    def open_escalations(self) -> list[Escalation]: ...


BACKENDS: Final[WeakList[EscalationBackend]] = WeakList()
"""The escalations of the guards of this process."""


def register_guard(guard: Guard) -> None:
    """Registers a guard for `live_guards`; it is held weakly."""
    _guards.add(guard)


def unregister_guard(guard: Guard) -> None:
    """Unregisters a guard."""
    _guards.remove(guard)


def newest_guard() -> Guard | None:
    """Returns the guard of this process that was made last."""
    return next(reversed(list(_guards)), None)


def live_guards() -> list[Guard]:
    """Returns all guards of this process; everything that ended by now is judged."""
    settle_all()
    return [guard for guard in _guards if not off(guard)]


_LONGEST_KEY: Final = 1_000
"""Characters of a key; of a caller's id an application may make one, and there are thousands."""
_BEGINNING: Final = 100


def session_key(given: str) -> str:
    """The key of a session as guards keep it: of a longer one the beginning, and a digest."""
    if len(given) <= _LONGEST_KEY:
        return given
    digest = hashlib.blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{given[:_BEGINNING]}~{digest}"


def sessions_at(place: str | int) -> list[SessionHandle]:
    """Returns a session, by its key or a trace id, as each guard knows it.

    The one whose action is strongest comes first, of equal ones that of the newest guard: it
    answers for all of them.
    """
    found = [one for guard in reversed(live_guards()) if (one := guard.find(place)) is not None]
    if len(found) > 1:
        found.sort(key=lambda one: one.flag.control.action.rank, reverse=True)
    return found


def session_at(place: str | int | None) -> SessionHandle | None:
    """Returns a session by its key or a trace id; None if no guard knows it."""
    return next(iter(sessions_at(place)), None) if place is not None and _guards else None


def known_session(key: str | None = None) -> SessionHandle | None:
    """Returns the session with a key; without one that of the current context."""
    return next(iter(known_sessions(key)), None)


def known_sessions(key: str | None) -> list[SessionHandle]:
    """Returns the session with a key, or that of the current context, as each guard knows it."""
    for place in () if not _guards else current_places() if key is None else (key,):
        if found := sessions_at(place):
            return found
    return []


def flag_at(place: str | int | None) -> Flag | None:
    """Returns the flag of a session, by its key or a trace id; None if no guard knows it."""
    found = session_at(place)
    return None if found is None else found.flag


def current_flag() -> Flag | None:
    """Returns the flag of the session of the current context; None if there is none."""
    found = known_session()
    return None if found is None else found.flag


def guard_of(found: SessionHandle | None) -> Guard | None:
    """Returns the guard of a session; without one the newest guard, if there is any."""
    return found.guard if found is not None else next(reversed(live_guards()), None)


def current_guard() -> Guard | None:
    """Returns the guard of the current context's session; without one as `guard_of`."""
    return guard_of(known_session())


_BLOCK: Final = otel_context.create_key("loopguard-block")


class Entered:
    """The context of a block, which is left when the block ends, wherever that is.

    It is not left by a token: a generator may end in another context than it began in, and before
    a block that began after it.

    Args:
        context: The context, made of the current one.
    """

    __slots__ = ("before", "context", "ended")

    def __init__(self, context: otel_context.Context) -> None:
        self.before = otel_context.get_current()
        self.ended = False
        self.context = otel_context.set_value(_BLOCK, self, context)
        otel_context.attach(self.context)

    def leave(self) -> None:
        """Restores the context before the block, past blocks that have ended since."""
        self.ended = True
        if otel_context.get_current() is self.context:
            self.leave_ended()

    @staticmethod
    def leave_ended() -> None:
        """Leaves blocks that ended in another context: nothing new belongs to them."""
        context = now = otel_context.get_current()
        while isinstance(block := context.get(_BLOCK), Entered):
            if not block.ended or block.context is not context:
                break
            context = block.before
        if context is not now:
            otel_context.attach(context)


@contextmanager
def session(key: str, tasks: object = None) -> Generator[str, None, None]:
    """Names the session of everything inside the block, overriding the spans.

    It lives in the OTel context: asyncio tasks and `copy_context()` inherit it, a bare thread does
    not. Use it where no span is current (LangChain under OpenInference), or where several traces
    are one run.

    ::

        with otel_loopguard.session("run-42"):
            agent.run(...)

    Args:
        key: Key of the session; any text that is not empty. Of more than 1,000 characters the
            first 100 count, and a digest.
        tasks: Plan of the session: its tasks, as `plans.read` takes them, 1 to 1000. The guard
            counts them by the steps that name them, and pauses the session when what is left cannot
            succeed; see docs/resilience.md. In place of the milestones and the plan before.

    Yields:
        The key, as the guard keeps it.

    Raises:
        ValueError: The key is empty or not a string.
        PlanError: The plan is not sound; the error has everything that is wrong with it.
    """
    key = session_key(named("key of a session", key))
    if tasks is not None:
        plan = plan_of(tasks)
        for board in [found.flag.milestones for found in sessions_at(key)] or [board_of(key)]:
            declare(board, plan)
    Entered.leave_ended()
    entered = Entered(naming(key))
    try:
        yield key
    finally:
        entered.leave()


def naming(key: str, context: otel_context.Context | None = None) -> otel_context.Context:
    """A context (default: the current one) in which a session is named."""
    global _used  # noqa: PLW0603
    _used = True
    return otel_context.set_value(_KEY, session_key(key), context)


def named_session(context: otel_context.Context | None = None) -> str | None:
    """The session that `session()` named in this context (default: the current one), or None."""
    if not _used:
        return None
    found = otel_context.get_value(_KEY, context)
    return found if isinstance(found, str) else None


def current_places() -> Iterator[str | int]:
    """The places of the current context: the key of a session, or the id of a trace."""
    key = named_session()
    if key is not None:
        yield key
        return
    yield from places_around()
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        yield span.trace_id


def trace_key() -> str | None:
    """The trace of the current span, as a session has it for its key."""
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}" if span.is_valid else None


# A setup that is late is there by the fifth step; by the thirtieth a loop has made some call.
_UNGUARDED: Final = 5
_BLIND: Final = 30
_LOOKS: Final = 16
"""Every so many questions look at the span, which costs as much as the question."""
_EARLY: Final = 256
"""Runs that have asked before their first call; a process has fewer at a time."""


class Questions:
    """Counts the questions of agents' loops, and warns once if they cannot be answered."""

    def __init__(self) -> None:
        self._asked = 0
        self._calls = 0
        self._placed = False
        self._settled = False
        # By the key of the run around, the questions before anything was known of it.
        self._early: BoundedDict[str, int] = BoundedDict(_EARLY)

    def count(self) -> None:
        """Counts a question; warns where it cannot be answered."""
        asks()
        if off():
            return
        self._asked += 1
        if not self._asked % _LOOKS and _is_dropped(trace.get_current_span()):
            warn_blind("unsampled")
        if self._settled:
            return
        self._placed = self._placed or any(True for _ in current_places())
        # The adapter of a framework makes the guard only when its first run begins.
        if self._asked >= _UNGUARDED and not _guards:
            self._settled = True
            warn_blind("no_guard", _UNGUARDED)
        elif self._asked >= _BLIND:
            self._settled = True
            if not any(guard.sees_steps for guard in _guards):
                warn_blind("no_steps", _BLIND)
            elif not self._placed and any(guard.settings.enabled for guard in _guards):
                warn_blind("no_session", _BLIND)

    def may_wait(self, place: str | int) -> bool:
        """True if a session that is not known yet may be known by its first call."""
        if isinstance(place, int):
            return True  # its trace identifies it
        asked = self._early[place] = self._early.get(place, 0) + 1
        return asked < _BLIND

    def count_call(self) -> None:
        """Counts a call that a loop asked about; warns if none is ever seen to be made."""
        self._calls += 1
        if self._calls != _BLIND or off() or not any(guard.sees_steps for guard in _guards):
            return  # where nothing at all is seen, `count` tells
        if not any(guard.sees_calls for guard in _guards):
            warn_blind("no_calls", _BLIND)


def _is_dropped(span: trace.Span) -> bool:
    """True if the sampler dropped the span of a loop, and no guard knows of its session."""
    place = span.get_span_context()
    ours = place.is_valid and not place.is_remote and not span.is_recording()
    return ours and any(guard.settings.enabled for guard in _guards) and known_session() is None


questions: Final = Questions()


def asked_session() -> SessionHandle | None:
    """As `known_session`, for a loop's question: warns if no session is known."""
    questions.count()
    found = known_session()
    if found is not None or not STOPPING or named_session() is not None:
        return found
    if not any(questions.may_wait(place) for place in current_places()):
        warn_blind("no_session_asked")
    return None


def happened(what: Happening, times: int = 1) -> None:
    """Counts something in the run of the current context; without one in the metrics only."""
    # Each guard has metrics of its own.
    for one in known_sessions(None) or live_guards()[-1:]:
        one.happened(what, times)
