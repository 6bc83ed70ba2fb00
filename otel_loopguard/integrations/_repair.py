"""Folds the repeats of a loop in the history that a model reads.

A model that reads the same call and answer again and again goes on with it. A round is one message
of the model with its calls, and their answers; it is left out as a whole, so that every call keeps
its answer. Of equal rounds the last stay, for the newest message has to be the last one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

_Message = TypeVar("_Message")
_LEAST_TIMES: Final = 3
"""As many as the hint of the guard takes (`repeat_threshold`): twice may be a check."""
_LONGEST_PERIOD: Final = 4
"""Rounds of a rotation; agents rotate among two or three calls, and each more is another look."""


class Round(NamedTuple):
    """The messages of one round, from `start` to before `stop`."""

    start: int
    stop: int
    key: bytes | None = None  # of calls and answers; None for any other message


def key_of(calls: Iterable[tuple[str, object, object]]) -> bytes:
    """The key of a round: name, arguments and answer of each call, in their order."""
    text = json.dumps([*calls], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def folded(
    messages: Sequence[_Message], rounds: Sequence[Round], note: Callable[[str], _Message]
) -> list[_Message]:
    """The messages with one example of what was repeated three times or more, behind a note.

    Args:
        messages: The history; nothing in it is changed.
        rounds: All of its messages, in order.
        note: Makes a message of the user of a text.
    """
    found: list[_Message] = []
    place = 0
    while place < len(rounds):
        period, times = _loop_at(rounds, place)
        if times >= _LEAST_TIMES:
            found.append(note(_note(period, times)))
            # The last time stays, and may begin another loop.
            place += period * (times - 1)
        else:
            found += messages[rounds[place].start : rounds[place].stop]
            place += 1
    return found


def _loop_at(rounds: Sequence[Round], place: int) -> tuple[int, int]:
    """How many rounds are repeated from a place on, and how often they are there."""
    for period in range(1, _LONGEST_PERIOD + 1):
        end = place
        while (
            end + period < len(rounds)
            and rounds[end].key is not None
            and rounds[end].key == rounds[end + period].key
        ):
            end += 1
        times = (end - place) // period + 1
        if times >= _LEAST_TIMES:
            return period, times
    return 1, 1


def _note(period: int, times: int) -> str:
    what = "The next round of calls" if period == 1 else f"The next {period} rounds of calls"
    return (
        f"[otel-loopguard] {what}, answers included, came {times} times in a row; "
        f"{(times - 1) * period} equal ones were left out here. The same calls will bring the same."
    )
