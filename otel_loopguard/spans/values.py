"""Attribute values as what they mean; unknown is not empty.

Each dialect applies only the wrappings that it is known to make: a clean argument that happens to
be named `kwargs` must stay as it is. The shapes are those of real captures (docs/opentelemetry.md).

OpenInference `llm.cost.total`, logfire and pydantic-ai `operation.cost`, OpenLIT and others
`gen_ai.usage.cost`, LiteLLM `gen_ai.cost.total_cost`, Langfuse `langfuse.observation.cost_details`
(a JSON map with `total`). All in USD.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.bounded_json import loads, string_at
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Kind, Step

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_SCRUBBED = "[Scrubbed due to "
_SCRUB = re.compile(r"""\[Scrubbed[ ]due[ ]to[ ](?:'[^'\n]{1,200}'|"[^"\n]{1,200}")\]""")
_SCRUB_IN_JSON = re.compile(
    r"""[:\[,]\s{0,2}"\[Scrubbed[ ]due[ ]to[ ](?:'[^'"\n]{1,200}'|\\"[^"\n]{1,200}\\")\]"
    (?=\s{0,2}[,}\]])""",
    re.VERBOSE,
)
_WALKED = 1_000
_LONGEST = 64
_PARSED = 10_000
_COUNTED = 10**12
_DIGITS = 19
_TAKEN_OUT: Final = re.compile(
    r"""\A(?:[\[<({_*#]+[ ]?(?:fully[ ])?
    (?:redacted|masked|hidden|filtered|scrubbed|replaced|omitted|not[ ]serializable|not[ ]specified)
    (?![a-z])[^\n]*[\]>)}_*#]
    | \*{2}[*\-. /]+ | redacted)""",
    re.IGNORECASE | re.VERBOSE,
)
_OPENERS = frozenset('{["')
_JSON = frozenset(('{"', '["'))
"""How JSON begins that no mask begins like."""
SUSPECT = frozenset('[<({_*#Rr"')
"""How text begins that may be hidden; other text need not be asked about."""
_ABSENT = frozenset(("", "null", "None"))


def text(value: object) -> str | None:
    """The value if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def mapping(value: object) -> Mapping[str, object] | None:
    """The value if it is a map, else None."""
    # Asking an abstract class costs ten times as much as asking `dict`.
    if isinstance(value, dict) or (value is not None and isinstance(value, Mapping)):
        return cast("Mapping[str, object]", value)
    return None


def listing(value: object) -> list[object] | tuple[object, ...] | None:
    """The value if it is a list or a tuple, else None."""
    return cast("list[object]", value) if isinstance(value, (list, tuple)) else None


def count(value: object) -> int | None:
    """A count, also one written as text (`"3287"`, as recordings have it); else None.

    What no model can have read or written, more than 10^12, is no count but a mistake.
    """
    if type(value) is int and 0 <= value <= _COUNTED:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if value.isdecimal() and len(value) < _DIGITS else None
    if isinstance(value, (int, float)) and 0 <= value <= _COUNTED:
        return int(value)
    return None


def first_count(attributes: Mapping[str, object], keys: tuple[str, ...]) -> int | None:
    """The first of these keys that has a count."""
    for key in keys:
        value = attributes.get(key)
        number = None if value is None else count(value)
        if number is not None:
            return number
    return None


def identifier(value: object) -> str | None:
    """An id as text; None for what is no id, is scrubbed, or is a written `null`."""
    if isinstance(value, str) and value[:1] in SUSPECT:
        value = known(unquoted(value))
    if isinstance(value, str):
        return None if value in _ABSENT else value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 129 else None
    return None


def first_identifier(
    span: SpanView, keys: tuple[str, ...], *, but: str | None = None, reveal: bool = False
) -> str | None:
    """The first id under these keys; `reveal` asks for what a hidden one was before."""
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value[:1] not in SUSPECT:
            found = None if value in _ABSENT else value
        else:
            found = identifier(value)
            if found is None and reveal:
                found = identifier(revealed(span, key, value))
        if found is not None and found != but:
            return found
    return None


def parsed(value: object) -> object:
    """JSON value of text that holds a JSON object, list or string; else the value as it is.

    Text that was cut by a limit does not parse and stays text, and so does text that is too costly
    to parse (`bounded_json`).
    """
    if isinstance(value, str) and value[:1] in _OPENERS and value:
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def unquoted(value: object) -> object:
    """JSON text that holds one string, as that string; else the value as it is."""
    if isinstance(value, str) and value[:1] == '"' and value[-1:] == '"':
        return parsed(value)
    return value


def captured(span: SpanView, *keys: str) -> object:
    """Value of the first key that is there; None if there is none, or if it is hidden.

    A hidden value is looked up among the attributes that another processor has not changed yet.
    """
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return revealed(span, key, value)
    return None


def revealed(span: SpanView, key: str, value: object) -> object:
    """The value, or what it was before it was hidden, or None if that is not known."""
    if not hidden(value):
        return value
    earlier = span.start_attributes
    return None if earlier is None else known(earlier.get(key))


def known(value: object) -> object:
    """The value, or None if it is hidden."""
    return None if hidden(value) else value


def hidden(value: object) -> bool:
    """Whether something stands in place of the value: it is unknown, and equal to nothing.

    What keeps content off spans leaves a word in its place, the same for every call:
    `__REDACTED__` (OpenInference, `OPENINFERENCE_HIDE_INPUTS` and others), `[REDACTED]` (Strands),
    `[Scrubbed due to …]` (logfire), `<fully masked due to …>` (Langfuse), `***` and the like of
    people's own masks. So does what cannot be written (`<replaced>` of Strands,
    `<not serializable>` of ADK). A map is hidden if all of its values are redacted, and JSON if
    logfire scrubbed one of its values; the words of a mask inside of a longer text hide nothing.
    """
    # A text of megabytes is not searched for it where it begins like none.
    if not isinstance(value, str) or value[:1] not in SUSPECT:
        return False
    if (
        value[:2] not in _JSON
        and len(value) <= _LONGEST
        and _TAKEN_OUT.fullmatch(value) is not None
    ):
        return True
    if value[0] in _OPENERS and _SCRUBBED in value and _scrubbed(value):
        return True
    # One by one: a pattern for all three takes ten times as long.
    marked = "REDACTED" in value or "***" in value or "redacted" in value
    if not marked or len(value) > _PARSED:
        return False
    inner = parsed(value)
    found = mapping(inner)
    values = (inner,) if found is None else found.values()
    return all(isinstance(one, str) and _TAKEN_OUT.fullmatch(one) for one in values)


def _scrubbed(value: str) -> bool:
    """Whether a value, or one within its JSON, was scrubbed; also within JSON in JSON."""
    if _SCRUB.fullmatch(value) is not None:
        return True
    whole = parsed(value)
    if whole is value:
        # It is cut, or too costly to parse.
        return _SCRUB_IN_JSON.search(value) is not None
    waiting: list[object] = [whole]
    for _ in range(_WALKED):
        if not waiting:
            return False
        one = waiting.pop()
        if isinstance(one, str) and _SCRUBBED in one:
            if _SCRUB.fullmatch(one) is not None:
                return True
            one = parsed(one)
        inner = mapping(one)
        waiting.extend((listing(one) or ()) if inner is None else inner.values())
    return _SCRUB_IN_JSON.search(value) is not None


def within(value: object, *path: str) -> object:
    """Value at a path of keys inside maps, parsing JSON text on the way; None if it ends."""
    for key in path:
        inner = mapping(parsed(value))
        if inner is None:
            return None
        value = inner.get(key)
    return value


def entry(written: object, key: str) -> str | None:
    """An id in a JSON map that may have been cut: read if it parses, else searched."""
    found = mapping(parsed(written))
    if found is not None:
        return identifier(found.get(key))
    if not isinstance(written, str):
        return None
    _, _, rest = written.partition(f'"{key}": "')
    value, closed, _ = rest.partition('"')
    return identifier(value) if closed else None


def begin(span: SpanView, kind: Kind, name: str | None, dialect: str) -> Step:
    """A step with what every span has: ids, scope and times."""
    start, end = span.start, span.end
    if start < 0:  # noqa: PLR1730  # a tenth of the price of max()
        start = 0
    if end is not None and end < start:
        end = start
    return Step(
        kind,
        name,
        dialect,
        span.scope,
        span.trace_id,
        span.span_id,
        span.parent_id,
        start,
        end,
    )


_LITERAL_LIMIT = 100_000
_SHORT_LITERAL = 10_000
_ESCAPED = 2_000
_LITERAL = re.compile(
    r"\A\s*(?:[(\[{'\"]|[rbu]['\"]|[-+]?[\d.][\d.eE+-]*\s*\Z|(?:True|False|None)\s*\Z)"
)
"""How the literals begin that a tool is given or gives; other text is not parsed."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("\\'\"abfnrtvxuUN01234567\n")
_CUT_INPUT = '{"input_str": "'
_CALL = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))
_NAMED_CALL: Final[frozenset[str]] = frozenset(("tool_name", "arguments"))


