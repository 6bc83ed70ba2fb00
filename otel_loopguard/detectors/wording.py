"""How evidence is quoted in the messages of detectors: sizes and counts, never content."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import ErrorClass

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence


def answer_of(evidence: Evidence) -> str:
    """What came back, as `906-character answer`, `empty answer` or `61-character error`."""
    size = f"{evidence.outcome_size:,}-character" if evidence.outcome_size else "empty"
    return f"{size} {'error' if evidence.error else 'answer'}"


def error_of(evidence: Evidence) -> str:
    """What kind of error it was, as `transient error`; `error` where that cannot be told."""
    known = evidence.error_class is not ErrorClass.UNKNOWN
    return f"{evidence.error_class} error" if known else "error"
