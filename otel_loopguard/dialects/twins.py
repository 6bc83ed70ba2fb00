"""When two spans tell of one call, and what one says beyond the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects.values import mapping, parsed

if TYPE_CHECKING:
    from otel_loopguard.dialects.view import SpanView

_COMPARED = 20_000
_PROTOCOL = "mcp"
_JOINTS = "_-./:"
_NAME_KEYS = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
_NOT_TOOLS = ("invoke_agent ", "create_agent ", "invoke_workflow ", "chat ", "agent_run ")


def contradict(one: object, other: object) -> bool:
    """Whether two forms of arguments cannot be those of one call.

    What is unknown contradicts nothing. JSON text equals its map; a plain text equals a map with
    that one value (OpenInference LangChain); maps agree if they agree in the keys that both have
    (defaults filled in by one side).
    """
    if one is None or other is None or one is other:
        return False
    if isinstance(one, str) and isinstance(other, str) and one == other:
        return False
    if _too_long(one) or _too_long(other):
        return False
    try:
        return not _agree(parsed(one), parsed(other))
    except (RecursionError, TypeError, ValueError):
        return False


def _too_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > _COMPARED


def _agree(one: object, other: object) -> bool:
    first, second = mapping(one), mapping(other)
    if first is not None and second is not None:
        shared = [key for key in first if key in second]
        if not shared:
            return not first or not second
        return all(_alike(first[key], second[key]) for key in shared)
    if first is not None:
        return _says(first, other)
    if second is not None:
        return _says(second, one)
    return _alike(one, other)


def _says(whole: Mapping[str, object], plain: object) -> bool:
    """Whether a map and something that is no map can be the same arguments."""
    if isinstance(plain, str) and plain[:1] == "{":
        return True  # cut JSON: it cannot be told
    if isinstance(plain, (list, tuple)):
        return True  # positions against names: it cannot be told
    return len(whole) == 1 and _alike(next(iter(whole.values())), plain)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple, Mapping)) or isinstance(other, (list, tuple, Mapping)):
        return one == other
    return one == other or str(one) == str(other)


def tells_of(span: SpanView, step: Step) -> bool:
    """Whether an open span may be another one of a tool call, by what is known of it so far."""
    name = step.name
    if not name or span.name.startswith(_NOT_TOOLS):
        return False
    if step.dialect == _PROTOCOL and name in span.name:
        return True
    attributes = span.attributes
    return _names(span.name, name) or any(attributes.get(key) == name for key in _NAME_KEYS)


def _names(span_name: str, name: str) -> bool:
    """Whether a span's name has a tool's name as a word of it."""
    at = span_name.find(name)
    if at < 0:
        return False
    end = at + len(name)
    return not (
        (at > 0 and _inside_word(span_name[at - 1]))
        or (end < len(span_name) and _inside_word(span_name[end]))
    )


def _inside_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def same_name(one: Step, other: Step) -> bool:
    """Whether kind and name of two steps fit one unit of work."""
    if one.kind is not other.kind:
        return False
    if one.name == other.name:
        return True
    if one.kind is Kind.TOOL:
        return _prefixed(one, other) or _prefixed(other, one)
    if one.kind is Kind.HANDOFF:
        return one.name is None or other.name is None
    if one.kind is Kind.MODEL:
        # `gpt-4o` is asked for, `gpt-4o-2024-08-06` answers; some do not name it at all.
        first, second = one.model, other.model
        return not first or not second or first.startswith(second) or second.startswith(first)
    return False


def _prefixed(served: Step, called: Step) -> bool:
    """Whether a protocol's tool is called under a name with the server's name before it."""
    if not (served.dialect == _PROTOCOL or ".mcp." in served.scope):
        return False
    name, longer = served.name, called.name
    if not name or not longer or not longer.endswith(name):
        return False
    return longer[-len(name) - 1] in _JOINTS


def absorb(step: Step, other: Step) -> None:
    """Fills in the step what only the other knows, and takes over its failure."""
    if step.args is None:
        step.args = other.args
    if step.outcome is None:
        step.outcome = other.outcome
    step.error = step.error or other.error
    step.error_text = step.error_text or other.error_text
    step.error_type = step.error_type or other.error_type
    if step.trace_id == other.trace_id:
        step.session = step.session or other.session
    step.agent = step.agent or other.agent
    step.node = step.node or other.node
    step.call_id = step.call_id or other.call_id
    if step.kind is Kind.HANDOFF:
        step.name = step.name or other.name
    elif step.kind is Kind.MODEL:
        step.model = step.model or other.model
        step.text = other.text if step.text is None else step.text
        step.tokens_in = other.tokens_in if step.tokens_in is None else step.tokens_in
        step.tokens_out = other.tokens_out if step.tokens_out is None else step.tokens_out
        step.cost = other.cost if step.cost is None else step.cost


def together(one: Step, other: Step) -> Step:
    """One step of two that were not counted yet: the more complete, with the rest filled in."""
    base, rest = (one, other) if len(one.lacks) <= len(other.lacks) else (other, one)
    absorb(base, rest)
    return base


def related(one: Step, other: Step) -> bool:
    """Whether one is the direct parent of the other."""
    return one.trace_id == other.trace_id and (
        one.parent_id == other.span_id or other.parent_id == one.span_id
    )


def encloses(one: Step, other: Step, tolerance: int) -> bool:
    """Whether the times of one lie within those of the other, either way."""
    first, second = one.end, other.end
    if first is None or second is None:
        return False
    return (one.start - tolerance <= other.start and second <= first + tolerance) or (
        other.start - tolerance <= one.start and first <= second + tolerance
    )


def overlaps(one: Step, other: Step, tolerance: int) -> bool:
    """Whether there was a time at which both ran, give or take the tolerance."""
    if one.end is None or other.end is None:
        return False
    return one.start <= other.end + tolerance and other.start <= one.end + tolerance


def same_tokens(one: Step, other: Step) -> bool:
    """Whether two model calls are known to have used the same tokens."""
    return one.tokens is not None and (one.tokens_in, one.tokens_out) == (
        other.tokens_in,
        other.tokens_out,
    )


def starts_near(one: Step, other: Step, tolerance: int) -> bool:
    """Whether both started at the same time, give or take the tolerance."""
    return -tolerance <= one.start - other.start <= tolerance


def ends_near(one: Step, other: Step, tolerance: int) -> bool:
    """Whether both ended at the same time, give or take the tolerance."""
    if one.end is None or other.end is None:
        return False
    return -tolerance <= one.end - other.end <= tolerance


def distance(other: Step, step: Step) -> tuple[bool, int]:
    """How far two steps are from being surely one call: equal ids first, then starts."""
    same_id = other.call_id is not None and other.call_id == step.call_id
    return (not same_id, abs(other.start - step.start))
