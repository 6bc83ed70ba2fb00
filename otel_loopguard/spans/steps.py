"""From a span to a step: what every span has, what was captured, what failed, and what it cost.

Costs are in USD: `llm.cost.total` (OpenInference), `operation.cost` (logfire and pydantic-ai),
`gen_ai.usage.cost` (OpenLIT and others), `gen_ai.cost.total_cost` and `litellm.cost.total`
(LiteLLM), and `total` in the JSON of `langfuse.observation.cost_details`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.semconv import DECISION_ACTION, DECISION_MESSAGE, decided
from otel_loopguard.spans.values import count, hidden, identifier, known, text, within

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.spans.unwrap import Outcome
    from otel_loopguard.spans.views import SpanView

_TRACEBACK: Final = "Traceback (most recent call last)"
_REPR: Final = re.compile(r"\A\s*([A-Za-z_][\w.]*)\(")
_LINE: Final = re.compile(r"\A\s*([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Interrupt)): ")
_TYPE_CHARS: Final = 200
"""Characters at the start of an error's text that may name its type: a path of modules and a class
is shorter, and the patterns never walk through a text of megabytes."""
_VAGUE: Final = frozenset(("_OTHER", "TOOL_ERROR", "tool_error", "Exception", "Error", "unknown"))
PUT_OFF: Final = frozenset(
    "ApprovalRequired CallDeferred GraphInterrupt InterruptException NodeInterrupt"
    " UserInputRequiredException WaitingForEvent".split()
)
"""Exceptions by which pydantic-ai, LangGraph, Strands, Microsoft Agent Framework and LlamaIndex put
a call off until somebody answers."""
_DEFERRAL: Final = "pydantic_ai.tool.deferral.name"
_COST_DETAILS: Final = "langfuse.observation.cost_details"
_COSTS: Final = frozenset(
    "llm.cost.total operation.cost gen_ai.usage.cost gen_ai.cost.total_cost"
    " litellm.cost.total".split()
)
_PRICED: Final = _COSTS | {_COST_DETAILS}
_CACHE_READS: Final = frozenset(
    "gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens"
    " gen_ai.usage.details.cache_read_tokens llm.token_count.prompt_details.cache_read"
    " ai.usage.cachedInputTokens ai.usage.inputTokenDetails.cacheReadTokens"
    " cache_read_tokens cached_content_token_count cached_token_count".split()
)
_CACHE_WRITES: Final = frozenset(
    "gen_ai.usage.cache_write.input_tokens gen_ai.usage.cache_creation.input_tokens"
    " gen_ai.usage.cache_creation_input_tokens gen_ai.usage.cache_write_input_tokens"
    " gen_ai.usage.details.cache_write_tokens llm.token_count.prompt_details.cache_write"
    " ai.usage.inputTokenDetails.cacheWriteTokens cache_creation_tokens".split()
)


def begin(span: SpanView, kind: Kind, name: str | None) -> Step:
    """A step with what every span has: ids, scope and times. The reader adds the dialect."""
    start, end = span.start, span.end
    if start < 0:  # noqa: PLR1730  # a tenth of the price of max()
        start = 0
    if end is not None and end < start:
        end = start
    return Step(kind, name, "", span.scope, span.trace_id, span.span_id, span.parent_id, start, end)


def captured(span: SpanView, *keys: str) -> object:
    """The value of the first key that is there; None if there is none, or if it is hidden.

    A hidden value is looked up among the attributes that another processor has not changed yet.
    """
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return _unscrubbed(span, key) if hidden(value) else value
    return None


def _unscrubbed(span: SpanView, key: str) -> object:
    earlier = span.start_attributes
    return None if earlier is None else known(earlier.get(key))


def first_identifier(
    span: SpanView, keys: tuple[str, ...], *, but: str | None = None, reveal: bool = False
) -> str | None:
    """The first id under these keys; `reveal` asks for what a hidden one was before."""
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        found = identifier(value)
        if found is None and reveal and hidden(value):
            found = identifier(_unscrubbed(span, key))
        if found not in (None, but):
            return found
    return None


def failed(step: Step, span: SpanView) -> Step:
    """Puts on the step what the span says of a failure, and returns the step.

    The text of an exception event comes before the description of the status: instrumentations put
    whole tracebacks there (OpenInference LangChain). An exception event on a span whose status is
    OK was handled and is no failure.
    """
    attributes, status = span.attributes, span.status
    kind, decision = text(attributes.get("error.type")), attributes.get(DECISION_MESSAGE)
    thrown = next((found for name, found in span.events if name == "exception"), None)
    raised = text(attributes.get(_DEFERRAL) if thrown is None else thrown.get("exception.type"))
    if (raised or kind or "").rpartition(".")[2] in PUT_OFF:
        return put_off(step)
    if status != "error":
        if kind is None and (thrown is None or status == "ok"):
            return step
    elif decision is not None and span.description == decided(
        attributes.get(DECISION_ACTION), decision
    ):
        return step  # an exporter's mark of a decision about a call that went well
    message = text((thrown or {}).get("exception.message")) or text(span.description)
    if kind is None or (kind in _VAGUE and raised):
        kind = raised
    step.error = True
    # A code in place of a text (ADK) is the same for every failure: the text is unknown.
    step.error_text = None if message in _VAGUE else headline(message)
    if kind is None or kind in _VAGUE:
        kind = _type_in(step.error_text) or kind
    step.error_type = kind
    return step


def put_off(step: Step) -> Step:
    """Returns the step of work that waits for somebody's answer: no failure, and no call yet.

    A call that is made after all has a span of its own then, and counts once. One that is refused
    may be told by messages alone, which are read where no span has arguments.
    """
    if step.kind is Kind.TOOL:
        step.kind, step.args = Kind.OTHER, None
    return step


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
    """The text of an error up to its traceback; None if it is hidden."""
    if message is None or hidden(message):
        return None
    at = message.find(_TRACEBACK)
    if at < 0:
        return message
    # A text that is a traceback from its start on names the error in its last line.
    lines = message[:at].strip() or message.rstrip().rpartition("\n")[2].strip()
    return lines or message


def _type_in(message: str | None) -> str | None:
    """The type that the text of an error begins with."""
    if message is None:
        return None
    found = _LINE.match(message, 0, _TYPE_CHARS) or _REPR.match(message, 0, _TYPE_CHARS)
    return found[1] if found else None


def set_cost(step: Step, attributes: Mapping[str, object]) -> None:
    """Puts on a model's step what it cost, and which of its tokens a cache changes the price of.

    Where several conventions say it, the highest counts: they tell of the same call.
    """
    if step.cost is None and not _PRICED.isdisjoint(attributes):
        found = [_amount(attributes.get(key)) for key in _COSTS]
        found.append(_amount(within(attributes.get(_COST_DETAILS), "total")))
        step.cost = max((cost for cost in found if cost is not None), default=None)
    if step.tokens_in is not None:
        if step.cache_read is None:
            step.cache_read = _highest(attributes, _CACHE_READS)
        step.cache_write = _highest(attributes, _CACHE_WRITES)


def _highest(attributes: Mapping[str, object], keys: frozenset[str]) -> int | None:
    if keys.isdisjoint(attributes):
        return None
    found = (count(attributes.get(key)) for key in keys)
    return max((each for each in found if each is not None), default=None)


def _amount(value: object) -> float | None:
    """A number that is finite and not below 0, also one written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        # Nobody writes a number with more characters.
        amount = float(value) if not isinstance(value, str) or len(value) <= 40 else math.nan
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
