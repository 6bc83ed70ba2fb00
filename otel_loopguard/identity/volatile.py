"""Arguments that turn out to be volatile: a value that is new in every otherwise equal call."""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.identity.canonical import canonical, key_of, text_bytes

_ENOUGH: Final = 4
_TRACKED: Final = 64
_MOST: Final = 32
_NONCE: Final = re.compile(r"(?=[\w:#-]{8,64}$)(?:[A-Za-z_#:-]*\d+[A-Za-z]+\d+[A-Za-z])[\w:#-]*")


_THING: Final = re.compile(
    r"(?i)(?:^|_)(?:id|uuid|guid|sha|hash|path|file|url|uri|key|name)s?$|Id$"
)
"""Names of arguments that say what is asked for."""


class VolatileArguments:
    """Learns, per tool, which arguments are nonces.

    An argument is learned when its value was new in each of four calls that were equal in all
    else, outcome included. Only values in which letters and digits change about, in 8 characters or
    more, can be learned, never the only argument and none that is named like a thing (`id`,
    `path`): a page, a date, a number counted up or a file name says what is asked for. It is a
    guess all the same: what rests on it leads to a hint only.
    """

    __slots__ = ("_learned", "_runs")

    def __init__(self) -> None:
        self._runs: dict[tuple[int, str], tuple[int, frozenset[int]]] = {}
        self._learned: set[tuple[int, str]] = set()

    def without(
        self, tool: int, arguments: dict[str, object], outcome: int | None
    ) -> dict[str, object]:
        """The arguments without what was learned; the very same dict if nothing was."""
        if not 2 <= len(arguments) <= _MOST or outcome is None:
            return arguments
        for name, value in arguments.items():
            if not isinstance(value, str) or _THING.search(str(name)) is not None:
                continue
            if 8 <= len(value) <= 64 and _NONCE.match(value):
                self._note(tool, name, value, arguments, outcome)
        if not self._learned:
            return arguments
        kept = {name: item for name, item in arguments.items() if (tool, name) not in self._learned}
        return kept if kept and len(kept) < len(arguments) else arguments

    def _note(
        self, tool: int, name: str, value: str, arguments: dict[str, object], outcome: int
    ) -> None:
        place = (tool, name)
        if place in self._learned:
            return
        rest = {other: item for other, item in arguments.items() if other != name}
        rest_key = key_of(canonical(rest)) ^ outcome
        run = self._runs.pop(place, None)
        values = run[1] if run is not None and run[0] == rest_key else frozenset[int]()
        seen = key_of(text_bytes(value))
        values = frozenset({seen}) if seen in values else values | {seen}
        if len(values) >= _ENOUGH and len(self._learned) < _TRACKED:
            self._learned.add(place)
            return
        if len(self._runs) >= _TRACKED:
            del self._runs[next(iter(self._runs))]
        self._runs[place] = (rest_key, values)
