"""Questions of an agent's own loop, actions of people on a session, and refusals of calls."""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from opentelemetry import trace

from otel_loopguard._control import context
from otel_loopguard._control.flag import (
    APPLICATION,
    BY_HAND,
    NOTHING,
    PARTS,
    RESULTS,
    Control,
    Flag,
    any_news,
    is_reserved,
    note_refusal,
    running_trio,
)
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.clock import now
from otel_loopguard._util.errors import logger, quietly, warn_blind
from otel_loopguard._util.text import check_limit, expected
from otel_loopguard.core import Action
from otel_loopguard.errors import (
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSettingsError,
    LoopGuardStop,
)

if TYPE_CHECKING:
    from otel_loopguard._control.context import SessionHandle

# Thirty years: with today added they are still nanoseconds of 64 bits.
_FOREVER_S: Final = 1e9


def current() -> Control:
    """The control of the session of the current context; `allow` where none is known.

    The session is the one named by `otel_loopguard.session(...)`, else the one of the current span.
    """
    found = context.asked_session()
    return NOTHING if found is None else found.flag.read()


def check() -> None:
    """Raises once the session is aborted: call it once per step of the agent's loop.

    Raises:
        LoopGuardAbort: The session of the current context is aborted.
    """
    settle_all()
    if not any_news():
        context.questions.count()
        return
    found = context.asked_session()
    if found is not None:
        check_at(found.flag)


def check_at(flag: Flag) -> Control:
    """As `check`, for the session of a flag, whose control it returns."""
    control = flag.look()
    if control.action is Action.ABORT:
        raise stop_of(flag, control)
    return control


def hint() -> str | None:
    """Returns the hint for the model of the current session, once per decision; else None.

    ::

        if hint := control.hint():
            messages.append({"role": "user", "content": hint})

    Only the first caller gets it, as the hints of a session belong in one conversation. It quotes
    the first 60 characters of the error or answer; the text without them, which may leave the
    process, stays in `current().hint`.
    """
    found = context.asked_session()
    return None if found is None else found.flag.take_hint()


def partial(result: object) -> bool:
    """Keeps a result of the current session, so that a stop carries it along.

    ::

        resilience.partial(page)
        ...
        except LoopGuardAbort as stop:
            return stop.parts

    The newest 20 are kept, in this process, until a `turn` ends without an error, or 100 other
    sessions came since. Results from before the first span of a session are kept, too.

    Args:
        result: The result so far.

    Returns:
        False if there is no session to keep it for: none is named, and no span is current. Where
        there is a guard, that is warned of once.
    """
    flag = context.current_flag()
    if flag is not None:
        flag.adopt_parts(context.trace_key())
        flag.add_part(result)
        return True
    if not context.live_guards():
        return False
    key = context.named_session() or context.trace_key()
    if key is None:
        warn_blind("partial_unkept")
        return False
    RESULTS.setdefault(key, deque(maxlen=PARTS)).append(result)
    return True


def parts(session: str | None = None) -> tuple[object, ...]:
    """The results of a session so far, the newest 20.

    Those that tools returned under an adapter, and those of `partial`: for a run that something
    other than the guard ended, such as a framework's own limit.

    ::

        except GraphRecursionError:
            return resilience.parts("thread-1")

    Args:
        session: Its key; by default the session of the current context.
    """
    found = context.known_session(session)
    return () if found is None else tuple(found.flag.parts or ())


class Gate:
    """A passed gate, or one to wait at: `await` it in asyncio and trio.

    Attributes:
        control: The control at the moment the gate was asked.
    """

    __slots__ = ("_awaited", "_flag", "_limit_s", "control")

    def __init__(self, control: Control, flag: Flag | None = None, limit_s: float = 0) -> None:
        self.control = control
        self._flag = flag
        self._limit_s = limit_s
        self._awaited = flag is None

    def __await__(self) -> Generator[Any, None, Control]:
        self._awaited = True
        if self._flag is None:
            return self.control
        in_time = yield from self._flag.wait_async(self._limit_s).__await__()
        return _passed(self._flag, in_time=in_time)

    def __del__(self) -> None:
        # As of a coroutine that nobody awaits; at the end of the process there is no logger.
        if not (self._awaited or sys.is_finalizing()):
            warn_blind("gate_not_awaited")


def gate(limit_s: float | None = None) -> Gate:
    """As `check`, and waits while the session is paused.

    In asyncio and trio write `await control.gate()`: it waits without blocking the loop (an abort
    is raised by the call itself). Without a running loop the call blocks until the session goes on.

    Args:
        limit_s: Seconds to wait at most; default is the setting `pause_limit_s` (60).

    Returns:
        A `Gate`, which may be awaited; `.control` says what was decided.

    Raises:
        LoopGuardAbort: The session is aborted.
        LoopGuardPaused: It was not let go on within the limit.
        TypeError: The limit is no number.
    """
    check_limit(limit_s)
    found = context.asked_session()
    return Gate(NOTHING) if found is None else gate_at(found.flag, limit_s)


