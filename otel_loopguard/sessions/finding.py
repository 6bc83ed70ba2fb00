"""What the policy of a session says about one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from otel_loopguard.identity import signature_of

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence, Step
    from otel_loopguard.policy import Verdict


class Finding(NamedTuple):
    """What the policy of a session says about one step.

    Attributes:
        verdict: What follows.
        call: Key of the call concerned; None if its arguments are not known.
        tool: Name of its tool; empty if no call is concerned.
        signature: Kind of the error behind it; None if no error is.
        error: Key of the line that names that error.
        earlier: Trace and span ids of the steps that showed the calls of the loop first.
    """

    verdict: Verdict
    call: int | None = None
    tool: str = ""
    signature: str | None = None
    error: int | None = None
    earlier: tuple[tuple[int, int], ...] = ()


def finding_of(verdict: Verdict, step: Step, seen: Evidence | None) -> Finding:
    """A verdict with what is known of the call concerned, if one is."""
    if seen is None:
        return Finding(verdict)
    error = seen.error_shape
    about = {seen.call, seen.error_line, error} - {None}
    if not seen.error or about.isdisjoint(verdict.loop.keys):
        return Finding(verdict, seen.call, seen.tool)
    return Finding(verdict, seen.call, seen.tool, signature_of(step), error)
