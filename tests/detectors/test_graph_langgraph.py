"""A real LangGraph graph, read off the spans of OpenInference."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.detectors.graphs import FAMILY
from tests.zero_code.interpreter import environment, interpreter


def ran(how: str, *switched_off: str) -> tuple[list[str], list[tuple[str, str, int]]]:
    """The visits of a run, and the decisions on it: detector, action, visits so far."""
    python = interpreter("langgraph", "openinference.instrumentation.langchain")
    script = Path(__file__).with_name("langgraph_loop.py")
    done = subprocess.run(
        [python, str(script), how, *switched_off],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout.splitlines()[-1])
    visits, decisions, faults = found
    assert faults == {}
    return visits, [(detector, action, at) for detector, action, at in decisions]


def test_a_graph_that_goes_round_is_noticed_and_not_stopped() -> None:
    """The same page, read again and again: its state settles, it goes round, and nothing stops."""
    visits, decisions = ran("stuck", "repetition")
    assert visits[:4] == ["choose", "read", "choose", "read"]
    assert len(visits) == 62
    found = [one for one in decisions if one[0] in FAMILY]
    assert found[0][:2] == ("state_convergence", "hint")
    assert found[0][2] <= 12
    assert "node_cycle" in {name for name, _, _ in found}
    assert {action for _, action, _ in found} <= {"allow", "hint", "steer", "ask"}


def test_a_graph_that_learns_is_left_alone() -> None:
    """Another page in each of thirty turns, a few milliseconds each."""
    visits, decisions = ran("learning")
    assert len(visits) == 62
    assert [one for one in decisions if one[0] in FAMILY] == []
