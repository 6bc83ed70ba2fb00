"""What the contents of a step are, worked out once and before the guard's lock is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.bounded_json import MANY
from otel_loopguard.identity.canonical import parsed

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.identity.outcomes import Outcome


class Reading(NamedTuple):
    """What `prepare` found in a step, and what it found it in: another span may add to a step.

    Attributes:
        args: The arguments that it was made of.
        outcome: The outcome, likewise.
        error: Whether the step had failed.
        error_text: What the error said, likewise.
        limit: Characters that were looked at.
        arguments: The JSON value of the arguments.
        said: The JSON value of the outcome.
        raw: Canonical bytes of the arguments; None of text.
        found: The outcome as keys; None where nobody asks for it.
        leaves: Keys of the values in outcome and arguments of a graph's node.
    """

    args: object
    outcome: object
    error: bool
    error_text: str | None
    limit: int
    arguments: object
    said: object
    raw: bytes | None = None
    found: Outcome | None = None
    leaves: tuple[frozenset[int] | None, frozenset[int] | None] = (None, None)


def reading_of(step: Step) -> Reading | None:
    """What was found in a step before; None if nothing was, or the step has changed since."""
    found = step.reading
    if (
        isinstance(found, Reading)
        and found.args is step.args
        and found.outcome is step.outcome
        and found.error_text is step.error_text
    ):
        return found
    return None


def arguments_of(step: Step) -> object:
    """The arguments of a step as a JSON value, or text that is none."""
    found = reading_of(step)
    return parsed(step.args, MANY) if found is None else found.arguments


def said_of(step: Step) -> object:
    """The outcome of a step as a JSON value, or text that is none."""
    found = reading_of(step)
    return parsed(step.outcome) if found is None else found.said
