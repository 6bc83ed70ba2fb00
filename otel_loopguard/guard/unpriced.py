"""Warns of model calls without a known cost where spending is limited."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.logger import warn_blind
from otel_loopguard.core import Kind
from otel_loopguard.settings.prices import PriceTable, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.sessions.observation import Observation
    from otel_loopguard.settings import Settings

_LONGEST: Final = 100
"""Characters of a model's name in a warning: one line."""


def unpriced(settings: Settings) -> Callable[[Observation], None]:
    """Returns a subscriber that warns. Reads the prices: a broken file fails at start."""
    PriceTable.load(settings.prices_file)
    return partial(_warn, settings.prices_file)


def _warn(prices_file: str, seen: Observation) -> None:
    """Warns once of calls without tokens, and once of models without a price; lock-free."""
    step = seen.step
    if step.kind is not Kind.MODEL or cost_of(step, prices_file) is not None:
        return
    if step.tokens is None:
        warn_blind("no_tokens")
    else:
        model = (step.model or step.name or "")[:_LONGEST]
        warn_blind("no_price", model, PriceTable.load(prices_file).date)
