"""Who calls which tool: a call may be told of, or asked about, where that is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_MOST: Final = 256
_NAMED: Final = 200


class Callers:
    """The agent that called each tool last, of 256 tools of a session."""

    __slots__ = ("_agents",)

    def __init__(self) -> None:
        self._agents: dict[str, str | None] = {}

    def note(self, step: Step) -> None:
        """Remembers who made a call; one that was refused is given to who made it before."""
        name = (step.name or "")[:_NAMED]
        if step.error_type == semconv.ERROR_DENY:
            step.agent = self._agents.get(name, step.agent)
        elif len(self._agents) < _MOST or name in self._agents:
            self._agents[name] = step.agent

    def candidates(self, tool: str, agent: str | None) -> set[str | None]:
        """Whose call of a tool it may be.

        Args:
            tool: Name of the tool.
            agent: Name of the agent, as far as it is known.
        """
        return {agent, self._agents.get(tool[:_NAMED], agent)}
