"""What an application reports: its milestones, and that its context was compacted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._control.context import (
    current_session,
    known_session,
    named_session,
    sessions_at,
    trace_key,
)
from otel_loopguard._control.pending import claimed, waiting
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.logger import logger
from otel_loopguard.core.milestones import Reached

if TYPE_CHECKING:
    from otel_loopguard.core import Milestones

# Names stand in reports, hints and log lines.
_NAME_CHARS: Final = 200
# Names that were warned of; as many as a session has milestones.
_warned: Final[BoundedDict[str, None]] = BoundedDict(256)


def milestones(
    plan: Mapping[str, float] | Iterable[str], *, optional: Collection[str] = ()
) -> bool:
    """Declares all milestones of the task at hand, in place of the plan before.

    What was done before under the same name stays done. From then on a run that reaches none for
    `tuning.milestones.steps` (10) steps or `tuning.milestones.elapsed_s` (60) seconds is hinted at,
    and one in which a required milestone failed and none is open is paused
    (`tuning.milestones.failed_action`).

    ::

        control.milestones({"data read": 20, "model built": 60, "report written": 20})

    Args:
        plan: Share by name, in percent or any other unit; or just names, of equal shares. At most
            256, of names the first 200 characters.
        optional: Names whose failure does not make the task fail.

    Returns:
        True if there is a session to declare them in: the one named by `session(...)`, else the one
        of the current span.

    Raises:
        ValueError: A share is below 0 or no finite number, or a name is empty.
    """
    if isinstance(plan, Mapping):
        shares = dict(cast("Mapping[str, float]", plan))
    else:
        shares = dict.fromkeys(plan, 1.0)
    for name, share in shares.items():
        _check_name(name)
        if not 0 <= share < float("inf"):
            msg = f"share of the milestone {name!r} must be a number from 0 on, got {share!r}"
            raise ValueError(msg)
    boards = _boards()
    for board in boards:
        board.declare(shares, optional)
    return bool(boards)


def milestone(
    name: str, *, done: bool = True, failed: bool = False, of: int | None = None
) -> float | None:
    """Says that a milestone of the session of the current context is reached, or has failed.

    It only notes it, and waits for nothing: the guard reads it at the next step.

    Args:
        name: Name of the milestone. Where none was declared, it is from now on, as optional; where
            others were, it does not count, and that is warned of.
        done: True if it is reached; False declares it only, as optional.
        failed: True if it cannot be reached any more; goes before `done`. It may be reached after
            all later.
        of: How many milestones there are in all, where not all of them are declared by name.

    Returns:
        Percent of the session's milestones that are done, by their shares; None where no session is
        known, or 256 others are open.

    Raises:
        ValueError: The name is empty or no text, or `of` is below 1.
    """
    _check_name(name)
    if of is not None and of < 1:
        msg = f"of must be the number of all milestones, from 1 on, got {of!r}"
        raise ValueError(msg)
    reached = Reached.FAILED if failed else Reached.DONE if done else Reached.OPEN
    percent: float | None = None
    for board in _boards():
        if reached is not Reached.OPEN and of is None and not board.expects(name):
            _warn_of_unknown(name, board)
            percent = board.percent()
        elif board.report(name, reached, of):
            percent = board.percent()
    return percent


def _warn_of_unknown(name: str, board: Milestones) -> None:
    """Says, once for a name, that it is none of those that were declared."""
    if name in _warned:
        return
    _warned[name] = None
    nearest = get_close_matches(name, board.names(), 1, 0.0)
    logger.warning(
        "milestone %r was not declared and does not count; was %r meant? A further one is declared "
        "with done=False",
        name, nearest[0],
    )  # fmt: skip


def task_type(name: str | None) -> bool:
    """Says of which type the task of the session of the current context is.

    `task_limits` has limits for types of tasks, beside those of the guard::

        with session("chat-1"):
            control.task_type("research")

    Args:
        name: Name of the type, of at most 200 characters; None for none.

    Returns:
        True if there is a session to say it of.

    Raises:
        ValueError: The name is empty or no text.
    """
    if name is not None:
        _check_name(name)
    boards = _boards()
    for board in boards:
        board.task_type = None if name is None else name[:_NAME_CHARS]
    return bool(boards)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        msg = f"name of a milestone must be a text that is not empty, got {name!r}"
        raise ValueError(msg)


def _boards() -> list[Milestones]:
    """The boards of the current session, of all guards; one that waits, before its first step."""
    key, early_key = named_session(), trace_key()
    found = current_session()
    if found is None:
        place = key or early_key
        return [] if place is None else [waiting(place)]
    boards = [one.flag.milestones for one in sessions_at(found.key) or [found]]
    if early_key is not None and key is None:
        # The session was made under an id of its spans, which nobody knew when the plan was made.
        early = claimed(early_key)
        if early is not None:
            for board in boards:
                board.adopt(early)
    return boards


def compacted(session: str | None = None) -> bool:
    """Says that the context of a session was compacted: what was counted before weighs half.

    A model that forgot what it did may do it again without being stuck. The guard notices most
    compactions by itself, by the input tokens of model calls.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        False if no session is known.
    """
    found = known_session(session)
    if found is not None:
        found.compacted()
    return found is not None
