"""For tests of agents: runs one under a guard of its own, and reports what the guard decided.

The pytest plugin (`otel_loopguard_pytest`) gives the same as the fixture `loopguard`.
"""

from __future__ import annotations

import inspect
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeVar, cast

from otel_loopguard._control.context import session, unregister_guard
from otel_loopguard._control.flag import BOARDS, NOTES, RESULTS
from otel_loopguard._util.backlog import settle_all
from otel_loopguard._util.clock import TestMode, let_only, now, set_testing
from otel_loopguard._util.text import check_number
from otel_loopguard.core import Action, Decision
from otel_loopguard.core.decision import Severity
from otel_loopguard.errors import LoopGuardSettingsError, LoopGuardStop
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.settings import Settings
from otel_loopguard.testing.spans import Spans, global_provider, listening, own_provider, tree

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
    from opentelemetry.trace import Tracer, TracerProvider

    from otel_loopguard.sessions import Session

__all__ = ["LoopGuardFixture", "Outcome", "options", "watching"]


def options(lines: Iterable[str], marked: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merges options; later ones override earlier ones."""
    found: dict[str, Any] = {}
    for line in lines:
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            msg = f"ini option loopguard: expected lines `name = value`, got {line!r}"
            raise LoopGuardSettingsError(msg)
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value.strip()
    for keywords in marked:
        found.update(keywords)
    return found


_KEPT: Final = 10_000
"""Newest decisions: a test that makes more looks at none of the first."""
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
_HELD_NS: Final = 1_100_000_000
"""For how long a step may be held back for a second report of it, nanoseconds."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[_Result]):
    """The end of a run.

    Attributes:
        result: What the agent returned; None if it was stopped.
        stop: The `LoopGuardAbort` or `LoopGuardPaused` that ended it; None if nothing did.
    """

    result: _Result | None = None
    stop: LoopGuardStop | None = None


class _Seen:
    """Steps that a guard judged, and its decisions."""

    def __init__(self) -> None:
        self.steps = 0
        self.decisions: deque[Decision] = deque(maxlen=_KEPT)

    def on_step(self, *_: object) -> None:
        self.steps += 1

    def on_decision(self, _: Session, decision: Decision) -> None:
        self.decisions.append(decision)


@dataclass(eq=False, repr=False)
class LoopGuardFixture:
    """A guard of its own for one test, and what it saw. Made by `watching`.

    Attributes:
        guard: The guard.
        tracer_provider: The provider that it listens to; hand it to instrumentations that take one.
    """

    guard: LoopGuard
    tracer_provider: TracerProvider
    _name: str
    _seen: _Seen
    _spans: Spans
    _listeners: tuple[SpanProcessor, ...]
    _rehearsal: TestMode
    _ends: ExitStack

    def __post_init__(self) -> None:
        self._watched = [self.tracer_provider]

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """All decisions in their order, mere notes (`allow`) and those of mode `shadow` too."""
        self._settle()
        return tuple(self._seen.decisions)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Spans that ended, in their order, with the attributes of decisions; the newest 10,000."""
        return self._spans.ended

    @property
    def steps(self) -> int:
        """Number of tool calls, model calls, nodes, runs and hand-offs."""
        self._settle()
        return self._seen.steps

    def watch(self, provider: TracerProvider) -> None:
        """Listens to one more provider until the test ends, such as one that the agent makes.

        Args:
            provider: A provider of the SDK.

        Raises:
            LoopGuardError: It takes no span processors.
        """
        if not any(provider is known for known in self._watched):
            self._ends.enter_context(listening(provider, *self._listeners))
            self._watched.append(provider)

    def tracer(self, name: str = "agent") -> Tracer:
        """A tracer of the provider, for tests that write spans themselves."""
        return self.tracer_provider.get_tracer(name)

    def run(
        self, agent: Callable[_Given, _Result], *given: _Given.args, **named: _Given.kwargs
    ) -> Outcome[_Result]:
        """Runs an agent in a session that has the name of the test.

        Args:
            agent: What to call. For a coroutine function, or one that returns an awaitable, write
                `await loopguard.run_async(agent)`.
            *given: Its arguments.
            **named: Its arguments by name.

        Returns:
            What it returned, or the `LoopGuardStop` that ended it. All else that it raises is
            raised.

        Raises:
            TypeError: What the agent returned has to be awaited.
        """
        with session(self._name):
            try:
                result = agent(*given, **named)
            except LoopGuardStop as stop:
                return Outcome(stop=stop)
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            msg = f"what {agent!r} returned is to be awaited: await loopguard.run_async(...)"
            raise TypeError(msg)
        return Outcome(result)

    async def run_async(
        self,
        agent: Callable[_Given, Awaitable[_Result]],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> Outcome[_Result]:
        """As `run`, for coroutine functions."""
        with session(self._name):
            try:
                return Outcome(await agent(*given, **named))
            except LoopGuardStop as stop:
                return Outcome(stop=stop)

    def advance(self, seconds: float) -> None:
        """Moves the guard's clock on, so that what waits or hangs is late; see `set_testing`."""
        self._rehearsal.advance(seconds)

    def tree(self, *, arguments: bool = True) -> str:
        """The spans of the test as trees, those with a decision marked by `◆`.

        Args:
            arguments: Whether the beginnings of arguments and errors are shown.
        """
        decisions = self.decisions
        spans = (*self._spans.ended, *self._spans.open)
        return tree(spans, decisions, self.guard.reader.read, arguments=arguments)

    def assert_no_loops(
        self,
        max_severity: Severity | str | None = None,
        *,
        ignore: Collection[str] = (),
        min_steps: int = 1,
    ) -> None:
        """Asserts that the guard had nothing to say: no hint, and nothing stronger.

        Args:
            max_severity: `warning` or `critical`: what is no worse than that is let pass; by
                default nothing is.
            ignore: Names of detectors whose decisions are let pass.
            min_steps: Steps that must have been seen. Where none is, nothing was watched, and
                nothing can be said.

        Raises:
            AssertionError: It had, or too little was seen; the message has the trace tree.
            ValueError: There is no such severity.
        """
        __tracebackhide__ = True
        check_number("min_steps", min_steps, 0, whole=True)
        if max_severity not in (None, *Severity):
            names = ", ".join(Severity)
            raise ValueError(f"max_severity must be None or one of {names}, got {max_severity!r}")
        allowed = -1 if max_severity is None else Severity(max_severity).rank
        found = [
            decision
            for decision in self.decisions
            if decision.action is not Action.ALLOW
            and decision.severity.rank > allowed
            and decision.detector not in ignore
        ]
        if found:
            worst = max(found, key=lambda decision: decision.action.rank)
            self._fail(f"the agent loops: {worst.action}, {worst.message}")
        if self._seen.steps < min_steps:
            seen = self._seen.steps
            self._fail(f"{seen} steps were seen, expected at least {min_steps}")

    def assert_stopped(self, detector: str | None = None) -> Decision:
        """Asserts that the guard denied, paused or aborted something.

        Args:
            detector: Name of the detector that must have led to it; any by default.

        Returns:
            The strongest of these decisions; of equal ones the first.

        Raises:
            AssertionError: Nothing was stopped, or mode `shadow` only noted it; the message has the
                trace tree.
        """
        __tracebackhide__ = True
        by = "" if detector is None else f" by {detector}"
        stops = [
            decision
            for decision in self.decisions
            if decision.action.stops
            and not decision.shadow
            and detector in (None, decision.detector)
        ]
        if not stops:
            said = [
                f"{one.action} by {one.detector}{' (shadow)' if one.shadow else ''}"
                for one in self.decisions
            ]
            self._fail(f"nothing was stopped{by}; decisions: {', '.join(said) or 'none'}")
        return max(stops, key=lambda decision: decision.action.rank)

    def _fail(self, message: str) -> None:
        __tracebackhide__ = True
        if not self._seen.steps:
            message += f"; no step of an agent was seen: {_UNSEEN}"
        raise AssertionError(f"{message}\n\n{self.tree() or 'no span was seen'}")

    def _settle(self) -> None:
        """Counts steps that are held for a second report: none will come once a test asks."""
        self.guard.settle()
        if self.guard.due <= now() + _HELD_NS:
            self.guard.tick(now() + _HELD_NS)


_UNSEEN: Final = "is it instrumented, and are its spans those of `loopguard.tracer_provider`?"
_ALONE: Final[dict[str, Any]] = {
    "enabled": True,
    "digest_key": "the same in every test",
    "store_url": "",
    "control_socket": "",
    "webhook_url": "",
    "verdicts": (),
    "telemetry_metrics": False,
    "telemetry_events": False,
    "decision_spans": False,
}
"""Settings that make a test reproducible, and keep it from reaching anybody."""


@contextmanager
def watching(
    provider: TracerProvider | Literal["global", "own"] = "global",
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
            it watches, and tells nobody else: no store, socket, webhook, verdicts, metrics or log
            events; and digests are the same in each run.

    Yields:
        What a test asks and asserts. No other guard of the process does anything meanwhile. When
        the block ends the guard is gone, with its flags.

    Raises:
        LoopGuardSettingsError: A setting cannot be used.
        LoopGuardError: The provider takes no span processors.
    """
    if isinstance(provider, str) and provider not in ("global", "own"):
        msg = f"provider must be 'global', 'own' or a tracer provider, got {provider!r}"
        raise LoopGuardSettingsError(msg)
    seen = _Seen()
    guard = LoopGuard(
        Settings(**{**_ALONE, **settings}), on_step=seen.on_step, on_decision=seen.on_decision
    )
    made = {"own": own_provider, "global": global_provider}
    found = made[provider]() if isinstance(provider, str) else provider
    live, spans = LoopGuardSpanProcessor(guard), Spans(guard)
    with ExitStack() as ends:
        ends.callback(unregister_guard, guard)
        ends.callback(guard.detach)
        ends.callback(live.shutdown)
        rehearsal = set_testing(testing, gate_limit_s=gate_limit_s if testing else 0)
        ends.enter_context(rehearsal)
        settle_all()
        let_only(guard)
        for told in cast("tuple[dict[str, Any], ...]", (BOARDS, RESULTS, NOTES)):
            # Of sessions that no step was seen of yet.
            ends.callback(told.update, dict(told))
            ends.callback(told.clear)
            told.clear()
        ends.enter_context(listening(found, live, spans))
        yield LoopGuardFixture(guard, found, name, seen, spans, (live, spans), rehearsal, ends)
