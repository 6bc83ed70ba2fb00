"""Steps for tests, and a session that judges them."""

from dataclasses import dataclass, field, replace
from typing import Any

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.guard.queries import SessionHandle

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


def call(
    tool: str = "search",
    args: object = None,
    outcome: object = None,
    *,
    error: str | None = None,
    at: float | None = None,
    took: float = 0.5,
) -> Step:
    """One finished tool call; `at` seconds after the epoch of the tests, or without times."""
    start = 0 if at is None else EPOCH + round(at * SECOND)
    end = 0 if at is None else start + round(took * SECOND)
    failed: dict[str, Any] = {"error": error is not None, "error_text": error}
    return Step(Kind.TOOL, tool, args=args, outcome=outcome, start=start, end=end, **failed)


def node(
    name: str,
    gave: object = None,
    got: object = None,
    *,
    at: float | None = None,
    took: float = 0.01,
    trace: int = 0,
) -> Step:
    """One finished visit of a node; with a trace, its graph run is span 77 of that trace."""
    step = replace(call(name, got, gave, at=at, took=took), kind=Kind.NODE, node=name)
    if trace:
        step.trace_id, step.span_id, step.parent_id = trace, 1 + step.start, 77
    return step


def agent(name: str, gave: object = None) -> Step:
    """One finished run of an agent among others."""
    return Step(Kind.AGENT, name, agent=name, outcome=gave)


def said(text: str | None) -> Step:
    """One finished model call."""
    return Step(Kind.MODEL, "m", model="m", text=text)


def hand(
    text: object, agent: str = "critic", source: str | None = "planner", *, at: float | None = None
) -> Step:
    """One hand-off of work to an agent; `at` seconds after the epoch of the tests."""
    end = 0 if at is None else EPOCH + round(at * SECOND)
    return Step(Kind.HANDOFF, agent, agent=source, args=text, start=end, end=end)


def handle_of(guard: LoopGuard, session: str = "run") -> SessionHandle:
    """A session that a guard knows."""
    found = guard.find(session)
    assert found is not None
    return found


@dataclass
class Run:
    """One session of a guard in replay, and what it decided."""

    settings: Settings = field(default_factory=Settings)
    judge: Any = None
    decisions: list[Decision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.guard = LoopGuard(
            self.settings, clock="replay", judge=self.judge,
            on_decision=lambda _, found: self.decisions.append(found),
        )  # fmt: skip

    def calls(self, *steps: Step) -> list[str]:
        """Observes the steps; gives the actions decided so far."""
        for step in steps:
            self.guard.observe(step, "run")
        return self.actions

    @property
    def actions(self) -> list[str]:
        """Actions decided so far, in order, without what is only noted on the trace."""
        return [found.action.value for found in self.decisions if found.action is not Action.ALLOW]
