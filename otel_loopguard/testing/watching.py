"""Watches what happens inside of a block with a guard of its own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Literal

from otel_loopguard.control.context import forget
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.guard import LoopGuard
from otel_loopguard.processor import LoopGuardSpanProcessor
from otel_loopguard.rehearsal import set_testing
from otel_loopguard.settings import Settings
from otel_loopguard.testing.fixture import LoopGuardFixture
from otel_loopguard.testing.relay import global_provider, listening, own_provider
from otel_loopguard.testing.spans import Spans
from otel_loopguard.testing.tally import Tally

_ALONE: Final[dict[str, Any]] = {
    "digest_key": "the same in every test",
    "store_url": "",
    "control_socket": "",
    "webhook_url": "",
    "telemetry_metrics": False,
    "telemetry_events": False,
    "decision_spans": False,
}
"""Settings that keep what a test tries out away from everybody else, and the same in each run."""


@contextmanager
def watching(
    provider: Any = "global",
    *,
    name: str = "test",
    testing: Literal[True, False] = True,
    gate_limit_s: float = 0.0,
    **settings: Any,
) -> Generator[LoopGuardFixture, None, None]:
    """Watches an agent with a guard of its own, inside of the block.

    ::

        with testing.watching(repeat_threshold=4) as loopguard:
            my_agent.run("...")
            loopguard.assert_no_loops()

    Args:
        provider: Whose spans are watched: `"global"`, the one of the process, which most agents
            use (the SDK's is set where there is none yet, for good: it can be set once); `"own"`,
            a new one, to be handed to the agent as `tracer_provider`; or a provider of the SDK.
        name: Name of the session of `run`.
        testing: Whether all guards are deterministic inside of the block; see `set_testing`.
        gate_limit_s: Seconds that a gate waits at most, where they are.
        **settings: Settings of the guard; what is not named comes from the environment, except that
            it tells nobody else: no store, socket, webhook, metrics or log events; and digests are
            the same in each run.

    Yields:
        What a test asks and asserts. When the block ends the guard is gone, with its flags.

    Raises:
        LoopGuardSettingsError: A setting cannot be used.
        LoopGuardError: The provider takes no span processors.
    """
    if isinstance(provider, str) and provider not in ("global", "own"):
        msg = f"provider must be 'global', 'own' or a tracer provider, got {provider!r}"
        raise LoopGuardSettingsError(msg)
    tally = Tally()
    guard = LoopGuard(
        Settings(**{**_ALONE, **settings}), on_step=tally.stepped, on_decision=tally.decided
    )
    found = _provider(provider)
    live, spans = LoopGuardSpanProcessor(guard), Spans(guard)
    with ExitStack() as ends:
        ends.callback(forget, guard)
        ends.callback(live.shutdown)
        rehearsal = set_testing(testing, gate_limit_s=gate_limit_s if testing else 0)
        ends.enter_context(rehearsal)
        ends.enter_context(listening(found, live, spans))
        yield LoopGuardFixture(
            guard, found, name=name, tally=tally, spans=spans, listeners=(live, spans),
            rehearsal=rehearsal, ends=ends,
        )  # fmt: skip


def _provider(provider: Any) -> Any:
    if isinstance(provider, str):
        return own_provider() if provider == "own" else global_provider()
    return provider
