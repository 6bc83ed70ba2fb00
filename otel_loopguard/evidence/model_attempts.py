"""Model calls that fail, as evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.bounded import keep
from otel_loopguard.core import ErrorClass, ModelAttempt, Step
from otel_loopguard.evidence.calls import NAMED, agent_key
from otel_loopguard.evidence.errors import error_class, error_line, error_shape
from otel_loopguard.evidence.normalize import text_bytes

if TYPE_CHECKING:
    from otel_loopguard.core import Progress
    from otel_loopguard.settings import Settings

_AGENTS: Final = 32
_FAILING: Final = 0x6D6F_6465_6C21
_OURS: Final = frozenset((semconv.ERROR_ABORT, semconv.ERROR_DENY))


class ModelAttemptExtractor:
    """Failed model calls of one session, and the first that works after them.

    An error that is not captured is unknown: equal to nothing. What the guard itself ended is none.
    """

    __slots__ = ("_failing",)

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings, progress
        self._failing: dict[int, None] = {}

    def extract(self, step: Step) -> ModelAttempt | None:
        """Evidence of a model call; None of one that works where none has failed."""
        if not step.error:
            if not self._failing:
                return None
            agent = agent_key(step.agent)
            if agent not in self._failing:
                return None
            del self._failing[agent]
            return _attempt(step, agent, None)
        line = error_line(step) or text_bytes(step.error_type or "")
        if not line or step.error_type in _OURS:
            return None
        agent = agent_key(step.agent)
        keep(self._failing, agent, None, _AGENTS)
        return _attempt(step, agent, error_shape(line))


def _attempt(step: Step, agent: int, error: int | None) -> ModelAttempt:
    name = repr(step.agent[:NAMED]) if step.agent else "the model"
    of = ErrorClass.UNKNOWN if error is None else error_class(step)
    return ModelAttempt(agent ^ _FAILING, name, error, of, step.start, step.end or 0)
