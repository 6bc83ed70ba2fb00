"""Settings of a project may come with a repository of anybody."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.hooks.install import BACKUP, install, states, uninstall

HOOK = {"type": "command", "command": "otel-loopguard hook run claude-code"}


@pytest.fixture
def settings(home: Path) -> Path:
    """The settings of the project in `home`; there are none yet."""
    file = home / "project" / ".claude" / "settings.json"
    file.parent.mkdir()
    return file


def problem_of(file: Path) -> str | None:
    return next(state.problem for state in states(file.parent.parent) if state.file == file)


def set_hooks(file: Path) -> None:
    install("claude-code", "project", "observe", file.parent.parent, "otel-loopguard")


def test_a_backup_does_not_follow_a_link(settings: Path, home: Path) -> None:
    keys = home / "authorized_keys"
    keys.write_text("mine\n")
    settings.write_text("/*\nssh-rsa AAAA theirs\n*/\n{}\n")
    settings.chmod(0o600)
    backup = settings.with_name(settings.name + BACKUP)
    backup.symlink_to(keys)
    set_hooks(settings)
    assert keys.read_text() == "mine\n"
    assert "theirs" in backup.read_text()
    assert not backup.is_symlink()
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "folder"])
def test_what_is_no_ordinary_file_is_not_read(settings: Path, place: str) -> None:
    if place == "pipe":
        os.mkfifo(settings)
    elif place == "folder":
        settings.mkdir()
    else:
        settings.symlink_to(place)
    assert "it is not a regular file" in str(problem_of(settings))
    with pytest.raises(LoopGuardSettingsError, match="it is not a regular file"):
        set_hooks(settings)


def test_a_huge_file_is_not_read(settings: Path) -> None:
    with settings.open("wb") as stream:
        stream.truncate(1 << 34)
    assert "has more than" in str(problem_of(settings))


def test_a_command_made_for_regular_expressions_is_searched_in_linear_time(settings: Path) -> None:
    command = "otel-loopguard" * 100_000  # 25 minutes of a search that is not
    settings.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"command": command}]}]}}))
    assert problem_of(settings) is None


def test_thousands_of_hooks_are_refused(settings: Path) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [HOOK]}] * 5_000}})
    settings.write_text(text)
    with pytest.raises(LoopGuardSettingsError, match="more than 100 hooks of otel-loopguard"):
        set_hooks(settings)
    with pytest.raises(LoopGuardSettingsError, match="more than 100 hooks of otel-loopguard"):
        uninstall("claude-code", "project", settings.parent.parent)
    assert settings.read_text() == text
