"""Counts in plain tables, of bounded size; nothing of an SDK runs in here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Kind

if TYPE_CHECKING:
    from otel_loopguard.core import Step

UNKNOWN: Final = "unknown"
OTHER: Final = "other"
_MAX_NAME: Final = 200
_MAX_KEYS: Final = 1800
"""Different attributes of one metric; the SDK gives up its own order past 2000."""
_TOOL: Final = Kind.TOOL
_AGENT: Final = Kind.AGENT
_OF_STEPS: Final = (semconv.METRIC_STEPS, semconv.METRIC_TOOL_CALLS)

Key = tuple[str, ...]
"""Values of the attributes of a metric, in its order; empty for one that is left out."""
Values = Mapping[Key, float]
_Kind = tuple[Kind, str, str, bool]
"""Kind, agent, tool and failure of steps that are counted together."""


def agent_of(step: Step) -> str | None:
    """The agent that a step is counted for: a run of an agent is that agent's own."""
    return step.agent or (step.name if step.kind is _AGENT else None)


class CardinalityLimit:
    """The first so many different names; all others are `other`. Takes no lock.

    Two threads may each add the last one; that is one too many, and does no harm.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, None] = {}

    def get(self, name: str | None) -> str:
        """A name as it goes on a metric: `unknown` for none, cut at 200 characters."""
        if not name:
            return UNKNOWN
        name = name[:_MAX_NAME]
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known[name] = None
        return name

    @property
    def all(self) -> tuple[str, ...]:
        """The names that are known, in the order in which they came."""
        return tuple(self._known)


class Counts:
    """Counts of one guard, or of guards that are gone. Thread-safe.

    Past 1800 different attributes of a metric, what is new is counted as `other` throughout.

    Args:
        agents: Names of agents on metrics of steps.
        tools: Names of tools on them.
    """

    def __init__(
        self, agents: CardinalityLimit | None = None, tools: CardinalityLimit | None = None
    ) -> None:
        self._agents = agents or CardinalityLimit(0)
        self._tools = tools or CardinalityLimit(0)
        self.forked()

    def forked(self) -> None:
        """Starts anew in the child of a fork: what was counted is the parent's."""
        # Re-entrant: a finalizer may end a span, and be counted, while it is held.
        self._lock = new_lock()
        self._counts: dict[str, dict[Key, float]] = {}
        # As many different ones as there are names of agents and tools on metrics.
        self._steps: dict[_Kind, list[int]] = {}
        # The same, by all that the newest steps said: a step finds its count at once.
        self._found: dict[_Kind, list[int]] = {}

    def step(self, step: Step) -> None:
        """Counts a step."""
        kind, name = step.kind, step.name or ""
        agent = step.agent or (name if kind is _AGENT else "")
        said = (kind, agent[:_MAX_NAME], name[:_MAX_NAME], step.error)
        with self._lock:
            count = self._found.get(said) or self._find(said)
            count[0] += 1

    def _find(self, said: _Kind) -> list[int]:
        """The count of steps of which this is said. The lock is held."""
        kind, agent, name, error = said
        tool = self._tools.get(name) if kind is _TOOL else ""
        count = self._steps.setdefault((kind, self._agents.get(agent), tool, error), [0])
        if len(self._found) >= _MAX_KEYS:
            self._found.clear()
        self._found[said] = count
        return count

    def add(self, metric: str, key: Key, amount: float = 1) -> None:
        """Counts."""
        with self._lock:
            counts = self._counts.get(metric)
            if counts is None:
                counts = self._counts[metric] = {}
            if key not in counts and len(counts) >= _MAX_KEYS:
                key = tuple(OTHER if value else value for value in key)
            counts[key] = counts.get(key, 0) + amount

    def get(self, metric: str) -> Values:
        """What was counted of a metric, as it is now."""
        with self._lock:
            found: dict[Key, float] = dict(self._counts.get(metric, {}))
            steps = self._steps if metric in _OF_STEPS else {}
            counted = [(key, count) for key, (count,) in steps.items()]
        for (kind, agent, tool, error), count in counted:
            key = (kind.value, agent)
            if metric == semconv.METRIC_TOOL_CALLS:
                if kind is not _TOOL:
                    continue
                key = (tool, "failure" if error else "success")
            found[key] = found.get(key, 0) + count
        return found
