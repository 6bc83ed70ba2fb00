"""Arguments and results of calls that are told to a guard beside their spans."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_MOST: Final = 1024


class Contents:
    """What the adapters of frameworks know of a call, for the guard only: no span carries it.

    Kept from when it is told until the span ends, of the newest 1024 calls. The lock of the guard
    is held.
    """

    def __init__(self) -> None:
        self._told: OrderedDict[int, tuple[object, object]] = OrderedDict()

    def tell(self, span_id: int, args: object, outcome: object) -> None:
        """Takes what is known of a call whose span is open.

        Args:
            span_id: Its span.
            args: Its arguments, a JSON value or text; None if they are not known.
            outcome: Its result, likewise.
        """
        self._told[span_id] = (args, outcome)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)

    def complete(self, step: Step | None) -> None:
        """Puts on a step that ends what its span does not say."""
        if not self._told or step is None:
            return
        told = self._told.pop(step.span_id, None)
        if told is not None:
            step.args = told[0] if step.args is None else step.args
            step.outcome = told[1] if step.outcome is None else step.outcome
