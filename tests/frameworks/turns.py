"""Turns of conversations in a real framework: one JSON object, a case by name.

python turns.py langchain|openai_agents|pydantic_ai [--instrumented]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, session
from tests.frameworks.simple_agents import AGENTS

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

NAME, INSTRUMENTED = sys.argv[1], "--instrumented" in sys.argv
ANSWER = "sunny and warm in Paris, 21 degrees, light wind from the west"
decisions: list[Decision] = []
guard = LoopGuard(on_decision=lambda _, found: decisions.append(found))
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
ran: list[str] = []
asked: list[int] = []


def search(query: str) -> str:
    """Searches."""
    ran.append(query)
    return ANSWER


def asks(_: str) -> dict[str, str] | None:
    """The same call again, so many times in this turn."""
    asked[0] -= 1
    return {"query": "x"} if asked[0] >= 0 else None


def instrument() -> None:
    """With what people use; pydantic-ai writes its spans itself."""
    if NAME == "langchain":
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument(tracer_provider=provider)
    elif NAME == "openai_agents":
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    else:
        from pydantic_ai import Agent
        from pydantic_ai.models.instrumented import InstrumentationSettings

        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))


def outer() -> AbstractContextManager[Any]:
    """A trace around any number of runs; the SDK of OpenAI has its own."""
    if NAME == "openai_agents":
        from agents import trace as traced

        return traced("chat")
    return trace.get_tracer("my.app").start_as_current_span("chat")


run = AGENTS[NAME]("search", search, asks)
if INSTRUMENTED:
    instrument()


def turn(times: int) -> int:
    """One run, in which the model asks for the same call so many times; how many were made."""
    asked[:], before = [times], len(ran)
    try:
        run()
    except LoopGuardAbort:
        return before - len(ran)
    return len(ran) - before


def told() -> list[str]:
    """What was decided since it was asked last, but notes."""
    found = [one.action.value for one in decisions if one.action.rank]
    decisions.clear()
    return found


def case(inside: Callable[[], AbstractContextManager[Any]], around: Callable[[], Any]) -> object:
    """Twelve turns with the same question, a stuck one (negative: it was stopped), and two more."""
    with around():
        made: list[int] = []
        for _ in range(12):
            with inside():
                made.append(turn(1))
        before = told()
        with inside():
            stuck = turn(20)
        with inside():
            after = [turn(1)]
        with inside():
            after.append(turn(1))
    told()
    return {"made": sum(made), "told": before, "stuck": stuck < 0, "after": after}


def each() -> AbstractContextManager[Any]:
    """The session of a chat, entered anew in every turn."""
    return session(f"chat {NAME} {INSTRUMENTED}")


said = {
    "each": case(each, nullcontext),
    "once": case(nullcontext, lambda: session(f"job {NAME} {INSTRUMENTED}")),
    "both": case(lambda: session(f"both {NAME} {INSTRUMENTED}"), outer),
}
if INSTRUMENTED:
    said["outer"] = case(nullcontext, outer)
print(json.dumps(said))