def gate_at(flag: Flag, limit_s: float | None = None, *, block: bool = False) -> Gate:
    """As `gate`, for the session of a flag; `block` waits here even where a loop runs."""
    flag.read()
    control = check_at(flag)
    if control.action is not Action.PAUSE:
        return Gate(control)
    # A limit of NaN would never end.
    limit = flag.limit_s if limit_s is None or math.isnan(limit_s) else limit_s
    if not block and (running_trio() is not None or _in_asyncio()):
        return Gate(control, flag, limit)
    return Gate(_passed(flag, in_time=flag.wait(limit)))


def pause(
    session: str,
    reason: str = "paused by hand",
    *,
    by: str | None = None,
    limit_s: float | None = None,
) -> bool:
    """Pauses a session: gates wait until `resume` or `abort`.

    Args:
        session: Its key.
        reason: Why, in a sentence.
        by: Name of the person who does it; `application` where your code does.
        limit_s: Seconds after which it goes on by itself; those for which the machine sleeps count,
            and setting its clock back prolongs nothing. Not by itself by default.

    Returns:
        False if it is not known here.

    Raises:
        LoopGuardSettingsError: The guard itself has that name, as `policy`.
        ValueError: A value is not a string, or the limit is negative or no finite number.
    """
    seconds = cast("object", 0 if limit_s is None else limit_s)
    if not isinstance(seconds, (int, float)) or not 0 <= seconds < _FOREVER_S:
        msg = f"limit_s must be a finite number of seconds, 0 or more, got {limit_s!r:.100}"
        raise ValueError(msg)
    until = None if limit_s is None else now() + round(limit_s * 1e9)
    return _set(session, Action.PAUSE, reason, by, until)


def resume(session: str, *, by: str | None = None, guidance: str | None = None) -> bool:
    """Lets a session go on, an aborted one too.

    Args:
        session: Its key.
        by: Name of the person who does it.
        guidance: What the model is told, as a hint.

    Returns:
        False if it is not known here.

    Raises:
        LoopGuardSettingsError: The guard itself has that name, as `policy`.
        ValueError: A value is not a string.
    """
    _check(by, guidance=guidance)
    known = context.sessions_at(session)
    for found in known:
        found.flag.resume(by or BY_HAND, guidance)
    return bool(known)


def allow(
    session: str, scope: Literal["call", "session"] = "call", *, by: str | None = None
) -> bool:
    """Lets a false alarm through: a session goes on, and is not stopped for it again.

    The log says which setting does the same for good.

    Args:
        session: Its key.
        scope: The loop that was stopped (`call`), or whatever the session does (`session`): then
            decisions are only noted.
        by: Name of the person who does it.

    Returns:
        False if it is not known here.

    Raises:
        LoopGuardSettingsError: The guard itself has that name, as `policy`.
        ValueError: There is no such scope, or the name is not a string.
    """
    _check(by)
    if scope not in ("call", "session"):
        raise ValueError(f"scope must be 'call' or 'session', got {scope!r:.100}")
    known = context.sessions_at(session)
    for setting in filter(None, {found.allow(scope, by or BY_HAND): None for found in known}):
        said = "session %s: to allow this for good, set %s"
        quietly(functools.partial(logger.info, said, session, setting))
    return bool(known)


def abort(session: str, reason: str = "aborted by hand", *, by: str | None = None) -> bool:
    """Aborts a session: `check` and `gate` raise.

    Args:
        session: Its key.
        reason: Why, in a sentence.
        by: Name of the person who does it; `application` where your code does.

    Returns:
        False if it is not known here.

    Raises:
        LoopGuardSettingsError: The guard itself has that name, as `policy`.
        ValueError: A value is not a string.
    """
    return _set(session, Action.ABORT, reason, by, None)


def _set(session: str, action: Action, reason: str, by: str | None, until: int | None) -> bool:
    _check(None if by == APPLICATION else by, reason=reason)
    known = context.sessions_at(session)
    for found in known:
        found.flag.set(action, reason=reason, by=by or BY_HAND, until=until)
    return bool(known)


def _check(by: str | None, **texts: object) -> None:
    for name, text in {"by": by, **texts}.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"{name} must be a string, got {text!r:.100}")
    if by is not None and is_reserved(by):
        msg = f"by = {by!r:.100}: the guard itself has that name; expected that of a person"
        raise LoopGuardSettingsError(msg)


def _passed(flag: Flag, *, in_time: bool) -> Control:
    control = flag.read()
    if control.action is Action.ABORT or not in_time:
        raise stop_of(flag, control)
    return control


