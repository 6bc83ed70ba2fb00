"""The part of docs/reference.md on decisions has what the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_loopguard.core import Action
from otel_loopguard.core.decision import FollowUp, Source
from otel_loopguard.policy import DIAGNOSES, STRATEGIES, follow_ups_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")


def test_every_diagnosis_kind_of_tool_and_source_is_listed() -> None:
    """Kinds in the order in which the words of a name are looked up, sources in theirs."""
    signatures = PAGE.partition("Signatures: ")[2].partition("\n\n")[0]
    assert [one for one in DIAGNOSES if f"`{one}`" not in signatures] == []
    kinds = " ".join(PAGE.split("inferred from its name: ")[1].split(".")[0].split()).split(", ")
    assert [kind for kind in STRATEGIES if kind not in kinds] == []
    assert [source for source in Source if f"| `{source}` |" not in PAGE] == []


@pytest.mark.parametrize("action", list(Action), ids=str)
def test_every_action_has_its_follow_ups(action: Action) -> None:
    """The line of an action ends with what follows."""
    named = ", ".join(f"`{step}`" for step in follow_ups_of(action, None))
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and f"`{action}`" in line]
    assert any(line.endswith(f"| {named} |") for line in lines)
    assert {step.value for step in follow_ups_of(action, None)} <= {one.value for one in FollowUp}
