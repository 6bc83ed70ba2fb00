"""Answers for a runtime before it makes a call: admission, preferences, resource use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from opentelemetry import trace

from otel_loopguard._control import context
from otel_loopguard._control.flag import asks
from otel_loopguard._util.text import expected, named
from otel_loopguard.core import Choice
from otel_loopguard.core.admission import Acceptance, Admission, Factors, ResourceUse
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.core.task import Task
from otel_loopguard.execution.admission import Admissions  # noqa: TC001  # not on the first call
from otel_loopguard.plans import checked

if TYPE_CHECKING:
    from otel_loopguard.execution.users import Preferences

__all__ = [
    "Acceptance", "Admission", "Choice", "acceptance", "admit", "admit_batch", "prefer",
    "preferences", "resource_use",
]  # fmt: skip


def admit(
    tool: str, args: object = None, *, user: str = "", session: str | None = None
) -> Admission:
    """Returns how to execute a call that is about to run, or what speaks against it.

    Answered from memory, in microseconds; it may be called on an event loop. It decides nothing by
    itself: the runtime does what it thinks right, and may say so with `sessions.feedback`.

    ::

        match execution.admit("web_crawl", args, user="ada").choice:
            case execution.Choice.AUTO_BACKGROUND: ...

    Args:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text; None if they are not known.
        user: Whose preferences and earlier answers count; empty for nobody's in particular.
        session: Key of the session; by default the session of the current context.

    Returns:
        The answer. `execute_sync` with confidence 0 where there is no guard.

    Raises:
        ValueError: The name of the tool is empty or no text.
    """
    return _admitted((Task("0", named("name of a tool", tool), args=args),), user, session, None)


def admit_batch(
    calls: Sequence[object],
    *,
    user: str = "",
    session: str | None = None,
    parallel: bool | None = None,
) -> Admission:
    """Returns how to execute several calls that belong together; else as `admit`.

    ::

        execution.admit_batch(["file_read", ("web_search", {"query": "x"})])

    Args:
        calls: Each the name of a tool, a pair of name and arguments, or a task as `plans.read`
            takes them (a map, a dataclass, a pydantic model; `tool`, `args`, `depends_on`,
            `priority`, `estimate_ms`). A task without an `id` has its place, from "0".
        user: As of `admit`.
        session: As of `admit`.
        parallel: Whether they are to run side by side; by default where no call needs another, all
            tools are declared safe, and the user prefers it.

    Returns:
        One answer for all of them.

    Raises:
        TypeError: The calls are one text.
        PlanError: The calls are no sound plan; the error has everything that is wrong with it.
        ValueError: There is no call, or one is without a tool.
    """
    if isinstance(calls, str):  # its letters
        raise TypeError(expected("a list of calls", calls, f"[{calls!r:.100}]"))
    if not calls:
        raise ValueError(f"calls of a batch must be at least one, got {calls!r}")
    tasks = checked([_as_task(number, call) for number, call in enumerate(calls)])
    for task in tasks:
        named("name of a tool", task.tool)
    return _admitted(tasks, user, session, parallel)


def preferences(user: str = "") -> Preferences | None:
    """The preferences of a user for the execution of calls; None where there is no guard.

    Args:
        user: Id of the user; empty for everybody who has none.
    """
    guard = context.current_guard()
    return None if guard is None else guard.admissions.users.preferences(user)


def prefer(user: str = "", **changes: object) -> Preferences | None:
    """Changes what a user prefers, and has it stored.

    ::

        execution.prefer("ada", auto_background_enabled=False, prompt_threshold_s=5)

    Args:
        user: Id of the user; empty for everybody who has none.
        **changes: New values, by the names of `Preferences`.

    Returns:
        What the user prefers now; None where there is no guard.

    Raises:
        ValueError: A name is unknown, or a value cannot be used; the message has both.
    """
    known: list[Admissions] = [guard.admissions for guard in context.live_guards()]
    changed = [one.users.prefer(user, changes) for one in known]
    return changed[-1] if changed else None


def acceptance() -> Acceptance | None:
    """Counts choices and how users took them, in all sessions of the current session's guard.

    Without a session it is the newest guard.

    Of one session, `execution` of its report says it.

    Returns:
        None if nobody asked.
    """
    guard = context.current_guard()
    return None if guard is None else guard.admissions.acceptance()


def resource_use() -> Mapping[str, ResourceUse]:
    """Mean and peak use of the machine, over the newest samples.

    Returns:
        By resource: `cpu`, `memory`, `io_wait` in percent, `disk`, `network` in bytes per second,
        `rss` in megabytes, `queue` in tasks. What is not known is not there; empty before the
        first call that was asked about.
    """
    guard = context.current_guard()
    return {} if guard is None else guard.admissions.resources.use()


def _admitted(
    tasks: Sequence[Task], user: str, session: str | None, parallel: bool | None
) -> Admission:
    asks()
    found = context.known_session(session or None)
    key = session or context.named_session() if found is None else found.key
    guard = context.guard_of(found)
    if guard is None:
        return _unguarded(tasks, user, key)
    span = trace.get_current_span().get_span_context().span_id
    return guard.admit(tasks, session=key, span_id=span, user=user, parallel=parallel)


def _unguarded(tasks: Sequence[Task], user: str, session: str | None) -> Admission:
    """The answer without a guard: the call runs, as it would have anyway."""
    tools = tuple(sorted({task.tool or "" for task in tasks}))
    factors = Factors(len(tasks), tools, False, 0.0, 0.0, 0, dict.fromkeys(tools, "unknown"))
    return Admission(
        "", Choice.EXECUTE_SYNC, 0.0, 0.0, "there is no guard in this process",
        (FollowUp.EXECUTE_IMMEDIATELY,), Source.EXECUTION_CHOICE, factors, session, user,
    )  # fmt: skip


def _as_task(number: int, call: object) -> object:
    """A call of a batch, in a form that a plan may have."""
    if isinstance(call, str):
        return Task(str(number), call)
    if isinstance(call, (tuple, list)):
        pair = cast("Sequence[object]", call)
        if len(pair) != 2:
            msg = f"a call of a batch must be a pair of tool and arguments, got {pair!r:.100}"
            raise ValueError(msg)
        return Task(str(number), named("name of a tool", pair[0]), args=pair[1])
    if isinstance(call, Mapping):
        return {"id": str(number), **cast("Mapping[str, object]", call)}
    return call
