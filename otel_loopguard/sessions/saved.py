"""What a session had counted at a checkpoint of its application, to be taken up again (C19)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.control import Flag
    from otel_loopguard.core import Progress, SavedMilestones
    from otel_loopguard.detectors import Detector
    from otel_loopguard.identity import Factory, Sense
    from otel_loopguard.policy import Policy


@dataclass(frozen=True, slots=True)
class SavedSession:
    """Copies that nobody counts on; in this process only, for they are made of calls.

    Attributes:
        key: Key that the session had.
        flag: Its flag, which stays the same when the session gets its final key.
        progress: Its totals, which the copies refer to; still counted on.
        task: Number of the user's task at that time.
        senses: What its senses knew.
        detectors: What its detectors had counted, by name.
        policy: Its ladder; None if the session was stopped.
        milestones: Its milestones, and the plan that it followed.
    """

    key: str
    flag: weakref.ref[Flag]
    progress: Progress
    task: int
    senses: Mapping[Factory, Sense]
    detectors: Mapping[str, Detector]
    policy: Policy | None
    milestones: SavedMilestones
