"""Names that instrumentations put into the name of a span."""

from __future__ import annotations

_BEFORE = ("execute_tool ", "MCP send tools/call ", "tools/call ")
_AFTER = (".tool", ".run")


def tool_in(span_name: str) -> str | None:
    """Name of the tool in the name of a tool's span; None if the span name has none.

    `execute_tool X`, `MCP send tools/call X`, `tools/call X`, `X.tool`, `X.run`; others are the
    name of the tool itself (LangChain, Langfuse).
    """
    for prefix in _BEFORE:
        if span_name.startswith(prefix):
            return span_name[len(prefix) :] or None
    for suffix in _AFTER:
        if span_name.endswith(suffix):
            return span_name[: -len(suffix)] or None
    return span_name or None


def after(span_name: str, prefix: str) -> str:
    """The span name without a prefix, if it has it."""
    return span_name.removeprefix(prefix) or span_name
