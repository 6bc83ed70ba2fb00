"""The contents of a step, parsed once and before the lock is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded_json import LONGEST, MANY
from otel_loopguard.core import Kind
from otel_loopguard.evidence.normalize import bounded, canonical, parsed
from otel_loopguard.evidence.outcomes import Reading, leaves_of, outcome_of, reading_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_VISITS: Final = (Kind.NODE, Kind.AGENT)


def prepare(step: Step, limit: int = LONGEST) -> None:
    """Puts on a step what its arguments and its outcome are, where that was not done."""
    if (step.args is None and step.outcome is None and not step.error) or reading_of(step):
        return
    arguments, said = parsed(step.args, MANY), parsed(step.outcome)
    raw = found = None
    if step.kind is Kind.TOOL:
        found = outcome_of(step, limit)
        if arguments is not None and not isinstance(arguments, str):
            raw = canonical(arguments)
            raw = raw if len(raw) <= limit else bounded(raw, limit)
    leaves = None, None
    if step.kind in _VISITS:
        gave = step.error_text if step.outcome is None else said
        leaves = (
            None if gave is None else leaves_of(gave),
            None if step.args is None else leaves_of(arguments),
        )
    step.reading = Reading(
        step.args, step.outcome, step.error, step.error_text, limit, arguments, said, raw, found,
        leaves,
    )  # fmt: skip
