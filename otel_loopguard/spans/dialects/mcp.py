"""Model Context Protocol: `mcp.method.name`, as the Python SDK 2.x writes it.

https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/. Client spans of `tools/call` have no keys
of GenAI; neither side has arguments or results, and the client is OK for a result that is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects.genai import NAME as GENAI
from otel_loopguard.spans.dialects.genai import tool
from otel_loopguard.spans.errors import failed
from otel_loopguard.spans.values import begin

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "mcp"


class Mcp:
    """Reads spans that have `mcp.method.name`."""

    name = NAME
    marks = frozenset(("mcp.method.name",))
    builds_on = GENAI
    scopes = ("mcp", "mcp-python-sdk*", "fastmcp*")
    key_prefixes = ("mcp.",)

    def read(self, span: SpanView) -> Step | None:
        """A tool call for `tools/call`, another exchange for other methods, else None."""
        method = span.attributes.get("mcp.method.name")
        if not isinstance(method, str):
            return None
        serving = span.kind == "SERVER"
        if method == "tools/call":
            step = tool(span, NAME)
        else:
            kind = Kind.MCP_SERVER if serving else Kind.MCP_CLIENT
            step = failed(begin(span, kind, method, NAME), span)
        step.server = serving
        return step
