"""`explain`: why recorded sessions were stopped, or why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Command


def test_each_session_of_a_recording(runs: Path, command: Command) -> None:
    """Why it was stopped, and that there was nothing to stop."""
    done = command("explain", runs)
    assert done.exit_code == 0, done.output
    stuck, *rest = done.stdout.split("session ")[1:]
    assert stuck.startswith("stuck: the flag is abort (by policy)")
    assert "deny at step 4 (exact_repeat, identical_call): 'search' was called 4 times" in stuck
    assert "the last round weighs " in stuck
    assert all("the flag is allow" in one for one in rest)


def test_other_settings_explain_otherwise(runs: Path, tmp_path: Path, command: Command) -> None:
    settings = tmp_path / "loopguard.toml"
    settings.write_text('max_action = "hint"\n', encoding="utf-8")
    done = command("explain", runs, "--settings", settings)
    assert "next: this is as far as it goes" in done.stdout
