"""What is written on tool spans that start, per tool, for as long as it stays true.

Source: FEATURES A4.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.core import Annotation

_MOST: Final = 1024
_SECOND: Final = 1.0
_SEVERAL: Final = ""


class Sayings:
    """Which span names are tool calls, and what their spans say; the newest 1024 of both.

    Its tables are only ever replaced entry by entry, so that readers take no lock.
    """

    def __init__(self) -> None:
        self._tools: OrderedDict[str, str] = OrderedDict()
        self._known: OrderedDict[str, tuple[float, Annotation | None]] = OrderedDict()

    def learn(self, span: str, tool: str) -> None:
        """Says that a span of a name was a call of a tool. The guard's lock is held."""
        known = self._tools.get(span)
        if known in (tool, _SEVERAL) or len(span) >= 512:
            return
        self._tools[span] = tool if known is None else _SEVERAL
        if len(self._tools) > _MOST:
            self._tools.popitem(last=False)

    def tool(self, span: str) -> str | None:
        """The tool that spans of a name call: empty for several, None where they call none."""
        return self._tools.get(span)

    def of(self, tool: str, make: Callable[[str], Annotation | None]) -> Annotation | None:
        """What spans of a tool say; made anew once a second, and until it is known.

        Args:
            tool: Name of the tool.
            make: Makes it.
        """
        now = time.monotonic()
        known = self._known.get(tool)
        if known is not None and known[1] is not None and now < known[0]:
            return known[1]
        said = make(tool)
        self._known[tool] = (now + _SECOND, said)
        if len(self._known) > _MOST:
            # Another thread may have been here first.
            self._known.pop(next(iter(list(self._known)), ""), None)
        return said
