"""`learn`: what profiles come out of recorded runs, and how far their estimates hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command, call, line

Objects = Callable[..., list[dict[str, Any]]]
TRAIL = Path(__file__).resolve().parents[3] / "shared" / "traces"


def timed(name: str, durations: list[float], start: float = 1_000.0) -> str:
    """A labelled run whose calls take these seconds, one every 100 s."""
    steps = [
        call(args={"q": place}, t_start=start + 100 * place, t_end=start + 100 * place + seconds)
        for place, seconds in enumerate(durations)
    ]
    return line(name, loop=None, steps=steps)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Thirty calls of about 10 s, then one of 100 s and one that hung; and calls without times."""
    path = tmp_path / "runs.jsonl"
    steady = [10.0 + (place % 7) / 10 for place in range(30)]
    path.write_text(
        "\n".join([timed("a", [*steady, 95.0], 10_000), timed("b", [1000.0], 90_000),
                   line("c", loop=None)])
    )  # fmt: skip
    return path


def test_rows(objects: Objects, file: Path) -> None:
    """A row per tool with its durations, what held, what was called stalled; one for all."""
    tool, whole = objects("learn", file)
    assert (tool["tool"], tool["calls"], tool["failure_rate"], tool["source"]) == (
        "search", 32, 0, "profile",
    )  # fmt: skip
    assert 10 < tool["p50_ms"] / 1000 < 10.7
    assert (tool["measured"], tool["alarms"], tool["overdue"]) == (22, 2, 1)
    assert tool["within"] >= 0.8
    assert (whole["table"], whole["steps"], whole["untimed"]) == ("all", 40, 8)
    assert whole["false_alarm_rate"] == pytest.approx(1 / 40)
    assert whole["alarm_rate"] == pytest.approx(2 / 40)


def test_table(command: Command, file: Path) -> None:
    """The table says the same, with a line of shares below it."""
    shown = command("learn", file)
    assert shown.exit_code == 0
    head, row, whole, said = shown.stdout.splitlines()
    assert head.split()[:3] == ["tool", "calls", "failed"]
    assert (row.split()[0], whole.split()[0]) == ("search", "all")
    assert said.startswith("40 steps, 8 calls without times; false alarms 2.50% of the steps")


@pytest.mark.parametrize("name", ["trail.jsonl.gz", "trail.otlp.jsonl.gz"], ids=["steps", "spans"])
def test_trail(objects: Objects, name: str) -> None:
    """On real durations 85 to 95 % hold, and at most 0.5 % of the steps are called stalled."""
    if not TRAIL.is_dir():
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing(f"{TRAIL} is missing")
    whole = objects("learn", TRAIL / name)[-1]
    assert whole["measured"] > 100
    assert 0.85 <= whole["within"] <= 0.95
    assert whole["alarm_rate"] <= 0.005
