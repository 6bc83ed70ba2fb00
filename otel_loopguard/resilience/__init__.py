"""Help after failures: retries, breakers, recovery, checks, checkpoints."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from otel_loopguard._control import context
from otel_loopguard._util.errors import InternalErrors, Log, logger
from otel_loopguard._util.lazy import lazy
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import check_limit
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.evidence import error_class, is_runner, prepare, signature_of
from otel_loopguard.resilience.breaker import Breakers, BreakerState, BreakerStatus, Of
from otel_loopguard.resilience.checks import (
    Checks,
    Problem,
    file_exists,
    permitted,
    resources,
    syntax,
)
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard._control.gate import partial, parts
    from otel_loopguard.resilience.checkpoints import (
        Callbacks,
        Checkpoint,
        Checkpoints,
        GitWorkspace,
    )
    from otel_loopguard.resilience.recovery import (
        Call,
        Degraded,
        Partial,
        Recoveries,
        Recovering,
        combined,
        degraded,
        longer_limit,
        reconnect,
        reread,
        retrying,
        verified,
        verified_async,
    )
    from otel_loopguard.stores import Writer

__all__ = [
    "BreakerState", "BreakerStatus", "Call", "Callbacks", "Checkpoint", "Checkpoints",
    "Degraded", "GitWorkspace", "Partial", "Problem", "breaker",
    "breakers", "checks", "combined", "degraded", "file_exists", "longer_limit",
    "partial", "parts", "permitted", "problems", "reconnect", "recoveries",
    "recovering", "reread", "resources", "retrying", "syntax", "verified", "verified_async",
]  # fmt: skip

__getattr__ = lazy(
    "otel_loopguard",
    {
        "_control.gate": "partial parts",
        "resilience.checkpoints": "Callbacks Checkpoint Checkpoints GitWorkspace",
        "resilience.recovery": (
            "Call Degraded Partial combined degraded longer_limit reconnect reread retrying "
            "verified verified_async"
        ),
    },
)


class ResilienceRegistry:
    """Breakers, recoveries and checks of one guard; a store shares breakers between processes."""

    def __init__(
        self, settings: Settings, faults: InternalErrors | None = None,
        writer: Writer | None = None, log: Log = logger,
    ) -> None:  # fmt: skip
        self._faults = faults = faults or InternalErrors()
        self._recoveries: Recoveries | None = None
        self.breakers = Breakers(settings, writer, log)
        self.checks = Checks(settings, faults)

    @property
    def recoveries(self) -> Recoveries:
        """Ways to recover; loaded when somebody registers or asks for one."""
        from otel_loopguard.resilience.recovery import Recoveries  # noqa: PLC0415

        with _making:
            if self._recoveries is None:
                self._recoveries = Recoveries(self._faults)
            return self._recoveries

    def learn(self, step: Step, session: str) -> None:
        """Learns from a tool call that ended; one that was refused says nothing of its tool.

        Of a tool that runs what the agent wrote (a shell, an interpreter) the kind of arguments is
        always the same and says nothing: no error pattern is learned there.
        """
        name, checks = step.name, self.checks
        known = name in checks.good and name not in checks.troubled
        if known and not step.error and not self.breakers.watches:
            return
        if step.kind is not Kind.TOOL or not name or step.refused:
            return
        error = error_class(step) if step.error else ErrorClass.UNKNOWN
        if self.breakers.watches:
            self.breakers.finished(session, name, step.args, error=step.error, error_class=error)
        args = None if is_runner(name) else prepare(step).arguments
        # It costs more than all the rest, and only checks of such errors want it.
        named = step.error and args is not None and error is not ErrorClass.TRANSIENT
        checks.finished(name, args, step.error, error, signature_of(step) if named else None)


_own: ResilienceRegistry | None = None
_making = new_lock()


def _current() -> ResilienceRegistry:
    """The registry of the guard that is meant here, or a separate one without a guard."""
    global _own  # noqa: PLW0603
    guard = context.current_guard()
    if guard is not None:
        return guard.resilience
    with _making:
        _own = _own or ResilienceRegistry(Settings())
        return _own


def breakers() -> Breakers:
    """The breakers of the current session's guard, else of the newest."""
    return _current().breakers


def recoveries() -> Recoveries:
    """The ways to recover of the current session's guard, else of the newest."""
    return _current().recoveries


def checks() -> Checks:
    """The checks before a call of the current session's guard, else of the newest."""
    return _current().checks


def breaker(name: str, kind: Of = "tool") -> AbstractContextManager[None]:
    """A block of sync or async code that runs if its breaker permits.

    ::

        with resilience.breaker("search"):
            found = search(query)

    How it ends counts. While it is open, `control.refused`, `execution.admit` and adapters refuse
    calls of that tool, too.

    Args:
        name: Name of the tool or agent.
        kind: `tool` or `agent`.

    Returns:
        What to write behind `with`; entering it raises `BreakerOpenError` where no call may be
        made.
    """
    return _current().breakers.guarding(name, kind)


def recovering(
    tool: str, args: dict[str, object] | None = None, limit_s: float | None = None
) -> Recovering:
    """Tries a call, and after each failure what was registered for it, until none is left.

    ::

        for attempt in resilience.recovering("edit", {"path": "a.py"}, limit_s=30):
            with attempt as call:
                edit(**call.args, timeout=call.limit_s)

    With strategies that are coroutine functions: `async for attempt in ...`. Where no strategy is
    left the last error is raised as it is.

    Args:
        tool: Name of the tool.
        args: Its arguments by name; strategies may change them.
        limit_s: Seconds that the call may take, for strategies to change.

    Raises:
        TypeError: The limit is no number.
    """
    from otel_loopguard.resilience.recovery import Call, Recovering  # noqa: PLC0415

    check_limit(limit_s)
    return Recovering(_current().recoveries, Call(tool, dict(args or {}), limit_s))


def problems(tool: str, args: Mapping[str, object] | None = None) -> tuple[Problem, ...]:
    """Returns the problems of a call before it is made: what would fail, what to change.

    Args:
        tool: Name of the tool.
        args: Its arguments by name.

    Returns:
        Empty if nothing is known to speak against it.
    """
    return _current().checks.of(tool, args)


# A guard that was made before this is imported learns from now on.
getattr(context.newest_guard(), "resilience", None)
