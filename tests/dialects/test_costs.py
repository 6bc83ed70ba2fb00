"""What a model call cost."""

from __future__ import annotations

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dedup import absorb
from tests.dialects.spans import TOOL, ended, ended_oi, read

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1}


@pytest.mark.parametrize(
    ("attributes", "cost"),
    [
        ({"operation.cost": 0.0025}, 0.0025),
        ({"gen_ai.usage.cost": "0.0025"}, 0.0025),
        ({"gen_ai.cost.total_cost": 0.0025}, 0.0025),
        ({"litellm.cost.total": 0}, 0.0),
        ({"operation.cost": 0.0025, "gen_ai.usage.cost": 0.002}, 0.0025),
        ({"langfuse.observation.cost_details": '{"input": 0.001, "total": 0.0025}'}, 0.0025),
        ({"operation.cost": -1}, None),
        ({"operation.cost": float("nan")}, None),
        ({"operation.cost": "much"}, None),
        ({"operation.cost": True}, None),
        ({"langfuse.observation.cost_details": "{cut"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_cost_of_a_model_call(attributes: dict[str, object], cost: float | None) -> None:
    """In the names of several conventions; what is no amount is unknown."""
    assert read(ended("chat m", "x", {**CHAT, **attributes})).cost == cost


def test_openinference_names_it_too() -> None:
    """`llm.cost.total`."""
    span = ended_oi("call", "x", {TOOL: "LLM", "llm.token_count.prompt": 1, "llm.cost.total": 0.5})
    assert read(span).cost == 0.5


def test_an_agent_has_none() -> None:
    """Its totals are those of its model calls."""
    span = ended("a", "x", {"gen_ai.operation.name": "invoke_agent", "operation.cost": 0.5})
    assert read(span).cost is None


def test_a_twin_fills_it_in() -> None:
    """Of two spans about one call one may say what it cost."""
    known = Step(Kind.MODEL, "m", cost=0.5)
    other = Step(Kind.MODEL, "m")
    absorb(other, known)
    assert other.cost == 0.5


@pytest.mark.parametrize(
    ("attributes", "read_and_written"),
    [
        (
            {
                "gen_ai.usage.cache_read.input_tokens": 7,
                "gen_ai.usage.cache_creation.input_tokens": 3,
            },
            (7, 3),
        ),
        ({"gen_ai.usage.cache_write.input_tokens": 3}, (None, 3)),
        ({"gen_ai.usage.cache_read_input_tokens": "7"}, (7, None)),
        ({"gen_ai.usage.details.cache_read_tokens": 7}, (7, None)),
        ({"gen_ai.usage.cache_read.input_tokens": -1}, (None, None)),
        ({}, (None, None)),
    ],
    ids=str,
)
def test_tokens_of_a_cache(
    attributes: dict[str, object], read_and_written: tuple[int | None, int | None]
) -> None:
    """They have a price of their own."""
    step = read(ended("chat m", "x", {**CHAT, **attributes}))
    assert (step.cache_read, step.cache_write) == read_and_written


def test_openinference_names_tokens_of_a_cache() -> None:
    """Below `prompt_details`; a twin takes them over."""
    details = "llm.token_count.prompt_details"
    more = {f"{details}.cache_read": 5, f"{details}.cache_write": 2, "llm.token_count.prompt": 9}
    step = read(ended_oi("call", "x", {TOOL: "LLM", **more}))
    assert (step.cache_read, step.cache_write) == (5, 2)
    other = Step(Kind.MODEL, "m")
    absorb(other, step)
    assert (other.cache_read, other.cache_write) == (5, 2)
