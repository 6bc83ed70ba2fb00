"""What tests of propagation share: nobody knows a key, and the composite propagator is ours."""

from collections.abc import Iterator

import pytest
from opentelemetry import propagate
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_loopguard import LoopGuardPropagator
from otel_loopguard._control import signing as keyring


@pytest.fixture(autouse=True)
def _no_keys() -> Iterator[None]:
    keyring.forget()
    yield
    keyring.forget()


@pytest.fixture
def propagator() -> Iterator[LoopGuardPropagator]:
    """One with a key, behind those of trace and baggage, as the global one."""
    own = LoopGuardPropagator(propagation_key="a key of the tests")
    before = propagate.get_global_textmap()
    known = [TraceContextTextMapPropagator(), W3CBaggagePropagator(), own]
    propagate.set_global_textmap(CompositePropagator(known))
    yield own
    propagate.set_global_textmap(before)
