"""What instrumentations wrap around arguments and results, taken off.

Each dialect applies only the wrappings that it is known to make: a clean argument that happens to
be named `kwargs` must stay as it is. The shapes are those of real captures (docs/dialects.md).
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from otel_loopguard.bounded_json import string_at
from otel_loopguard.dialects.values import identifier, listing, mapping, parsed, text, unquoted

_LITERAL_LIMIT = 100_000
_SHORT_LITERAL = 10_000
_ESCAPED = 2_000
_LITERAL = re.compile(
    r"\A\s*(?:[(\[{'\"]|[rbu]['\"]|[-+]?[\d.][\d.eE+-]*\s*\Z|(?:True|False|None)\s*\Z)"
)
"""How the literals begin that a tool is given or gives; other text is not parsed."""
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = frozenset("\\'\"abfnrtvxuUN01234567\n")
_CUT_INPUT = '{"input_str": '
_CALL = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))


class Outcome(NamedTuple):
    """What a result says once it is unwrapped.

    Attributes:
        value: The result itself; None if there is none.
        call_id: Id of the tool call that the wrapping carried.
        error: Text of the error, for a result that says that it is one.
        failed: Whether the result says that it is an error.
    """

    value: object
    call_id: str | None = None
    error: str | None = None
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
    if value[len(_CUT_INPUT) : len(_CUT_INPUT) + 1] != '"':
        return value
    try:
        inner = string_at(value, len(_CUT_INPUT) + 1, True)[0]
    except ValueError:
        return value
    return literal(inner)


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