def stop_of(flag: Flag, control: Control) -> LoopGuardStop:
    """The exception for a session that was aborted, or not resumed in time."""
    aborted = control.action is Action.ABORT
    happened = "aborted" if aborted else "was paused and not resumed in time"
    flag.adopt_parts(context.trace_key())
    # The reason first: lists of errors show the first words only.
    msg = f"{control.reason} (session {control.session!r} {happened})"
    note_refusal(flag, msg)
    kind = LoopGuardAbort if aborted else LoopGuardPaused
    return kind(msg, control.session or "", control.decision, flag.parts or (), control.by)


def _in_asyncio() -> bool:
    asyncio = sys.modules.get("asyncio")  # whatever runs a loop has imported it
    try:
        return asyncio is not None and asyncio.get_running_loop() is not None
    except RuntimeError:
        return False


_REASONS = {"breaker_open": "breaker", "check_failed": "check"}


def refused(tool: str, args: object = None) -> Control | None:
    """Returns the control that refuses a call of the current session; None if it may run.

    Everything that may forbid a call is asked, from memory:

    * the flag: a session that is paused or aborted makes no call;
    * the loop: while a session is denied, calls of the denied loop are refused, and others may run,
      for they are what the model was told to do instead;
    * breakers: one that code named (`resilience.breaker`), and with the setting `breaker` those of
      the host that the call names, or of the same call;
    * checks before a call that were registered; what was learned from failures only warns.

    In mode `shadow`, and where `max_action` is below `deny`, nothing is refused but what a person
    paused or aborted. A refused call must leave a failed span, or the guard does not learn that its
    deny was heeded; `otel_loopguard.turn` does all of it.

    ::

        if refusal := control.refused("search", args):
            return str(refusal)

    Args:
        tool: Name of the tool.
        args: Its arguments, of any types, or as JSON text; None if they are not known: then every
            call of the tool is refused that the decision is about.

    Returns:
        The control that refuses. Its `by` is `breaker` or `check` where no flag does; its `hint` is
        what to tell the model.

    Raises:
        TypeError: The name is not a string.
    """
    if not isinstance(cast("object", tool), str):
        raise TypeError(f"tool: {expected('the name of one', tool, 'control.refused(tool, args)')}")
    found = context.asked_session()
    context.questions.count_call()
    by_flag = (flag_refuses(found, tool, variant) for variant in spellings(args))
    return next(filter(None, by_flag), None) or objected(found, tool, args)


def flag_refuses(
    found: SessionHandle | None, tool: str, args: object = None, *, agent: str | None = None,
    span: trace.Span | None = None,
) -> Control | None:  # fmt: skip
    """Checks the flag alone: it refuses all calls of a stopped session, or of a denied loop.

    A loop stays denied while other calls lower the flag. That of another agent refuses nothing: it
    is known by `agent`, the name that the span of the call will have, or by the span above, which
    is the current one where none is given.
    """
    if found is None:
        return None
    flag, control = found.flag, found.flag.look()
    if control.action in (Action.PAUSE, Action.ABORT):
        note_refusal(flag, control.hint, control.reason)
        return control
    denial = flag.denial
    if denial is None:
        return None
    by = found.denied_by(tool, args, span_id=_id_of(span), agent=agent)
    if by is None:
        denied = "" if denial.decision is None else denial.decision.tool
        if flag.let_through is not None and flag.let_through[0] != denied:
            flag.let_through = denied, tool
        return None
    flag.let_through = None
    denial = flag.denial_of(tool, by) or denial
    note_refusal(flag, denial.hint, denial.reason)
    return denial


def objected(
    found: SessionHandle | None, tool: str, args: object = None, *, span: trace.Span | None = None
) -> Control | None:
    """Checks breakers and checks, whatever the flag says."""
    guard, session = context.guard_of(found), None if found is None else found.key
    if guard is None:
        return None
    objection = guard.objection(tool, args, session=session, span_id=_id_of(span))
    if objection is None:
        return None
    by = _REASONS.get(objection.reason, objection.reason)
    # The message of a check may contain arguments: for the model, not for a log.
    reason = objection.message if by == "breaker" else f"a check rejected {tool!r}"
    note_refusal(None if found is None else found.flag, objection.message)
    return Control(session, Action.DENY, reason, objection.message, by=by)


def spellings(args: object) -> Iterator[object]:
    """Arguments as they are, and as an instrumentation may have written them.

    OpenInference writes a single text in place of the map that has nothing else.
    """
    yield args
    if isinstance(args, Mapping):
        values = list(cast("Mapping[object, object]", args).values())
        # By its type: a proxy of a web framework raises when it is asked for its class.
        if len(values) == 1 and issubclass(type(values[0]), str):
            yield values[0]


def _id_of(span: trace.Span | None) -> int:
    return (span or trace.get_current_span()).get_span_context().span_id
