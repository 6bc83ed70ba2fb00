"""Arguments and results without what instrumentations wrap around them.

Each dialect takes off only what its instrumentations are known to wrap: a clean argument that
happens to be named `kwargs` stays as it is. The shapes are those of real captures
(docs/reference.md).
"""

from __future__ import annotations

import ast
import re
from typing import Final, NamedTuple

from otel_loopguard._util.bounded import string_at
from otel_loopguard.spans.values import identifier, listing, mapping, parsed, text, texts, unquoted

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
        return args[0] if len(args) == 1 and mapping(args[0]) else args
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
    nothing else).
    """
    outer = mapping(parsed(value))
    if outer is None:
        return Outcome(unquoted(value))
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
