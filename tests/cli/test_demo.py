"""`otel-loopguard demo` shows a live agent that is stopped, and a recorded run."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def test_the_demo(command: Any) -> None:
    """The live agent is hinted, denied, aborted; a recorded run's decisions stand on its tree."""
    result = command("demo")
    assert result.exit_code == 0
    live, recorded = result.stdout.split("A recorded run")
    places = [
        live.index(text) for text in ("guard  hint:", "guard  deny:", "refused", "LoopGuardAbort:")
    ]
    assert places == sorted(places)
    for text in ("invoke_agent gpt-3.5", "◆ hint", "◆ deny", "◆ abort"):
        assert text in recorded


def test_a_demo_that_is_not_stopped(command: Any, monkeypatch: Any) -> None:
    """If the environment switches the guard off, the demo reports it, ends, and fails."""
    monkeypatch.setenv("LOOPGUARD_ENABLED", "false")
    result = command("demo")
    assert result.exit_code == 1
    assert "was not stopped" in result.stdout


def test_the_sample_has_its_notice() -> None:
    """The recorded run is small, its licence stands beside it."""
    data = files("otel_loopguard.cli") / "data"
    sample = data / "intercode-sql.otlp.jsonl.gz"
    assert len(sample.read_bytes()) < 200_000
    notice = (data / "NOTICE").read_text()
    assert "intercode-sql.otlp.jsonl.gz" in notice
    assert "Copyright (c) 2023 Princeton" in notice
    assert "Permission is hereby granted" in notice
