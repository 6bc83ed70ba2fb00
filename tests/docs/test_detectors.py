"""Every detector says what docs/detectors.md tells of it."""

import re
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.detectors import DETECTORS, Registry
from tests.docs.detectors import CLASSES, PARTS, parts, question
from tests.docs.markdown import ROOT
from tests.fields import fields_of


@pytest.mark.parametrize("detector", CLASSES, ids=lambda each: each.name)
def test_a_detector_says_all_of_itself(detector: Any) -> None:
    """A question, what counts and what does not, its rules, and settings that exist."""
    assert re.fullmatch(r"[^\n]+\?", question(detector))
    assert tuple(parts(detector)) == PARTS
    assert detector.rules
    assert set(detector.tuned_by) <= set(fields_of())


def test_every_rule_is_told() -> None:
    """What the code of the detectors gives as a reason is a rule of one of them."""
    places = (ROOT / "otel_loopguard/detectors").rglob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in places)
    rules = {rule for detector in CLASSES for rule in detector.rules}
    assert set(re.findall(r'reason ?= ?"(\w+)"', code)) <= rules
    assert len(rules) > 40


def test_every_family_has_a_section() -> None:
    """Also those outside of the registry."""
    text = (ROOT / "docs/detectors.md").read_text(encoding="utf-8")
    registered = {entry.family for entry in Registry(Settings(), DETECTORS).entries}
    families = {each.family for each in CLASSES}
    assert registered <= families
    assert [one for one in families if f"<!-- generated: {one} -->" not in text] == []
