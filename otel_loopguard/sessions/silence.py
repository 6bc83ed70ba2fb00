"""How long a model is asked again without any call: refusals may leave no span."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.core import Step


class Silence:
    """Counts how often the model of a session was asked since its last tool call.

    Model calls may each have a trace of their own. After a pause such a one begins anew: a user may
    have spoken.
    """

    __slots__ = ("_end", "_trace_id", "_turns")

    def __init__(self) -> None:
        self._trace_id = 0
        self._turns = 0
        self._end = 0

    def broken(self) -> None:
        """A tool was called."""
        self._turns = 0

    def turn(self, step: Step, gap_s: float) -> int:
        """The model was asked once more; how often by now.

        Args:
            step: The call of the model.
            gap_s: Seconds that are a pause.
        """
        paused = bool(self._end and step.start) and step.start - self._end >= gap_s * 1e9
        self._turns = 1 if paused and step.trace_id != self._trace_id else self._turns + 1
        self._trace_id, self._end = step.trace_id, step.end or 0
        return self._turns
