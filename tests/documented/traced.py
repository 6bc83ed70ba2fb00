"""An agent that writes real spans, on a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Span, StatusCode, set_span_in_context

from tests.calls import EPOCH, SECOND
from tests.hostile.rig import Rig


@dataclass
class Traced:
    """Spans of one agent, through a real provider with the processor on it.

    Attributes:
        settings: Settings of the guard. Spans that began years ago are no stalls.
        now: The clock, in seconds after the epoch of the tests.
    """

    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    now: float = 0.0

    def __post_init__(self) -> None:
        self.rig = Rig({"step_timeout_s": 1e9, **self.settings})
        self._above: Span | None = None

    @property
    def actions(self) -> list[str]:
        """Actions decided so far, in order."""
        return [one.action.value for one in self.rig.decisions if one.action.rank]

    @contextmanager
    def running(
        self, conversation: str | None = None, name: str = "a", task: str = ""
    ) -> Generator[Span, None, None]:
        """One run of the agent."""
        own = {} if conversation is None else {"gen_ai.conversation.id": conversation}
        own |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        if task:
            own["gen_ai.input.messages"] = _message("user", task)
        above, began = self._above, self._nanoseconds()
        self._above = self._span(f"invoke_agent {name}", own, began)
        try:
            yield self._above
        finally:
            self._above.end(self._nanoseconds())
            self._above = above

    def call(
        self, tool: str, args: str | None, result: str | None = None, *, error: str | None = None,
        idle: float = 1.0, took: float = 0.5,
    ) -> None:  # fmt: skip
        """One tool call, after `idle` seconds of nothing."""
        self.now += idle
        began, self.now = self._nanoseconds(), self.now + took
        self._end(self._tool(tool, args, began), result, error)

    def round(self, calls: list[tuple[str, str, str]], took: float = 0.5) -> None:
        """Calls that run side by side."""
        self.now += 1
        began, self.now = self._nanoseconds(), self.now + took
        spans = [(self._tool(tool, args, began), result) for tool, args, result in calls]
        for span, result in spans:
            self._end(span, result, None)

    def model(self, text: str = "", took: float = 2.0, agent: str = "") -> None:
        """One call of the model."""
        own = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        if agent:
            own["gen_ai.agent.name"] = agent
        if text:
            own["gen_ai.output.messages"] = _message("assistant", text)
        began, self.now = self._nanoseconds(), self.now + took
        self._span("chat m", own, began).end(self._nanoseconds())

    def _tool(self, tool: str, args: str | None, began: int) -> Span:
        own = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        if args is not None:
            own["gen_ai.tool.call.arguments"] = args
        return self._span(f"execute_tool {tool}", own, began)

    def _end(self, span: Span, result: str | None, error: str | None) -> None:
        if result is not None:
            span.set_attribute("gen_ai.tool.call.result", result)
        if error is not None:
            span.set_attribute("error.type", "ToolError")
            span.set_status(StatusCode.ERROR, error)
        span.end(self._nanoseconds())

    def _span(self, name: str, attributes: dict[str, str], began: int) -> Span:
        above = None if self._above is None else set_span_in_context(self._above)
        return self.rig.tracer.start_span(name, above, attributes=attributes, start_time=began)

    def _nanoseconds(self) -> int:
        return EPOCH + round(self.now * SECOND)


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
