"""Amounts and times in words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.cli.transcripts.result import Amount


def when(start: int) -> str:
    """A time of day here; empty where it is not known."""
    if not start:
        return ""
    return datetime.fromtimestamp(start / 1e9).astimezone().strftime("%Y-%m-%d %H:%M")


def dollars(amount: Amount) -> str:
    """Dollars, at least; `?` where no model has a price."""
    if amount.unpriced and not amount.dollars:
        return "?"
    return f"{'≥ ' if amount.unpriced else ''}{amount.dollars:,.2f}"


def spelled(amount: Amount) -> str:
    """An amount in words."""
    cost = dollars(amount)
    price = f"${cost}".replace("$≥ ", "at least $")
    price = "at a price that is not known" if cost == "?" else price
    parts = (
        counted(amount.calls, "call"),
        counted(round(amount.minutes), "minute"),
        counted(amount.tokens, "token"),
        price,
    )
    return ", ".join(parts)


def counted(count: int, name: str) -> str:
    """A number of things: `1 call`, `2 calls`."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
