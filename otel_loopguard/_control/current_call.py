"""The call that an adapter makes now, and its arguments and results."""

from __future__ import annotations

from collections import OrderedDict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Kind

if TYPE_CHECKING:
    from otel_loopguard.core import Step


class CurrentCall(NamedTuple):
    """A call of a tool that is under way.

    Attributes:
        tool: Name of the tool.
        args: Its arguments, a JSON value or text.
    """

    tool: str
    args: object


_now: ContextVar[CurrentCall | None] = ContextVar("loopguard-making", default=None)


def making() -> CurrentCall | None:
    """The call that is made in this context; None if no adapter said."""
    return _now.get()


def make(call: CurrentCall | None) -> CurrentCall | None:
    """Says which call is made from here on in this context."""
    before = _now.get()
    _now.set(call)
    return before


_MOST: Final = 1024


class CapturedContent:
    """What the adapters of frameworks know of a call, for the guard only: no span carries it.

    Kept from when it is told until the span ends, of the newest 1024 spans. The lock of the guard
    is held.
    """

    def __init__(self) -> None:
        self._told: OrderedDict[int, tuple[object, object]] = OrderedDict()
        self._within: OrderedDict[int, CurrentCall] = OrderedDict()

    def tell(self, span_id: int, args: object, outcome: object) -> None:
        """Takes what is known of a call whose span is open."""
        self._told[span_id] = (args, outcome)
        if len(self._told) > _MOST:
            self._told.popitem(last=False)

    def began(self, span_id: int, call: CurrentCall) -> None:
        """A span starts while an adapter makes a call: it may be the one of that call."""
        self._within[span_id] = call
        if len(self._within) > _MOST:
            self._within.popitem(last=False)

    def complete(self, span_id: int, step: Step | None) -> None:
        """Puts on the step of a span that ends what the span does not say."""
        told = self._told.pop(span_id, None) if self._told else None
        call = self._within.pop(span_id, None) if self._within else None
        if step is None:
            return
        if told is not None:
            step.args = told[0] if step.args is None else step.args
            step.outcome = told[1] if step.outcome is None else step.outcome
        if call is not None and step.kind is Kind.TOOL and step.name == call.tool:
            step.args = call.args if step.args is None else step.args
