"""The detectors of one session: made late, each by itself."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.core import Detection
from otel_loopguard.core.decision import Severity
from otel_loopguard.detectors import Detector, DetectorSet, Registry
from otel_loopguard.detectors.base import BaseDetector


@dataclass
class One:
    """A piece of evidence."""

    number: int
    last: int = 0


@dataclass
class Other(One):
    """A piece of evidence of another type."""


def found(name: str) -> Detection:
    return Detection(name, "r", Severity.WARNING, 0.5, frozenset({1}), 1, 1, name)


class Counts:
    """Of a user's: notices every piece; what was made is written down."""

    name = "counts"
    family = "counting"
    takes = One
    # Whatever attributes of these names mean to users.
    signs = ("number",)
    kinds = 7
    lasting = "no"
    wanted = False
    made: list[str] = []  # noqa: RUF012

    def __init__(self, settings: Settings) -> None:
        self.made.append(self.name)
        self.turns = 0

    def observe(self, evidence: One) -> Detection | None:
        return found(f"{self.name} {evidence.number} {self.turns}")

    def user_turn(self) -> None:
        self.turns += 1


class Elsewhere(Counts):
    """Looks at another type."""

    name = "elsewhere"
    takes = Other


class Waits(BaseDetector):
    """Of those that ship: asked about signs only."""

    name = "waits"
    family = "counting"
    takes = One
    signs = ("number",)

    def observe(self, evidence: One) -> Detection | None:
        return found(f"{self.name} {evidence.number}")


class Lasts(Waits):
    """Asked about everything from its first sign on."""

    name = "lasts"
    signs = ("last",)
    lasting = True


class Unwanted(Waits):
    """Something that nobody set a limit of."""

    name = "unwanted"
    signs = ()

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return False


@pytest.fixture(autouse=True)
def _nothing_was_made() -> None:
    Counts.made.clear()


def panel(*detectors: type[Detector]) -> DetectorSet:
    settings = Settings()
    return DetectorSet(Registry(settings, detectors), settings, InternalErrors())


def said(found: list[Detection]) -> list[str]:
    return [detection.detector for detection in found]


def test_evidence_goes_to_whom_it_concerns() -> None:
    """By its very type, and to detectors of users all of it.

    Each is made when it is needed; its family is put on, and a user's turn reaches those made.
    """
    seen = panel(Counts, Elsewhere)
    assert Counts.made == []
    assert said(seen.observe(One(0))) == ["counts 0 0"]
    assert said(seen.observe(One(1))) == ["counts 1 0"]
    assert Counts.made == ["counts"]
    (detection,) = seen.observe(Other(1))
    assert (detection.detector, detection.family) == ("elsewhere 1 0", "counting")
    assert seen.observe("something else") == []
    seen.user_turn()
    assert said(seen.observe(One(1))) == ["counts 1 1"]


def test_what_cannot_move_a_detector_is_kept_from_it() -> None:
    """It is made with the first sign; in the order of registration all the same.

    One that lasts sees what it has no sign in, also where others' signs were seen before it.
    """
    seen = panel(Lasts, Waits, Unwanted)
    assert seen.observe(One(0)) == []
    assert said(seen.observe(One(1))) == ["waits 1"]
    assert said(seen.observe(One(3, last=1))) == ["lasts 3", "waits 3"]
    assert said(seen.observe(One(4))) == ["lasts 4", "waits 4"]
    assert said(seen.observe(One(0))) == ["lasts 0"]
