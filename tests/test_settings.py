"""Settings: sources, errors, documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError, LoopGuardSpanProcessor, Settings


def test_every_setting_has_a_variable_and_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """`LOOPGUARD_` and the name in capitals sets it (E12)."""
    samples = {bool: "false", int: "77", float: "7.5", str: "k"}
    special = {
        "mode": "shadow", "max_action": "deny", "stall_warning": "0.5", "max_value_chars": "5000",
        "poll_tools": "a, b", "exempt_tools": '["a"]', "read_tools": "a", "write_tools": "a",
        "cycle_max_period": "8", "cycle_repeats": "4",
    }  # fmt: skip
    default = Settings()
    for name, field in Settings.model_fields.items():
        assert field.description, name
        monkeypatch.setenv(
            f"LOOPGUARD_{name.upper()}",
            special.get(name, samples[type(getattr(default, name))] if name not in special else ""),
        )
    changed = Settings()
    same = [
        name for name in Settings.model_fields if getattr(changed, name) == getattr(default, name)
    ]
    assert same == []
    assert changed.poll_tools == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"repeat_threshold": 1}, ("repeat_threshold", "LOOPGUARD_REPEAT_THRESHOLD", "1", "2")),
        ({"mode": "loud"}, ("mode", "'loud'", "'guard' or 'shadow'")),
        ({"step_timeout_s": float("nan")}, ("step_timeout_s", "nan")),
        ({"repeat_treshold": 3}, ("repeat_treshold", "no such setting")),
        ({"max_sessions": "many"}, ("max_sessions", "'many'", "integer")),
        ({"poll_tools": 3}, ("poll_tools", "3")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_setting_fails_at_start(given: dict[str, object], told: tuple[str, ...]) -> None:
    """The error has name, value and expectation, for settings and for the processor alike."""
    for make in (Settings, LoopGuardSpanProcessor):
        with pytest.raises(LoopGuardSettingsError) as error:
            make(**given)  # type: ignore[arg-type]
        assert all(part in str(error.value) for part in told), str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", "repeat_threshold = 5\nmode = 'shadow'\n"),
        ("s.json", '{"repeat_threshold": 5, "mode": "shadow"}'),
        ("s.yaml", "repeat_threshold: 5\nmode: shadow\n"),
    ],
)
def test_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """A file sets what the environment and the call do not."""
    file = tmp_path / name
    file.write_text(text)
    assert Settings.from_file(file).repeat_threshold == 5
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", str(file))
    monkeypatch.setenv("LOOPGUARD_REPEAT_THRESHOLD", "6")
    assert (Settings().repeat_threshold, Settings().mode) == (6, "shadow")
    assert Settings(repeat_threshold=7).repeat_threshold == 7


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("s.toml", "repeat_threshold == 5", "cannot be read"),
        ("s.toml", "nonsense = 5", "nonsense"),
        ("s.ini", "a=1", ".toml"),
        ("missing.toml", None, "no such file"),
    ],
)
def test_a_bad_settings_file(tmp_path: Path, name: str, text: str | None, told: str) -> None:
    """The error names the file and what is wrong with it."""
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    with pytest.raises(LoopGuardSettingsError, match=told):
        Settings.from_file(file)


def test_settings_do_not_change() -> None:
    """A guard's settings are its own for life."""
    with pytest.raises(ValueError, match="frozen"):
        Settings().mode = "shadow"  # type: ignore[misc]