class Outcome(NamedTuple):
    """What a result says once it is unwrapped."""

    value: object
    call_id: str | None = None
    error: str | None = None  # its text, for a result that says that it is one
    failed: bool = False


def call_inputs(value: object) -> object:
    """`{"args": […], "kwargs": {…}}`, as `Tool.__call__` gets it: the arguments themselves.

    smolagents adds `sanitize_inputs_outputs`, which differs between kinds of agents.
    """
    call = mapping(parsed(value))
    if call is None or not _CALL.issuperset(call):
        return value
    args, kwargs = listing(call.get("args")), mapping(call.get("kwargs"))
    if not args:
        return value if kwargs is None else kwargs
    if not kwargs:
        return args[0] if len(args) == 1 and mapping(args[0]) else args
    return {"args": args, "kwargs": kwargs}


def run_inputs(value: object) -> tuple[object, str | None]:
    """OpenLLMetry LangChain `{"input_str", "inputs", "metadata", "kwargs"}`: inputs and call id.

    The rest (graph step, checkpoint ids, call id) differs for equal calls.
    """
    run = mapping(parsed(value))
    if run is None:
        return _cut_inputs(value), None
    if "input_str" not in run:
        return value, None
    options = mapping(run.get("kwargs")) or {}
    call_id = identifier(options.get("tool_call_id"))
    inputs = run.get("inputs")
    return (literal(run["input_str"]) if inputs is None else inputs), call_id


