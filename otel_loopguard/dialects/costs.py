"""What a model call cost, where its span says so.

OpenInference `llm.cost.total`, logfire and pydantic-ai `operation.cost`, OpenLIT and others
`gen_ai.usage.cost`, LiteLLM `gen_ai.cost.total_cost`, Langfuse `langfuse.observation.cost_details`
(a JSON map with `total`). All in USD.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from otel_loopguard.dialects.values import within

_KEYS: Final = frozenset(
    (
        "llm.cost.total",
        "operation.cost",
        "gen_ai.usage.cost",
        "gen_ai.cost.total_cost",
        "litellm.cost.total",
    )
)
_DETAILS: Final = "langfuse.observation.cost_details"


def cost_of(attributes: Mapping[str, object]) -> float | None:
    """Cost of a model call in USD; None if the span does not say it.

    Where several conventions say it, the highest: they tell of the same call.

    Args:
        attributes: Attributes of the span.
    """
    found = [_amount(attributes[key]) for key in _KEYS.intersection(attributes)]
    if _DETAILS in attributes:
        found.append(_amount(within(attributes[_DETAILS], "total")))
    return max((cost for cost in found if cost is not None), default=None)


def _amount(value: object) -> float | None:
    """A number that is finite and not below 0, also one written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        amount = float(value) if not isinstance(value, str) or len(value) <= 40 else math.nan
    except (ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and amount >= 0 else None
