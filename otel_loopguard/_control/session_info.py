"""State of a session, and what its application reports: milestones, notes, feedback."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._control import context
from otel_loopguard._control.flag import BOARDS, NOTES, board_of
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import logger
from otel_loopguard._util.text import check_number, expected, named
from otel_loopguard.core import Choice, Remaining
from otel_loopguard.core.progress import Milestones, Reached
from otel_loopguard.core.report import AgentCycle, Context, Memory, Report, Topic

if TYPE_CHECKING:
    from otel_loopguard.policy.explain import Explanation

# Names stand in reports, hints and log lines.
_NAME_CHARS: Final = 200
# Entries that are kept of each topic before the first step; each has 200 characters at most.
_NOTES: Final = 64
# Names that were warned of; as many as a session has milestones.
_warned: Final[BoundedDict[str, None]] = BoundedDict(256)


def report(session: str | None = None) -> Report | None:
    """Returns the report of a session: its steps, and the decisions about it.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        The report; None if no session is known.
    """
    # A guard that knows only the name of the session has nothing to say.
    found = max(context.known_sessions(session), key=lambda one: one.steps, default=None)
    return None if found is None else found.report()


def remaining(session: str | None = None) -> Remaining | None:
    """Returns what is left of the limits of a session that were set.

    ::

        left = control.remaining()
        if left is not None and left.tokens is not None and left.tokens < 20_000:
            messages.append("Finish with what you have.")

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        Steps, actions, tokens, cost and seconds that are left, each None where no such limit is
        set; None if no session is known: it begins with its first span.
    """
    found = context.known_session(session)
    return None if found is None else found.remaining()


def explain(session: str | None = None) -> Explanation | None:
    """Returns why a session was stopped, or why not: what was counted, and what comes next.

    ::

        print(control.explain())

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        For each loop what was measured, its rung, what its rounds weigh and why, and the next rung;
        the calls that were made again and are no loop; no content of calls. None if no session is
        known.
    """
    found = context.known_session(session)
    return None if found is None else found.explain()


def wait_advice(session: str | None = None) -> float:
    """Returns how long to wait at least before the next look at what is not ready yet.

    For a loop that polls by itself, and pays for a model call with each look::

        time.sleep(max(delay_s, control.wait_advice()))

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        Seconds, a third of the wait so far: from 10 to 300. 0 if the session waits for nothing, is
        not known, or `price_of_waiting` is switched off.
    """
    found = context.known_session(session)
    return 0.0 if found is None else found.wait_advice()


def cycles(session: str | None = None) -> tuple[AgentCycle, ...]:
    """Returns the agent cycles of a session, with the state of each."""
    found = context.known_session(session)
    return () if found is None else found.cycles()


def remember(topic: Topic, text: str, session: str | None = None) -> bool:
    """Keeps something for the rest of a session; hints may offer it to the model.

    It stays in this process, and goes with the session. What is said before the first span of a
    session is kept, too.

    ::

        sessions.remember("insight", "the tests need Python 3.12")

    Args:
        topic: `insight`, `file`, `pattern` or `avoided`.
        text: What to keep; of longer text the first 200 characters.
        session: Key of the session; by default the session of the current context.

    Returns:
        False if there is no session to keep it for: none is named, and no span is current.

    Raises:
        ValueError: There is no such topic.
    """
    found = context.known_session(session)
    if found is not None:
        found.remember(topic, text)
        return True
    key = session or context.named_session() or context.trace_key()
    if key is None or not context.live_guards():
        return False
    NOTES.setdefault(key, Memory(_NOTES)).note(topic, text)
    return True


def recall(session: str | None = None) -> Context | None:
    """The long-term context of a session: what was remembered, and what it noticed by itself.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        The context; None if no session is known.
    """
    found = context.known_session(session)
    return None if found is None else found.context()


def feedback(
    decision_id: str, *, false_alarm: bool | None = None, choice: Choice | str | None = None
) -> bool:
    """Records whether a decision was right, or what the user chose about a call.

    Both are counted in the report of the session. Choices are remembered too, and decide about the
    same tools for the same user the next time, unless that user does not want it.

    ::

        sessions.feedback(admission.id, choice="auto_background")

    Args:
        decision_id: `control.current().decision_id`, `Decision.id` or `Admission.id`.
        false_alarm: True if it was wrong; of an admission: what spoke against it. Who speaks last
            is right.
        choice: What the user chose instead, or agreed to. Who speaks last is right.

    Returns:
        False if the decision is not known here any more.

    Raises:
        ValueError: There is no such choice, or nothing was said.
    """
    if false_alarm is None and choice is None:
        raise ValueError(f"feedback on {decision_id!r} must say `false_alarm` or `choice`")
    guards, known = context.live_guards(), False
    if choice is not None:
        try:
            chosen = Choice(choice)
        except ValueError:
            known_ones = ", ".join(each.value for each in Choice)
            raise ValueError(f"choice must be one of {known_ones}, got {choice!r:.100}") from None
        known = any(guard.admissions.answered(decision_id, chosen) for guard in guards)
    if false_alarm is not None:
        wrong = false_alarm
        known |= any(guard.feedback(decision_id, false_alarm=wrong) for guard in guards)
    return known


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
        TypeError: The plan is one text, or a share is no number.
        ValueError: A share is below 0 or no finite number, or a name is empty.
    """
    if isinstance(plan, Mapping):
        shares = dict(cast("Mapping[str, float]", plan))
    else:
        if isinstance(plan, str):  # its letters
            raise TypeError(expected("names, or shares by name", plan, f"[{plan!r:.100}]"))
        shares = dict.fromkeys(plan, 1.0)
    for name, share in shares.items():
        named("name of a milestone", name)
        check_number(f"share of the milestone {name!r}", share, 0, finite=True)
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
    named("name of a milestone", name)
    if of is not None:
        check_number("of", of, 1, whole=True)
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
    """Warns, once per name, that a milestone was not declared."""
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
    """Declares the type of the current session's task.

    `task_limits` has limits for types of tasks, beside those of the guard::

        with session("chat-1"):
            control.task_type("research")

    Args:
        name: Name of the type, of at most 200 characters; None for none.

    Returns:
        True if there is a session to say it of.

    Raises:
        ValueError: The name is empty or not a string.
    """
    kind = None if name is None else named("type of a task", name)[:_NAME_CHARS]
    boards = _boards()
    for board in boards:
        board.task_type = kind
    return bool(boards)


def _boards() -> list[Milestones]:
    """The boards of the current session in all guards; before its first step, one kept for it."""
    key, early_key = context.named_session(), context.trace_key()
    found = context.known_session()
    if found is None:
        place = key or early_key
        return [] if place is None else [board_of(place)]
    boards = [one.flag.milestones for one in context.sessions_at(found.key) or [found]]
    if early_key is not None and key is None:
        # The session was made under an id of its spans, which nobody knew when the plan was made.
        early = BOARDS.pop(early_key, None)
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
    found = context.known_session(session)
    if found is not None:
        found.compacted()
    return found is not None
