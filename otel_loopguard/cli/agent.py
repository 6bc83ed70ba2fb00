"""The demo's agent: a small loop with a scripted model, and spans as GenAI conventions say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import Status, StatusCode

from otel_loopguard import control
from otel_loopguard.core import Action

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

    from otel_loopguard.control import Control

_TURNS: Final = 15
_QUERY: Final = {"query": "refund policy for order 4711"}
_FOUND: Final = '{"hits": [], "message": "nothing found in the knowledge base"}'

Report = Callable[[str, str], None]
"""Told what happens: one of `model`, `tool`, `guard`, `refused`, and a sentence."""


class StubbornAgent:
    """An agent whose model asks for the same search again and again, whatever it is told.

    Args:
        tracer: Makes its spans.
        report: Told what happens.
    """

    def __init__(self, tracer: Tracer, report: Report) -> None:
        self._tracer = tracer
        self._report = report
        self._told: str | None = None

    def run(self) -> str:
        """Runs the loop.

        Returns:
            Its answer, if nobody stops it in 15 turns.

        Raises:
            LoopGuardAbort: The guard has aborted the session.
        """
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
        name = "invoke_agent support"
        with self._tracer.start_as_current_span(name, attributes=attributes):
            for _ in range(_TURNS):
                control.check()
                state = control.current()
                self._tell(state)
                self._ask_model(state)
                self._search(state)
        return "I could not find it."

    def _tell(self, state: Control) -> None:
        if state.decision_id != self._told:
            self._told = state.decision_id
            self._report("guard", f"{state.action}: {state.hint or state.reason}")

    def _ask_model(self, state: Control) -> None:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted"}
        with self._tracer.start_as_current_span("chat scripted", attributes=attributes):
            told = state.action is not Action.ALLOW
            says = "I will search once more." if told else "Let me search the knowledge base."
            self._report("model", says)

    def _search(self, state: Control) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": json.dumps(_QUERY),
        }
        with self._tracer.start_as_current_span(
            "execute_tool search", attributes=attributes
        ) as span:
            if state.action is Action.DENY:
                span.set_attribute("error.type", "refused")
                span.set_status(Status(StatusCode.ERROR, "refused by the guard"))
                self._report("refused", f"search({_QUERY['query']!r}) is not run")
                return
            span.set_attribute("gen_ai.tool.call.result", _FOUND)
            self._report("tool", f"search({_QUERY['query']!r}) -> nothing found")
