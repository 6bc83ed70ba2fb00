"""A framework's own limits: a word before they end a run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock
from otel_loopguard.logger import logger

_MOST: Final = 1024
_NEAR: Final = 0.8
_LEAST: Final = 5
"""A limit below this is no net for runs that go on and on, but a way to work."""


class Limit(NamedTuple):
    """How much of a framework's own limit a run has used.

    Attributes:
        name: What the framework calls it.
        used: Units used, the one that begins among them.
        most: Units that there are.
    """

    name: str
    used: int
    most: int


class Limits:
    """Says once for each run that four fifths of a limit are used. Thread-safe."""

    def __init__(self) -> None:
        self._told: OrderedDict[Hashable, int] = OrderedDict()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: the lock may be held."""
        self._lock = new_lock()

    def near(self, place: Hashable, limit: Limit | None) -> str | None:
        """What to tell the model of a run; None if there is nothing to tell.

        Args:
            place: What stands for the run, or for the conversation whose runs count from anew.
            limit: How much is used; None if that is not known.
        """
        if limit is None or limit.most < _LEAST:
            return None
        with self._lock:
            told = self._told.get(place)
            if told is not None and limit.used < told:
                # The next run of the conversation.
                del self._told[place]
                told = None
            if told is not None or limit.used < _NEAR * limit.most:
                return None
            self._told[place] = limit.used
            if len(self._told) > _MOST:
                self._told.popitem(last=False)
        said = f"{limit.used} of {limit.most} are used of {limit.name}, which ends the run"
        logger.warning("%s: session %s", said, place)
        return f"{said}: finish with what you have, or say what is missing."
