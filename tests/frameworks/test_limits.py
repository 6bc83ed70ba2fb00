"""A framework's own limit: the model hears of it before it strikes, and no result is lost."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_loopguard import LoopGuardSpanProcessor, resilience, session
from tests.frameworks.simple_agents import AGENTS

PAGES = "one two three four five six seven eight nine ten".split()
LIMITS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    # A model call and a tool call are two steps of a graph.
    "langchain": ("langgraph.errors", "GraphRecursionError", 20, {}),
    "pydantic_ai": ("pydantic_ai", "UsageLimitExceeded", 10, {}),
    # The hooks are given the limit too.
    "openai_agents": ("agents", "MaxTurnsExceeded", 10, {"max_turns": 10}),
}


def search(query: str) -> str:
    """Reads a page."""
    return f"The page {query} says {query * 9}."


@pytest.mark.parametrize("name", LIMITS)
def test_the_model_hears_of_a_limit_and_no_result_is_lost(name: str) -> None:
    """At four fifths, once; when the limit strikes `resilience.parts` has what the tools gave."""
    module, error, steps, options = LIMITS[name]
    exceeded = getattr(pytest.importorskip(module), error)
    provider, heard, key = TracerProvider(), list[str](), f"limits-{uuid.uuid4().hex}"
    provider.add_span_processor(LoopGuardSpanProcessor())

    def asks(newest: str) -> dict[str, str]:
        heard.append(newest)
        return {"query": PAGES[len(heard) - 1]}

    run = AGENTS[name]("search", search, asks, steps=steps, tracer_provider=provider, **options)
    with session(key), pytest.raises(exceeded):
        run()
    warned = [number for number, text in enumerate(heard, 1) if "which ends the run" in text]
    assert len(warned) == 1
    assert 8 <= warned[0] <= 9
    assert len(resilience.parts(key)) >= 9
    assert "The page one says" in str(resilience.parts(key)[0])


def test_of_a_session_that_is_not_known_there_are_no_parts() -> None:
    """Nothing is raised."""
    assert resilience.parts("nobody") == ()
    assert resilience.parts() == ()
