"""What a detector is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Detection
    from otel_loopguard.settings import Settings


class Detector(Protocol):
    """Answers one question about one session, one piece of evidence at a time.

    A detector belongs to one session and is called under its lock, in the order of the steps. It
    costs O(1) per step, and its memory does not grow with the session.

    Its factory (usually the class itself) may say:

    - `name`, value of `loopguard.detector.name`; by default the factory's own name;
    - `family`, the group that `switched_off` may name; by default `custom`;
    - `takes`, the type of evidence that it looks at; by default `Evidence`, a finished tool call.
      `Step` gives the bare step of any kind, with its content.
    """

    def observe(self, evidence: Any, /) -> Detection | None:
        """Takes one piece of evidence; a detection if it shows (or still shows) a loop."""
        ...

    def user_turn(self) -> None:
        """A user spoke: what was counted before weighs half."""
        ...


Factory = Callable[["Settings"], Detector]
"""Makes the detector of one session."""
