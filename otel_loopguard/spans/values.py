"""Values that others wrote, as what they mean: of any type, JSON text of one, cut, or hidden.

None stands for what is not there or not known, and is never empty.

Of what instrumentations wrap around arguments and results, each dialect takes off only what its own
are known to wrap: a clean argument that happens to be named `kwargs` stays as it is. The shapes are
those of real captures (docs/reference.md).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from sys import getsizeof
from typing import Final, NamedTuple, cast

from otel_loopguard._util.bounded import loads, string_at

_SCRUBBED: Final = "[Scrubbed due to "
_SCRUB: Final = re.compile(r"""\[Scrubbed[ ]due[ ]to[ ](?:'[^'\n]{1,200}'|"[^"\n]{1,200}")\]""")
_SCRUB_IN_JSON: Final = re.compile(
    r"""[:\[,]\s{0,2}"\[Scrubbed[ ]due[ ]to[ ](?:'[^'"\n]{1,200}'|\\"[^"\n]{1,200}\\")\]"
    (?=\s{0,2}[,}\]])""",
    re.VERBOSE,
)
_MASK: Final = re.compile(
    r"""\A(?:[\[<({_*#]+[ ]?(?:fully[ ])?
    (?:redacted|masked|hidden|filtered|scrubbed|replaced|omitted|not[ ]serializable|not[ ]specified)
    (?![a-z])[^\n]*[\]>)}_*#]
    | \*{2}[*\-. /]+ | redacted | hidden:[a-z-]+)""",
    re.IGNORECASE | re.VERBOSE,
)
_MASK_CHARS: Final = 64
"""Characters of the longest mask. The longest seen, Langfuse's `<fully masked due to failed mask
function>`, has 42; longer text is content that begins like one."""
_MASKED_JSON_CHARS: Final = 10_000
"""Characters of JSON that is parsed to see whether all it holds is masked (50 µs). Masks are short:
what is longer holds content as well."""
_SCRUB_LOOKS: Final = 1_000
"""Values of JSON, and of JSON inside it, among which a scrubbed one is looked for (1 ms). A text
with more is searched by the pattern alone, which misses JSON inside JSON."""
_MOST_TOKENS: Final = 10**12
"""No model has read or written more: a larger count is a mistake, and would eat a budget whole."""
_OPENERS: Final = frozenset('{["')
_JSON: Final = frozenset(('{"', '["'))
"""Beginnings of JSON that are no beginnings of masks."""
LONGEST_ID: Final = 1_000
"""Characters of the longest id: an address has some hundreds. A table keeps thousands of them."""
SUSPECT: Final = frozenset('[<({_*#HhRr"')
"""Beginnings of text that may be hidden; other text need not be asked about."""
_PLAIN: Final = frozenset((str, dict, list, tuple, int, float, bool, bytes))
_ABSENT: Final = frozenset(("", "null", "None"))


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
    """The value if it is a count up to 10^12, also one written as text; else None."""
    # Bounded first: `int` raises for text of more than 4,300 digits.
    if isinstance(value, str) and len(value) < 19 and value.isdecimal():
        value = int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if 0 <= value <= _MOST_TOKENS else None
    return None


def first_count(attributes: Mapping[str, object], keys: Sequence[str]) -> int | None:
    """The count under the first of these keys that has one."""
    for key in keys:
        found = count(attributes.get(key))
        if found is not None:
            return found
    return None


def identifier(value: object) -> str | None:
    """An id as text; None for other values, scrubbed or overlong ones, and a written `null`."""
    if isinstance(value, str) and value[:1] in SUSPECT:
        value = known(unquoted(value))
    if isinstance(value, str):
        return None if value in _ABSENT or len(value) > LONGEST_ID else value
    if isinstance(value, int) and not isinstance(value, bool):
        # Ids of 128 bits are written as numbers; longer ones are attacks on `str`.
        return str(value) if value.bit_length() <= 128 else None
    return None


def is_long(value: object, most: int) -> bool:
    """True if a value has more characters than `most` in all, or is not a value of JSON."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kind = type(one)
        if kind not in _PLAIN:
            return one is not None
        most -= len(cast("str", one)) if kind is str else getsizeof(one)
        if most < 0:
            return True
        if kind is dict:
            named = cast("dict[object, object]", one)
            waiting += [*named, *named.values()]
        elif kind is list or kind is tuple:
            waiting += cast("list[object]", one)
    return False


def parsed(value: object) -> object:
    """The value of JSON text of an object, a list or a string; other values as they are.

    Text that was cut does not parse and stays text, and so does text that is too costly to parse
    (`bounded.loads`).
    """
    if isinstance(value, str) and value[:1] in _OPENERS and value:
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def unquoted(value: object) -> object:
    """The string in JSON text of one; other values as they are."""
    return parsed(value) if isinstance(value, str) and value[:1] == '"' == value[-1:] else value


def known(value: object) -> object:
    """The value, or None if it is hidden."""
    return None if hidden(value) else value


def hidden(value: object) -> bool:
    """True if something stands in place of the value, which is unknown then.

    What keeps content off spans leaves the same word for every call: `__REDACTED__` (OpenInference,
    `OPENINFERENCE_HIDE_INPUTS` and others), `[REDACTED]` (Strands), `[Scrubbed due to …]`
    (logfire), `<fully masked due to …>` (Langfuse), `HIDDEN:non-empty` (Koog), `***` and the like
    of people's own masks. So does what cannot be written: `<replaced>` (Strands), `<not
    serializable>` (ADK). A map is hidden if all of its values are, and JSON if logfire scrubbed one
    of its values. A mask within a longer text hides nothing.
    """
    # First of all: a text of megabytes that begins like no mask is not searched.
    if not isinstance(value, str) or value[:1] not in SUSPECT:
        return False
    if value[:2] not in _JSON and len(value) <= _MASK_CHARS and _MASK.fullmatch(value):
        return True
    if value[0] in _OPENERS and _SCRUBBED in value and _scrubbed(value):
        return True
    if len(value) > _MASKED_JSON_CHARS:
        return False
    # One by one: a pattern for all three takes ten times as long.
    if "REDACTED" not in value and "***" not in value and "redacted" not in value:
        return False
    inner = parsed(value)
    found = mapping(inner)
    values = (inner,) if found is None else found.values()
    return all(isinstance(one, str) and _MASK.fullmatch(one) for one in values)


def _scrubbed(value: str) -> bool:
    """True if a value, or one within its JSON or JSON in JSON, was scrubbed."""
    if _SCRUB.fullmatch(value) is not None:
        return True
    whole = parsed(value)
    # A text that does not parse is cut, or too costly.
    waiting = [] if whole is value else [whole]
    for _ in range(_SCRUB_LOOKS if waiting else 0):
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
    """The value at a path of keys in maps and in JSON text of maps; None if there is none."""
    for key in path:
        inner = mapping(parsed(value))
        if inner is None:
            return None
        value = inner.get(key)
    return value


def entry(written: object, key: str) -> str | None:
    """The id under a key of a JSON map, which is searched if it was cut and does not parse."""
    found = mapping(parsed(written))
    if found is not None:
        return identifier(found.get(key))
    if not isinstance(written, str):
        return None
    value, closed, _ = written.partition(f'"{key}": "')[2].partition('"')
    return identifier(value) if closed else None


def texts(value: object) -> object:
    """The text of blocks of text (`[{"text": …}]`), one a line; other values as they are."""
    blocks = listing(parsed(value))
    if not blocks:
        return value
    found = [(mapping(block) or {}).get("text") for block in blocks]
    said = [block for block in found if isinstance(block, str)]
    return "\n".join(said) if len(said) == len(found) else value


_LITERAL_CHARS: Final = 100_000
"""Characters of a Python literal that is evaluated: of one string the compiler makes 1 ms."""
_MIXED_LITERAL_CHARS: Final = 10_000
"""The same for a literal of many values: ten times as dear as one string (25 ms at worst)."""
_ESCAPES_IN_LITERAL: Final = 2_000
"""Escapes in a long literal, each of which is looked at in Python (1.5 ms)."""
_LITERAL: Final = re.compile(
    r"\A\s*(?:[(\[{'\"]|[rbu]['\"]|[-+]?[\d.][\d.eE+-]*\s*\Z|(?:True|False|None)\s*\Z)"
)
"""Beginnings of the literals that a tool is given or gives; other text is not parsed."""
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = frozenset("\\'\"abfnrtvxuUN01234567\n")
_PRINTED: Final = re.compile(
    r"""\Acontent=('[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"|\[.*\])(?=[ ]|\Z)""",
    re.DOTALL | re.VERBOSE,
)
"""The content of a tool's message as text. What is behind it is looked for apart: two repetitions
of anything in a row might take the square of the text's length."""
_PRINTED_ID: Final = " tool_call_id='"
_CUT_INPUT: Final = '{"input_str": "'
_CALL: Final = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))


class Outcome(NamedTuple):
    """A result without its wrapping."""

    value: object
    call_id: str | None = None
    error: str | None = None  # its text, for a result that says that it is one
    failed: bool = False


def call_inputs(value: object) -> object:
    """The arguments in `{"args": […], "kwargs": {…}}`, which `Tool.__call__` gets.

    smolagents adds `sanitize_inputs_outputs`, which differs between kinds of agents.
    """
    call = mapping(parsed(value))
    if call is None or not _CALL.issuperset(call):
        return value
    args, kwargs = listing(call.get("args")), mapping(call.get("kwargs"))
    if not args:
        return value if kwargs is None else kwargs
    if not kwargs:
        return args[0] if len(args) == 1 and mapping(parsed(args[0])) else args
    return {"args": args, "kwargs": kwargs}


def run_inputs(value: object) -> tuple[object, str | None]:
    """Inputs and call id in LangChain's `{"input_str", "inputs", "metadata", "kwargs"}`.

    The rest (graph step, checkpoint ids) differs for equal calls.
    """
    run = mapping(parsed(value))
    if run is None:
        return _cut_inputs(value), None
    if "input_str" not in run:
        return value, None
    options = mapping(run.get("kwargs")) or {}
    inputs = run.get("inputs")
    inputs = literal(run["input_str"]) if inputs is None else inputs
    return inputs, identifier(options.get("tool_call_id"))


def _cut_inputs(value: object) -> object:
    if not (isinstance(value, str) and value.startswith(_CUT_INPUT)):
        return value
    try:
        return literal(string_at(value, len(_CUT_INPUT), True)[0])
    except ValueError:
        return value


def literal(value: object) -> object:
    """The value of a Python literal (`"{'x': 1}"`); other text stays text."""
    if not isinstance(value, str) or not _LITERAL.match(value, 0, _LITERAL_CHARS):
        return value
    if len(value) > _MIXED_LITERAL_CHARS and not _is_one_string(value):
        return value
    try:
        return ast.literal_eval(_ESCAPE.sub(_escaped, value) if "\\" in value else value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _is_one_string(value: str) -> bool:
    """True if a long literal is one string, which is cheap; one of many values takes 250 ms."""
    if len(value) > _LITERAL_CHARS or value.count("\\") > _ESCAPES_IN_LITERAL:
        return False
    quote = value[0]
    return quote in "'\"" and value.count(quote) - value.count(f"\\{quote}") == 2


def _escaped(found: re.Match[str]) -> str:
    """Doubles the backslash of an invalid escape, which the compiler would warn of."""
    return found[0] if found[1] in _ESCAPES else f"\\{found[0]}"


def tool_message(value: object) -> Outcome:
    """Content and call id of a serialised LangChain `ToolMessage`; other results as they are.

    Shapes: `{"output": {"kwargs": {"content"}}}` (OpenLLMetry), `{"type": "tool", "data":
    {"content"}}` (OpenInference), `{"output": {"content"}}` (LangSmith), `{"type": "tool",
    "content"}` (Langfuse), and `{"update": {"messages": [one of these]}}` (a `Command` that changes
    nothing else), and what `str` makes of one (OpenLIT).
    """
    outer = mapping(parsed(value))
    if outer is None:
        head, told, tail = value.rpartition(_PRINTED_ID) if isinstance(value, str) else ("",) * 3
        printed = _PRINTED.match(head) if told else None
        if printed is None:
            return Outcome(unquoted(value))
        failed = " status='error'" in tail
        return _outcome(texts(literal(printed[1])), failed, tail.partition("'")[0])
    if "output" in outer and outer.keys() <= {"output", "kwargs"}:
        value = outer["output"]
        outer = mapping(value)
        if outer is None:
            return Outcome(value)
    update = mapping(outer.get("update"))
    if update is not None and set(update) == {"messages"}:
        messages = listing(update["messages"]) or ()
        outer = (mapping(messages[0]) if len(messages) == 1 else None) or {}
    for message in (outer, mapping(outer.get("data")), mapping(outer.get("kwargs"))):
        if message is not None and "content" in message and "tool_call_id" in message:
            call_id = identifier(message.get("tool_call_id"))
            return _outcome(texts(message["content"]), message.get("status") == "error", call_id)
    return Outcome(value)


def _outcome(value: object, failed: bool, call_id: str | None = None) -> Outcome:
    """The outcome of a call whose result is the text of its error if it failed."""
    return Outcome(value, call_id, text(value) if failed else None, failed)


def plain(value: object) -> Outcome:
    """A result as it is; a text may be written as JSON, as Traceloop's decorators do."""
    return Outcome(unquoted(value))


def tool_output(value: object) -> Outcome:
    """The texts of the blocks of a LlamaIndex `ToolOutput`."""
    output = mapping(parsed(value))
    if output is None or "blocks" not in output:
        return Outcome(value)
    return _outcome(texts(output["blocks"]), output.get("is_error") is True)


def agent_result(value: object) -> Outcome:
    """The content of ADK's `{"result": X}` or `{"error": X}`, also as the `response` of a call."""
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
    """Result, error and status in the Python repr of agno's `FunctionExecutionResult`.

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
    """The result in OpenLLMetry MCP's `{"result": X, "is_error"?: true}`."""
    outer = mapping(parsed(value))
    if outer is None or "result" not in outer or not outer.keys() <= {"result", "is_error"}:
        return Outcome(value)
    return _outcome(outer["result"], outer.get("is_error") is True)


def shaped_output(value: object) -> Outcome:
    """A result of no known writer, as a span without a scope has it, unwrapped by its shape."""
    for unwrap in (tool_message, tool_output, agent_result, execution_result, protocol_result):
        found = unwrap(value)
        if found.value is not value or found.failed:
            return found
    return Outcome(value)


def shaped_inputs(value: object) -> tuple[object, str | None]:
    """Arguments of no known writer, unwrapped by their shape, and the call id."""
    args, call_id = run_inputs(value)
    if args is value:
        named = mapping(parsed(value)) or {}
        is_named = set(named) == {"tool_name", "arguments"}
        args = named["arguments"] if is_named else call_inputs(value)
    return args, call_id
