"""LoopGuardSampler: spans of agents keep recording when head sampling drops them.

A span that is dropped at its start reaches no span processor, so a guard behind a sampler of 10 %
sees one run in ten. `RECORD_ONLY` is the way between: processors see the span, nothing exports it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from otel_loopguard._util.text import expected
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.spans.reader import key_prefixes

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, TraceState
    from opentelemetry.util.types import Attributes

_GROUP: Final = "opentelemetry_traces_sampler"
_VARIABLE: Final = "OTEL_TRACES_SAMPLER_ARG"
_RATIOS: Final = ("traceidratio", "parentbased_traceidratio")

_OTHER: Final = (
    "aws.", "cloudevents.", "db.", "dns.", "faas.", "graphql.", "http.", "messaging.", "net.",
    "network.", "peer.", "rpc.", "server.", "url.",
)  # fmt: skip
"""Attributes of spans that are surely of no agent, by the semantic conventions."""


class LoopGuardSampler(Sampler):
    """Turns DROP into RECORD_ONLY for spans that may be an agent's; else does what `inner` says.

    What carries names of HTTP, databases, RPC and the like, and no name of any agent convention,
    stays dropped. A span that says nothing at its start may be an agent's: several
    instrumentations set everything at the end.

    Put it outermost, `LoopGuardSampler(ParentBased(...))`: inside, `ParentBased` asks it for root
    spans only, and the children of an unsampled root are dropped.

    Args:
        inner: The sampler that decides what is exported.
    """

    def __init__(self, inner: Sampler) -> None:
        if not isinstance(inner, Sampler):  # pyright: ignore[reportUnnecessaryIsInstance]
            # At the start of a span it would be raised into the agent.
            raise TypeError(expected("a Sampler", inner, "as ParentBased(TraceIdRatioBased(0.1))"))
        self._inner = inner

    def should_sample(  # noqa: PLR0913, PLR0917  # the signature is the SDK's
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Asks `inner`, and lets a dropped agent span record; O(attributes), on the caller."""
        result = self._inner.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )
        if result.decision is not Decision.DROP or not _may_be_agent(name, attributes):
            return result
        # The SDK starts a span with the attributes of the result, and samplers give none on DROP.
        added = cast("Attributes", result.attributes)  # pyright: ignore[reportUnknownMemberType]
        kept = {**(attributes or {}), **(added or {})}
        return SamplingResult(Decision.RECORD_ONLY, kept, result.trace_state)

    def get_description(self) -> str:
        """Names itself and `inner`, as the samplers of the SDK do."""
        return f"LoopGuardSampler{{{self._inner.get_description()}}}"


def from_environment(argument: str | float | None = None) -> LoopGuardSampler:
    """Makes the sampler of `OTEL_TRACES_SAMPLER=loopguard`.

    Args:
        argument: Value of `OTEL_TRACES_SAMPLER_ARG`: `name,argument` or `name` of the inner
            sampler (any of the SDK's, or of the entry points `opentelemetry_traces_sampler`); a
            ratio alone means `parentbased_traceidratio`; nothing means `parentbased_always_on`.
            The default is the variable: from a configuration file samplers get no options.
            Where logfire is installed use the ratio: it fails for anything else in the variable.

    Raises:
        LoopGuardSettingsError: The value cannot be used. The SDK logs it and goes on with its
            default sampler.
    """
    argument = os.environ.get(_VARIABLE, "") if argument is None else str(argument)
    name, _, value = argument.strip().partition(",")
    name, value = name.strip().lower() or "parentbased_always_on", value.strip()
    if not value:
        with suppress(ValueError):  # no ratio
            float(name)
            name, value = "parentbased_traceidratio", name
    factory = _factory(name, argument)
    try:
        inner = factory(float(value or 1) if name in _RATIOS else value)
    except ValueError as error:
        raise _unusable(argument, str(error)) from error
    return LoopGuardSampler(inner)


def _factory(name: str, argument: str | None) -> Any:
    found = next(iter(entry_points(group=_GROUP, name=name)), None)
    if found is None or name == "loopguard":
        raise _unusable(argument, f"there is no inner sampler {name!r}")
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        raise _unusable(argument, f"sampler {name!r} does not load: {error}") from error


def _unusable(argument: str | None, why: str) -> LoopGuardSettingsError:
    return LoopGuardSettingsError(
        f"{_VARIABLE} is {argument!r}: {why}; expected a ratio from 0 to 1, a sampler, "
        "or both (`parentbased_traceidratio,0.1`)"
    )


def _may_be_agent(name: str, attributes: Attributes) -> bool:
    if str(name).startswith("autogen "):  # the SDK takes any object for a name
        # AutoGen's messages between agents carry `messaging.*` and nothing else.
        return True
    keys = [str(key) for key in attributes or ()]
    prefixes = key_prefixes()
    if any(key.startswith(prefixes) for key in keys):
        return True
    return not any(key.startswith(_OTHER) for key in keys)
