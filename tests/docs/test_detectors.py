"""docs/detectors.md has every detector, with its family, its evidence and its settings."""

from __future__ import annotations

import json
import re

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Action
from otel_loopguard.detectors import DETECTORS, Registry
from otel_loopguard.settings import all_fields
from tests.docs.markdown import ROOT, anchors

PAGE = ROOT / "docs/detectors.md"
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \[\w+\]\(detectors/\w+\.md#\w+\) \|", line)
    for cells in [[cell.strip() for cell in line.strip().strip("|").split(" | ")]]
}
NAMES = {re.findall(r"\[(\w+)\]", cell)[0]: cell for cell in ROWS}
ENTRIES = {entry.name: entry for entry in Registry(Settings(), DETECTORS).entries}


def test_every_detector_has_a_row() -> None:
    """The ones that look at finished steps, and the one that looks at open spans."""
    assert sorted(NAMES) == sorted([*ENTRIES, "stall"])


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_says_what_the_code_says(name: str) -> None:
    """Family and type of evidence are those of the registry; the action is one."""
    family, takes, strongest, _ = ROWS[NAMES[name]]
    assert family == f"`{ENTRIES[name].family}`"
    assert takes == f"`{ENTRIES[name].takes.__name__}`"
    assert strongest.strip("`") in {action.value for action in Action}


@pytest.mark.parametrize("name", NAMES)
def test_a_row_leads_to_its_section(name: str) -> None:
    """The heading is the name of the detector."""
    path, anchor = re.findall(r"\((detectors/\w+\.md)#(\w+)\)", NAMES[name])[0]
    assert anchor == name
    assert name in anchors(ROOT / "docs" / path)


@pytest.mark.parametrize("name", NAMES)
def test_its_settings_are_there_with_their_defaults(name: str) -> None:
    """A default that is changed is changed here too."""
    given = re.findall(r"`([\w.]+)` (\"\w+\"|[\d.]+)", ROWS[NAMES[name]][-1])
    assert given
    for setting, value in given:
        assert all_fields()[setting].default == json.loads(value), setting


def test_every_family_is_named() -> None:
    """In the table of the pages."""
    text = PAGE.read_text(encoding="utf-8").partition("## All of them")[0]
    families = {entry.family for entry in ENTRIES.values()}
    assert [family for family in sorted(families) if f"`{family}`" not in text] == []
