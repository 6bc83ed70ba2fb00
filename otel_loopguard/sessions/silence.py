"""How long a model is asked again without any call: refusals may leave no span."""

from __future__ import annotations


class Silence:
    """Counts the turns of a model, within one trace, since the last tool call."""

    __slots__ = ("_trace_id", "_turns")

    def __init__(self) -> None:
        self._trace_id = 0
        self._turns = 0

    def broken(self) -> None:
        """A tool was called."""
        self._turns = 0

    def turn(self, trace_id: int) -> int:
        """The model was asked once more; how often by now."""
        self._turns = self._turns + 1 if trace_id == self._trace_id else 1
        self._trace_id = trace_id
        return self._turns
