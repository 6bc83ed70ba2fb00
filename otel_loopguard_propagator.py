"""`OTEL_PROPAGATORS=…,loopguard`: the propagator of otel-loopguard, made when it is first used.

It stands beside the package, because `opentelemetry.propagate` loads it while it is imported
itself: what the package needs (pydantic, and by its plugins logfire) may import that module too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context

FIELDS = frozenset({"baggage"})


class LoopGuardPropagator(TextMapPropagator):
    """As `otel_loopguard.LoopGuardPropagator`, which it makes and asks.

    Args:
        **options: As of that; with some it is made at once, so that a mistake is told at the start.

    Raises:
        LoopGuardSettingsError: An option cannot be used.
    """

    def __init__(self, **options: Any) -> None:
        self._asked = _make(**options) if options else None

    @property
    def fields(self) -> set[str]:
        """Headers that are written."""
        return set(FIELDS)

    def inject(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        """Adds session and action to what is sent."""
        self._made().inject(carrier, context, setter)

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        """Takes session and action from what came in, where they may be believed."""
        return self._made().extract(carrier, context, getter)

    def _made(self) -> TextMapPropagator:
        # Two threads may make two: they are alike.
        self._asked = self._asked or _make()
        return self._asked


def _make(**options: Any) -> TextMapPropagator:
    from otel_loopguard.sdk.propagator import LoopGuardPropagator as Asked  # noqa: PLC0415

    return Asked(**options)
