"""What a detector is, and which there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Detection, Evidence
    from otel_loopguard.settings import Settings


class Detector(Protocol):
    """Answers one question about one session, one call at a time.

    A detector belongs to one session and is called under its lock, in the order of the calls. It
    costs O(1) per call, and its memory does not grow with the session.
    """

    @property
    def name(self) -> str:
        """Value of `loopguard.detector.name`."""
        ...

    def observe(self, evidence: Evidence) -> Detection | None:
        """Takes one call; gives a detection if the call shows (or still shows) a loop."""
        ...

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        ...


Factory = Callable[["Settings"], Detector]
"""Makes the detector of one session."""
