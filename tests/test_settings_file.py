"""A settings file that is made to hurt is refused with its name and a reason, at once."""

import os
import re
from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError, Settings
from tests.tables import rows

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MADE = {"<aliases>": ALIASES, "<merges>": MERGES}


def content(text: str) -> bytes:
    """What a cell of the table says."""
    escaped = MADE.get(text) or text.encode().decode("unicode_escape")
    again = re.sub(r"<(\d+) times (.+?)>", lambda some: some[2] * int(some[1]), escaped)
    return again.encode("latin-1")


@pytest.mark.parametrize(("_", "name", "told", "text"), rows(__file__, "hurt"))
def test_a_file_made_to_hurt_is_refused(
    tmp_path: Path, _: str, name: str, told: str, text: str
) -> None:
    """The error names the file and says what is wrong, in one line of a bounded length."""
    file = tmp_path / name
    file.write_bytes(content(text))
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings.from_file(file)
    said = str(error.value)
    assert str(file) in said
    assert told in said
    assert "\n" not in said
    assert "hunter2" not in said  # it quotes nothing of a file
    assert len(said) < 500


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "nothing"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A folder, a named pipe and a device are refused without being opened."""
    path = tmp_path / "s.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    told = "there is no such file" if kind == "nothing" else "it is no file"
    with pytest.raises(LoopGuardSettingsError, match=rf"s\.toml': {told}"):
        Settings.from_file(path)


def test_an_alias_is_no_bomb(tmp_path: Path) -> None:
    """Aliases and merges, used as people use them, are read."""
    file = tmp_path / "s.yaml"
    file.write_text(
        "tools:\n  a: &quick {repeat_threshold: 4}\n  b: *quick\n"
        "  c: {<<: *quick, similar_threshold: 9}\n"
    )
    settings = Settings.from_file(file)
    assert [settings.of(tool).repeat_threshold for tool in "abc"] == [4, 4, 4]


@pytest.mark.parametrize("name", ["s.toml", "s.json", "s.yaml"])
@pytest.mark.parametrize("text", ["", "\n \n"], ids=repr)
def test_an_empty_file_sets_nothing(tmp_path: Path, name: str, text: str) -> None:
    """An empty file is one without names."""
    file = tmp_path / name
    file.write_text(text)
    assert Settings.from_file(file) == Settings()


def test_a_variable_nested_too_deep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of a variable that is nested too deep is refused by the name of its setting."""
    monkeypatch.setenv("LOOPGUARD_TOOLS", "[" * 50_000)
    with pytest.raises(LoopGuardSettingsError, match="nested too deep"):
        Settings()
