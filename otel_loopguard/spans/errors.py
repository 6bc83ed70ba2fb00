"""What failed: status, `error.type` and exception events, whichever of them is there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_loopguard.semconv import DECISION_ACTION, DECISION_MESSAGE, decided
from otel_loopguard.spans.values import hidden, text

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.spans.values import Outcome
    from otel_loopguard.spans.views import SpanView

_TRACEBACK = "Traceback (most recent call last)"
_REPR = re.compile(r"\A\s*([A-Za-z_][\w.]*)\(")
_LINE = re.compile(r"\A\s*([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Interrupt)): ")
_NAMED_WITHIN = 200
_VAGUE = frozenset(("_OTHER", "TOOL_ERROR", "tool_error", "Exception", "Error", "unknown"))


def failed(step: Step, span: SpanView) -> Step:
    """Puts on the step what the span says of a failure, and answers the step.

    The text of an exception event comes before the description of the status: instrumentations put
    whole tracebacks there (OpenInference LangChain). An exception event on a span whose status is
    OK was handled and is no failure.
    """
    events, kind = span.events, text(span.attributes.get("error.type"))
    if _decided(span):
        return step
    if not events and kind is None and span.status != "error":
        return step
    thrown = next((found for name, found in events if name == "exception"), None)
    if span.status != "error" and kind is None and (thrown is None or span.status == "ok"):
        return step
    message = text(thrown.get("exception.message")) if thrown else None
    message = message or text(span.description)
    thrown_kind = text(thrown.get("exception.type")) if thrown else None
    if kind is None or (kind in _VAGUE and thrown_kind):
        kind = thrown_kind
    step.error = True
    # A code in place of a text (ADK) is the same for every failure: the text is unknown.
    step.error_text = None if message in _VAGUE else headline(message)
    step.error_type = kind if kind and kind not in _VAGUE else _named(step.error_text) or kind
    return step


def _decided(span: SpanView) -> bool:
    """Whether the status is an exporter's mark of a decision about a call that went well."""
    message = span.attributes.get(DECISION_MESSAGE)
    if message is None or span.status != "error":
        return False
    return span.description == decided(span.attributes.get(DECISION_ACTION), message)


def fail(step: Step, reason: object, kind: str | None = None) -> Step:
    """Marks the step as failed; keeps a text and a type that are already known."""
    step.error = True
    if step.error_text is None:
        step.error_text = headline(text(reason))
    if step.error_type is None:
        step.error_type = kind
    return step


def set_outcome(step: Step, outcome: Outcome) -> None:
    """Puts an unwrapped result on the step, with the call id and the failure that it names."""
    step.outcome = outcome.value
    step.call_id = step.call_id or outcome.call_id
    if outcome.failed:
        fail(step, outcome.error)


def headline(message: str | None) -> str | None:
    """What comes before a traceback in the text of an error; None if it is hidden."""
    if message is None or hidden(message):
        return None
    at = message.find(_TRACEBACK)
    if at < 0:
        return message
    # A text that is a traceback from its start on names the error in its last line.
    lines = message[:at].strip() or message.rstrip().rpartition("\n")[2].strip()
    return lines or message


def _named(message: str | None) -> str | None:
    if message is None:
        return None
    found = _LINE.match(message, 0, _NAMED_WITHIN) or _REPR.match(message, 0, _NAMED_WITHIN)
    return found[1] if found else None
