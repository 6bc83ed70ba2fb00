"""What is normal for a tool: whether asking it again pays."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_TRACKED: Final = 64
_LEARNED: Final = 4.0
_PAYS: Final = 0.5
_EASE: Final = 1.5
_FADE: Final = 0.95


class Habits:
    """Learns, per tool, how often an equal call got another answer than before.

    From four repeats on, of which half or more brought another answer, it takes half as many again
    of this tool's repeats before they count as a loop: whatever is watched through it moves.

    Source: `notes/detectors.md`, recommendation 8 ("scale by a per-tool baseline repeat rate").
    """

    __slots__ = ("_tools",)

    def __init__(self) -> None:
        self._tools: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def ease(self, tool: str, *, again: bool, changed: bool) -> float:
        """Notes a call and gives what the thresholds of its tool are multiplied by.

        Args:
            tool: Name of the tool.
            again: Whether the same call was made before.
            changed: Whether its answer is another one now.
        """
        repeats, paid = self._tools.get(tool, (0.0, 0.0))
        if again:
            repeats, paid = repeats * _FADE + 1.0, paid * _FADE + changed
            self._tools[tool] = (repeats, paid)
            if len(self._tools) > _TRACKED:
                self._tools.popitem(last=False)
        return _EASE if repeats >= _LEARNED - 0.5 and paid >= _PAYS * repeats else 1.0
