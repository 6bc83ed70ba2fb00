"""A settings file that is made to hurt is refused with its name and a reason, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError, Settings

ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
SECRET = "store_url: 'redis://:hunter2@host\nmode: ["
DEEP = "is nested too deep"
MANY = "has more than 100,000 values"
NUMBER = "a number that is too long"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        pytest.param("s.yaml", ALIASES, MANY, id="aliases of aliases"),
        pytest.param("s.yaml", MERGES, MANY, id="merges of merges"),
        pytest.param("s.yml", "a: &a [*a, *a]\n", DEEP, id="an alias of itself"),
        pytest.param("s.yaml", "[" * 50_000, DEEP, id="deep YAML"),
        pytest.param("s.yaml", "- " * 50_000, DEEP, id="deep YAML in blocks"),
        pytest.param("s.yaml", "a: [" + "1," * 150_000 + "1]", MANY, id="much YAML"),
        pytest.param("s.yaml", "a: 1" + ":1" * 200_000, NUMBER, id="sexagesimal number"),
        pytest.param("s.yaml", "a: !!python/object:os.system x", "it is no YAML at", id="a tag"),
        pytest.param("s.yaml", SECRET, "it is no YAML at line", id="no YAML"),
        pytest.param("s.yaml", "a: \x07", "it is no YAML", id="a control character"),
        pytest.param("s.yaml", "- a\n- b\n", "expected names and values, got a list", id="a list"),
        pytest.param("s.json", "[" * 50_000, DEEP, id="deep JSON"),
        pytest.param("s.json", '{"a":' * 500 + "1" + "}" * 500, DEEP, id="deep objects"),
        pytest.param("s.json", '{"a": [' + "1," * 150_000 + "1]}", MANY, id="much JSON"),
        pytest.param("s.json", '{"a": ' + "9" * 5000 + "}", "cannot be read", id="a long number"),
        pytest.param("s.json", "[]", "expected names and values, got a list", id="a JSON list"),
        pytest.param("s.toml", "a = " + "[" * 50_000, DEEP, id="deep TOML"),
        pytest.param("s.toml", ".".join("a" * 100_000) + " = 1", DEEP, id="a dotted key"),
        pytest.param("s.toml", "a = 0x" + "f" * 10_000, NUMBER, id="a long hexadecimal number"),
        pytest.param("s.toml", "#" * 2_000_000, "more than 1,048,576 bytes", id="a long file"),
        pytest.param("s.toml", "repeat_threshold == 5", "cannot be read", id="no TOML"),
        pytest.param("s.ini", "a=1", ".toml", id="another form"),
        pytest.param("s.toml", "webhook_secret = hunter2\n", "cannot be read", id="no quotes"),
        pytest.param("s.json", '{"store_url": hunter2', "cannot be read", id="no JSON"),
        pytest.param("s.yaml", "webhook_secret: !hunter2 x", "it is no YAML at", id="a tag of it"),
        pytest.param("s.yaml", "webhook_secret: *hunter2", "it is no YAML at", id="an alias of it"),
        pytest.param("s.toml", b"a = '\xff'", "cannot be read", id="no UTF-8"),
        pytest.param("s.json", b"\xff\xfe{\0}\0", "cannot be read", id="UTF-16"),
        pytest.param("s.toml", b"\0" * 1000, "cannot be read", id="zeros"),
    ],
)
def test_a_file_made_to_hurt_is_refused(
    tmp_path: Path, name: str, text: str | bytes, told: str
) -> None:
    """The error names the file and says what is wrong, in one line of a bounded length."""
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings.from_file(file)
    assert str(file) in str(error.value)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert "hunter2" not in str(error.value)  # it quotes nothing of a file
    assert len(str(error.value)) < 500


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
