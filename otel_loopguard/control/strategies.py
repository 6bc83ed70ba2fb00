"""Strategies to recover: what one is, and the ready-made ones (C9)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

_LOOK: Final = 2_000


@dataclass(slots=True)
class Call:
    """The call that is tried, as the next try is to make it. Strategies change it.

    Attributes:
        tool: Name of the tool.
        args: Its arguments.
        limit_s: Seconds it may take; None: no limit is known.
        error: What the try before raised; None in the first.
        fresh: What a strategy has read anew, for the next try to use.
    """

    tool: str
    args: dict[str, object] = field(default_factory=dict[str, object])
    limit_s: float | None = None
    error: Exception | None = None
    fresh: object = None


Apply = Callable[[Call], object]
"""Prepares the next try. Gives False where it has nothing to try; may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to recover.

    Attributes:
        name: Its name, for counts and logs.
        apply: Prepares the next try.
        tool: Which tools, as a name or a pattern such as `browser_*`.
        error: Which errors: classes, or a regular expression that is searched for, without regard
            to case, in the name of the class and the text.
    """

    name: str
    apply: Apply
    tool: str = "*"
    error: type[Exception] | tuple[type[Exception], ...] | re.Pattern[str] = Exception

    def fits(self, tool: str, error: Exception) -> bool:
        """Whether it is meant for this failure."""
        if not fnmatchcase(tool, self.tool):
            return False
        if isinstance(self.error, re.Pattern):
            return bool(self.error.search(f"{type(error).__name__}: {error}"[:_LOOK]))
        return isinstance(error, self.error)


def reconnect(connect: Callable[[], object]) -> Apply:
    """A strategy that connects anew before the next try (C9).

    Args:
        connect: Connects; a coroutine function where it is used in `async for`.
    """

    def apply(_call: Call) -> object:
        return _done(connect())

    return apply


def reread(read: Callable[[str], object], argument: str = "path") -> Apply:
    """A strategy that reads a file again before it is edited again (C9).

    What was read is `call.fresh` in the next try. Where an editor wants the file to be read by its
    own tool first, let `read` do so.

    Args:
        read: Takes the path and gives the content; a coroutine function in `async for`.
        argument: Name of the argument that has the path; without it there is nothing to try.
    """

    def apply(call: Call) -> object:
        path = call.args.get(argument)
        if not isinstance(path, str):
            return False
        found = read(path)
        if inspect.isawaitable(found):
            return _kept(call, found)
        call.fresh = found
        return True

    return apply


def longer_limit(factor: float = 2, most_s: float = 600) -> Apply:
    """A strategy that gives the next try more time (C9).

    Args:
        factor: What the limit of the try before is multiplied by.
        most_s: Seconds that it has at most. From there on, and without a limit, there is nothing
            to try.

    Raises:
        ValueError: The factor is not above 1.
    """
    if not factor > 1:
        msg = f"factor of a longer limit must be above 1, got {factor!r}"
        raise ValueError(msg)

    def apply(call: Call) -> object:
        if call.limit_s is None or call.limit_s >= most_s:
            return False
        call.limit_s = min(call.limit_s * factor, most_s)
        return True

    return apply


async def _kept(call: Call, found: Awaitable[object]) -> bool:
    call.fresh = await found
    return True


def _done(result: object) -> object:
    return result if inspect.isawaitable(result) else True
