"""Reports, long-term context and feedback of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._control.context import (
    known_session,
    known_sessions,
    live_guards,
    named_session,
    trace_key,
)
from otel_loopguard._control.pending import note_early
from otel_loopguard.core import Choice

if TYPE_CHECKING:
    from otel_loopguard.core import Remaining
    from otel_loopguard.core.report import AgentCycle, Context, Report, Topic
    from otel_loopguard.policy.explain import Explanation


def report(session: str | None = None) -> Report | None:
    """Returns the report of a session: its steps, and the decisions about it.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        The report; None if no session is known.
    """
    # A guard that knows only the name of the session has nothing to say.
    found = max(known_sessions(session), key=lambda one: one.steps, default=None)
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
    found = known_session(session)
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
    found = known_session(session)
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
    found = known_session(session)
    return 0.0 if found is None else found.wait_advice()


def cycles(session: str | None = None) -> tuple[AgentCycle, ...]:
    """Returns the agent cycles of a session, with the state of each."""
    found = known_session(session)
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
    found = known_session(session)
    if found is not None:
        found.remember(topic, text)
        return True
    key = session or named_session() or trace_key()
    if key is None or not live_guards():
        return False
    note_early(key, topic, text)
    return True


def recall(session: str | None = None) -> Context | None:
    """The long-term context of a session: what was remembered, and what it noticed by itself.

    Args:
        session: Key of the session; by default the session of the current context.

    Returns:
        The context; None if no session is known.
    """
    found = known_session(session)
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
        msg = f"feedback on {decision_id!r} must say `false_alarm` or `choice`"
        raise ValueError(msg)
    known = False
    if choice is not None:
        chosen = Choice(choice)
        known = any(guard.answered(decision_id, chosen) for guard in live_guards())
    if false_alarm is not None:
        wrong = false_alarm
        known |= any(guard.feedback(decision_id, false_alarm=wrong) for guard in live_guards())
    return known
