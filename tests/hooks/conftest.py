"""A home of its own for each test, in which no coding agent has hooks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hooks.running import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A user's home, for programs."""
    made = Home(tmp_path)
    yield made
    made.end()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the home of this process, with a project that is its working folder."""
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "home"
    (folder / "project" / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.chdir(folder / "project")
    return folder
