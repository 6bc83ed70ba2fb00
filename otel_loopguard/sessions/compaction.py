"""When the context of a model was compacted, told by its input tokens."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.settings import Settings

_SPEAKERS: Final = 64
_NAMED: Final = 200
_MOST: Final = 1 << 40

_Speaker = tuple[int, str, str, str]


class Contexts:
    """The size of the context of each speaker of a session, the newest 64.

    A context is compacted when the input tokens of one speaker (agent, node and model, within one
    trace) fall to `stall_compact_drop` (half) of the most that they were, twice in a row, from at
    least `stall_compact_least` (8000) on. Once is no sign: a short question aside is not the
    context.

    Source: FEATURES E13.
    """

    __slots__ = ("_drop", "_least", "_sizes")

    def __init__(self, settings: Settings) -> None:
        self._drop = settings.stall_compact_drop
        self._least = settings.stall_compact_least
        self._sizes: OrderedDict[_Speaker, tuple[int, bool]] = OrderedDict()

    def compacted(self, step: Step) -> bool:
        """Takes a model call; whether it shows that the context was compacted.

        Args:
            step: The model call; one without its input tokens says nothing.
        """
        tokens = step.tokens_in
        if tokens is None or not self._drop:
            return False
        # A span may say anything.
        tokens = min(max(tokens, 0), _MOST)
        speaker = _speaker(step)
        most, fell = self._sizes.pop(speaker, (0, False))
        falls = most >= self._least and tokens <= most * self._drop
        over = falls and fell
        self._sizes[speaker] = (tokens if over else max(most, tokens), falls and not over)
        if len(self._sizes) > _SPEAKERS:
            self._sizes.popitem(last=False)
        return over

    def agent_ended(self, step: Step) -> None:
        """An agent's run ended: its next one begins with a context of its own.

        Args:
            step: The run.
        """
        names = ("", (step.name or "")[:_NAMED])
        for speaker in tuple(self._sizes):
            if speaker[0] == step.trace_id and speaker[1] in names:
                del self._sizes[speaker]


def _speaker(step: Step) -> _Speaker:
    agent, node, model = ((part or "")[:_NAMED] for part in (step.agent, step.node, step.model))
    return step.trace_id, agent, node, model
