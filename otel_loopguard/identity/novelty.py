"""How much of a text was not seen before in the session."""

from __future__ import annotations

from typing import Final, NamedTuple

from otel_loopguard.identity.canonical import key_of
from otel_loopguard.identity.sketch import Sketch

_LOOK: Final = 2_000
_MOST: Final = 64
_SHORTEST: Final = 3
_ENDS: Final = b".,;:!?{}[]()|\"'<>=\t\r"
_PIECES: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ENDS, b"abcdefghijklmnopqrstuvwxyz" + b"\n" * len(_ENDS)
)


class News(NamedTuple):
    """What an outcome brought.

    Attributes:
        share: Part of it that was not seen before in the session, 0 to 1.
        echo: Whether half or more of it stood in the call's own arguments.
    """

    share: float
    echo: bool


class Novelty:
    """Remembers the pieces of what a session has seen, in constant memory.

    A piece is what stands between two marks of punctuation or line ends, three characters or more,
    in lower case; of a long text those of its head and tail count, 64 at most. A piece weighs as
    much as it is long: the frame around an answer is not its news.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = Sketch()

    def of(self, outcome: bytes, arguments: bytes = b"") -> News:
        """What is new in an outcome; it counts as seen from then on.

        Args:
            outcome: The outcome, volatile values masked.
            arguments: Canonical arguments of the call: what stands there is not new.
        """
        asked = _pieces(arguments.replace(b"\\n", b"\n"))
        self._seen.add(asked)
        said = _pieces(outcome)
        if not said:
            return News(0.0, echo=False)
        length = sum(said.values())
        new = sum(said[key] for key in self._seen.add(said))
        return News(new / length, echo=2 * len(said.keys() & asked.keys()) >= len(said))


def _pieces(raw: bytes) -> dict[int, int]:
    """Keys of the pieces of a text, and their lengths."""
    if not raw:
        return {}
    if len(raw) > 2 * _LOOK:
        raw = raw[:_LOOK] + b"\n" + raw[-_LOOK:]
    parts = raw.translate(_PIECES).split(b"\n")
    if len(parts) > _MOST:
        parts = parts[: _MOST // 2] + parts[-_MOST // 2 :]
    pieces = {
        key_of(piece): len(piece) for part in parts if len(piece := part.strip()) >= _SHORTEST
    }
    # What is too short to have pieces is told apart as a whole.
    return pieces or {key_of(raw): len(raw)}
