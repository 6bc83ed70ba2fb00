"""AutoGen 0.7: GenAI names without arguments and results, and its runtime's messages.

A run has dozens of traces: each message that is published is a root. What ties them together is
the uuid of the team, which stands in the ids of agents (`looper_<uuid>/<uuid>`) and in the names of
topics.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.errors import failed
from otel_loopguard.spans.values import begin

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

NAME = "autogen"

_SYSTEM = "autogen"
_UUID = re.compile(r"_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=[/.]|$)")
_TEAM_KEYS = (
    "gen_ai.agent.id",
    "recipient_agent_type",
    "sender_agent_type",
    "messaging.destination",
)


class AutoGen:
    """Reads spans of `autogen-core` and of AutoGen's runtimes."""

    name = NAME
    marks = frozenset(
        ("gen_ai.system", "recipient_agent_type", "sender_agent_type", "messaging.destination")
    )
    builds_on = genai.NAME
    scopes = ("autogen*",)
    key_prefixes = ("recipient_agent", "sender_agent")

    def read(self, span: SpanView) -> Step | None:
        """Step of the span; a message of the runtime is of no interest but for its session."""
        if span.attributes.get("gen_ai.system") == _SYSTEM:
            step = genai.read(span, NAME)
        elif span.scope.startswith("autogen "):
            step = failed(begin(span, Kind.OTHER, span.name, NAME), span)
        else:
            return None
        if step is not None:
            step.session = _team(span)
        return step


def _team(span: SpanView) -> str | None:
    for key in _TEAM_KEYS:
        value = span.attributes.get(key)
        found = _UUID.search(value[:512]) if isinstance(value, str) else None
        if found:
            return found[1]
    return None