def _cut_inputs(value: object) -> object:
    if not (isinstance(value, str) and value.startswith(_CUT_INPUT)):
        return value
    try:
        return literal(string_at(value, len(_CUT_INPUT), True)[0])
    except ValueError:
        return value


def literal(value: object) -> object:
    """Value of a Python literal (`"{'x': 1}"`); other text stays text."""
    if not isinstance(value, str) or not _LITERAL.match(value, 0, _LITERAL_LIMIT):
        return value
    if len(value) > _SHORT_LITERAL and not _is_one_string(value):
        return value
    try:
        return ast.literal_eval(_ESCAPE.sub(_escaped, value) if "\\" in value else value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _is_one_string(value: str) -> bool:
    """Whether a long literal is one string, which is cheap; a value of many is not (100 ms)."""
    if len(value) > _LITERAL_LIMIT or value.count("\\") > _ESCAPED:
        return False
    quote = value[0]
    return quote in "'\"" and value.count(quote) - value.count(f"\\{quote}") == 2


def _escaped(found: re.Match[str]) -> str:
    """An escape as it is, or the two characters that are none: of those the compiler warns."""
    return found[0] if found[1] in _ESCAPES else f"\\{found[0]}"


def tool_message(value: object) -> Outcome:
    """A serialised LangChain `ToolMessage`, in any of its shapes: its content and call id.

    Shapes: `{"output": {"kwargs": {"content"}}}` (OpenLLMetry), `{"type": "tool", "data":
    {"content"}}` (OpenInference), `{"output": {"content"}}` (LangSmith), `{"type": "tool",
    "content"}` (Langfuse), and `{"update": {"messages": [one of these]}}` (a `Command` that changes
    nothing else). Other results stay as they are.
    """
    outer = mapping(parsed(value))
    if outer is None:
        return Outcome(unquoted(value))
    if "output" in outer and outer.keys() <= {"output", "kwargs"}:
        inner = outer["output"]
        outer = mapping(inner)
        if outer is None:
            return Outcome(inner)
        value = inner
    message = _message(outer)
    if message is None:
        return Outcome(value)
    content = texts(message["content"])
    failure = message.get("status") == "error"
    call_id = identifier(message.get("tool_call_id"))
    return Outcome(content, call_id, text(content) if failure else None, failure)


def _message(outer: object) -> dict[str, object] | None:
    """The map that holds the content of a tool message, whatever wraps it."""
    found = mapping(outer) or {}
    update = mapping(found.get("update"))
    if update is not None and set(update) == {"messages"}:
        told = listing(update["messages"]) or ()
        found = (mapping(told[0]) if len(told) == 1 else None) or {}
    for inner in (found, mapping(found.get("data")), mapping(found.get("kwargs"))):
        if inner is not None and "content" in inner and "tool_call_id" in inner:
            return dict(inner)
    return None


def tool_output(value: object) -> Outcome:
    """A LlamaIndex `ToolOutput`: the texts of its blocks."""
    output = mapping(parsed(value))
    if output is None or "blocks" not in output:
        return Outcome(value)
    content = texts(output["blocks"])
    failure = output.get("is_error") is True
    return Outcome(content, None, text(content) if failure else None, failure)


def agent_result(value: object) -> Outcome:
    """ADK `{"result": X}` and `{"error": X}`, also inside `{"id", "name", "response"}`."""
    outer = mapping(parsed(value))
    if outer is not None and set(outer) == {"id", "name", "response"}:
        value = outer["response"]
        outer = mapping(parsed(value))
    if outer is None:
        return Outcome(unquoted(value))
    if set(outer) == {"result"}:
        return Outcome(outer["result"])
    if set(outer) == {"error"}:
        return Outcome(None, None, text(outer["error"]), True)
    return Outcome(value)


def execution_result(value: object) -> Outcome:
    """The Python repr of agno's `FunctionExecutionResult`: its result, its error, its status.

    A failed agno call has status OK on its span: only this text says that it failed.
    """
    if not isinstance(value, str) or not value.startswith("status='"):
        return Outcome(value)
    failure = value.startswith("status='failure'")
    # Searched from the end: a result may hold anything, the fields behind it do not.
    end = value.rfind(" updated_session_state=")
    middle = value.rfind(" error=", 0, end)
    at = value.find(" result=")
    if not 0 <= at < middle < end:
        return Outcome(value, failed=failure)
    result = literal(value[at + len(" result=") : middle])
    error = literal(value[middle + len(" error=") : end])
    return Outcome(result, None, text(error), failure or error is not None)


def protocol_result(value: object) -> Outcome:
    """OpenLLMetry MCP `{"result": X, "is_error"?: true}`."""
    outer = mapping(parsed(value))
    if outer is None or "result" not in outer or not outer.keys() <= {"result", "is_error"}:
        return Outcome(value)
    result = outer["result"]
    failure = outer.get("is_error") is True
    return Outcome(result, None, text(result) if failure else None, failure)


_OUTPUTS: Final = (tool_message, tool_output, agent_result, execution_result, protocol_result)


def shaped_output(value: object) -> Outcome:
    """A result of no known writer, as a span without a scope has it: unwrapped by its shape."""
    for unwrap in _OUTPUTS:
        found = unwrap(value)
        if found.value is not value or found.failed:
            return found
    return Outcome(value)


def shaped_inputs(value: object) -> tuple[object, str | None]:
    """Arguments of no known writer, unwrapped by their shape, and the call id."""
    args, call_id = run_inputs(value)
    if args is value:
        named = mapping(parsed(value))
        args = (
            named["arguments"] if named and frozenset(named) == _NAMED_CALL else call_inputs(value)
        )
    return args, call_id


def texts(value: object) -> object:
    """Blocks of text (`[{"text": …}]`) as their text; other values stay as they are."""
    blocks = listing(parsed(value))
    if not blocks:
        return value
    found: list[str] = []
    for block in blocks:
        inner = (mapping(block) or {}).get("text")
        if not isinstance(inner, str):
            return value
        found.append(inner)
    return "\n".join(found)


_KEYS: Final = frozenset(
    (
        "llm.cost.total",
        "operation.cost",
        "gen_ai.usage.cost",
        "gen_ai.cost.total_cost",
        "litellm.cost.total",
    )
)
_DETAILS: Final = "langfuse.observation.cost_details"


def cost_of(attributes: Mapping[str, object]) -> float | None:
    """Cost of a model call in USD; None if the span does not say it.

    Where several conventions say it, the highest: they tell of the same call.
    """
    if _KEYS.isdisjoint(attributes) and _DETAILS not in attributes:
        return None
    found = [_amount(attributes[key]) for key in _KEYS.intersection(attributes)]
    if _DETAILS in attributes:
        found.append(_amount(within(attributes[_DETAILS], "total")))
    return max((cost for cost in found if cost is not None), default=None)


_READ: Final = frozenset(
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "llm.token_count.prompt_details.cache_read",
        "ai.usage.cachedInputTokens",
        "ai.usage.inputTokenDetails.cacheReadTokens",
        "cache_read_tokens",
        "cached_content_token_count",
        "cached_token_count",
    )
)
_CACHES: Final = _READ | {
    "gen_ai.usage.cache_write.input_tokens",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens",
    "gen_ai.usage.details.cache_write_tokens",
    "llm.token_count.prompt_details.cache_write",
    "ai.usage.inputTokenDetails.cacheWriteTokens",
    "cache_creation_tokens",
}
_NEITHER: Final = (None, None)


def cached_of(attributes: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Input tokens of a model call that came out of a cache, and that were put into one."""
    if _CACHES.isdisjoint(attributes):
        return _NEITHER
    said = _CACHES.intersection(attributes)
    return _most(attributes, said & _READ), _most(attributes, said - _READ)


def _most(attributes: Mapping[str, object], keys: frozenset[str]) -> int | None:
    found = (count(attributes[key]) for key in keys)
    return max((each for each in found if each is not None), default=None)


def _amount(value: object) -> float | None:
    """A number that is finite and not below 0, also one written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        amount = float(value) if not isinstance(value, str) or len(value) <= 40 else math.nan
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
