"""What the rules of the detectors say: `rules.txt`."""

from __future__ import annotations

from string import Formatter
from typing import Any

import pytest

from otel_loopguard.detectors.base import WORDINGS
from tests.docs.detectors import CLASSES


@pytest.mark.parametrize("detector", CLASSES, ids=lambda each: each.name)
def test_a_rule_has_a_sentence(detector: Any) -> None:
    """Without a point, as the decision may go on; advice is whole sentences."""
    for rule, (message, advice) in detector.wordings.items():
        assert rule.partition(".")[0] in detector.rules
        assert not message.endswith(".")
        assert message == " ".join(message.split())
        assert not advice or advice.endswith(".")
        assert all(name != "" for _, name, _, _ in Formatter().parse(message + advice))


def test_the_table_names_detectors() -> None:
    """And what cycles of agents call for."""
    assert set(WORDINGS) == {*(detector.name for detector in CLASSES), "exchange"}
