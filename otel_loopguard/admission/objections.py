"""What breakers and checks say against a call that is about to run.

Source: FEATURES E5, C14; asked by `control.admit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import orjson

from otel_loopguard.control import BreakerState
from otel_loopguard.core import Choice, FollowUp, Objection

if TYPE_CHECKING:
    from otel_loopguard.control import Remedies
    from otel_loopguard.planning import Task

_LATER: Final = (FollowUp.QUEUE_FOR_LATER, FollowUp.NOTIFY_USER)
_LONG: Final = 100_000
"""Characters up to which arguments that are text are parsed."""


class Objections:
    """Asks the breakers and checks of a guard; from memory, but for checks that are registered.

    Args:
        remedies: Gives the breakers and checks.
    """

    def __init__(self, remedies: Callable[[], Remedies]) -> None:
        self._remedies = remedies

    def __call__(self, task: Task) -> Objection | None:
        """What speaks against a call; None if nothing does. No trial is begun by asking."""
        remedies = self._remedies()
        shut = _shut(remedies, task.tool, "tool") or _shut(remedies, task.agent, "agent")
        if shut is not None or task.tool is None:
            return shut
        found = remedies.checks.of(task.tool, _named(task.args))
        said = " ".join(str(problem) for problem in found if not problem.warns)
        if not said:
            return None
        return Objection("check_failed", said, Choice.DENY, 0.85)

    def warning(self, task: Task) -> str | None:
        """What was learned from failures of such calls; it keeps nobody from making one."""
        if task.tool is None:
            return None
        learned = self._remedies().checks.learned(task.tool, _named(task.args))
        return str(learned) if learned is not None and learned.warns else None


def _shut(remedies: Remedies, name: str | None, of: Literal["tool", "agent"]) -> Objection | None:
    """What an open breaker says; one that is half-open lets the call try."""
    if name is None:
        return None
    standing = remedies.breakers.standing(name, of)
    if standing.state is not BreakerState.OPEN:
        return None
    failures = standing.failures
    said = f"the breaker of the {of} {name!r} is open after {failures} failures in a row"
    return Objection("breaker_open", said, follow_ups=_LATER)


def _named(args: object) -> Mapping[str, Any] | None:
    """Arguments by name, where they are or say a JSON object."""
    if isinstance(args, str) and args[:1] == "{" and len(args) <= _LONG:
        try:
            args = orjson.loads(args)
        except orjson.JSONDecodeError:
            return None
    return cast("Mapping[str, Any]", args) if isinstance(args, Mapping) else None
