"""docs/project/evaluation.md: its picture is fresh, and a person has read what it got wrong."""

import os

import pytest

from tests.docs import evaluation
from tests.docs.markdown import ROOT
from tests.docs.programs import need_shared

PICTURE = ROOT / "docs/project/evaluation.svg"


@pytest.mark.rare
def test_the_curve_is_fresh() -> None:
    """It is what bench/curve.py draws of `lab.evaluate --curve`; `make docs` draws it anew."""
    need_shared()
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        PICTURE.write_text(evaluation.picture(), encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == evaluation.picture(), "run `make docs`"


@pytest.mark.rare
def test_every_false_notice_was_read() -> None:
    """Of every healthy run that is noticed, somebody read and wrote down what happened."""
    need_shared()
    assert {wrong["id"] for wrong in evaluation.alarms()} <= set(evaluation.READ)
