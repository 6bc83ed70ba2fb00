"""Settings: sources, errors, documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_loopguard import LoopGuardSettingsError, LoopGuardSpanProcessor, Settings

CANDIDATES = (
    "false", "true", "77", "7", "3", "2", "1", "0.5", "0.3", "1.5", "5000", "k", "a, b", '["a:b"]',
    "all", "shadow", "hint", "deny", "pause", "abort", "escalate_human", "critical", "high", "low",
    "defer", "none", '{"time_sync": 0.5}',
    '{"hint": 2}', '{"grep": ["read the index"]}', '{"bash": {"exempt": true}}',
    '{"writer": {"actions": 5}}',
)  # fmt: skip
"""Values as an environment has them; of each setting the first is taken that changes it."""


def changing(name: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """A value that the setting takes from its variable and that is not its default."""
    default = getattr(Settings(), name)
    for candidate in CANDIDATES:
        with monkeypatch.context() as patch:
            patch.setenv(f"LOOPGUARD_{name.upper()}", candidate)
            try:
                changed = getattr(Settings(), name)
            except LoopGuardSettingsError:
                continue
            if changed != default:
                return candidate
    return None


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_variable_and_a_description(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LOOPGUARD_` and the name in capitals sets it (E12)."""
    assert Settings.model_fields[name].description
    assert changing(name, monkeypatch) is not None


def test_names_may_be_a_text_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a variable needs no JSON."""
    for name in ("POLL_TOOLS", "SWITCHED_OFF"):
        monkeypatch.setenv(f"LOOPGUARD_{name}", "a, b")
    assert Settings().poll_tools == Settings().switched_off == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"repeat_threshold": 1}, ("repeat_threshold", "LOOPGUARD_REPEAT_THRESHOLD", "1", "2")),
        ({"mode": "loud"}, ("mode", "'loud'", "'guard' or 'shadow'")),
        ({"step_timeout_s": float("nan")}, ("step_timeout_s", "nan")),
        ({"repeat_treshold": 3}, ("repeat_treshold", "no such setting")),
        ({"max_sessions": "many"}, ("max_sessions", "'many'", "integer")),
        ({"poll_tools": 3}, ("poll_tools", "3")),
        ({"strategies": {"grep": 3}}, ("strategies.grep", "3")),
        ({"cooldown_s": {"hint": 0}}, ("cooldown_s.hint", "0", "greater than 0")),
        ({"warning_limit": -1}, ("warning_limit", "LOOPGUARD_WARNING_LIMIT", "-1")),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_bad_setting_fails_at_start(given: dict[str, object], told: tuple[str, ...]) -> None:
    """The error has name, value and expectation, for settings and for the processor alike."""
    for make in (Settings, LoopGuardSpanProcessor):
        with pytest.raises(LoopGuardSettingsError) as error:
            make(**given)  # type: ignore[arg-type]
        assert all(part in str(error.value) for part in told), str(error.value)


def test_a_variable_that_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has name, variable and value, as for every other setting."""
    monkeypatch.setenv("LOOPGUARD_STRATEGIES", "grep: read the index")
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings()
    assert str(error.value) == (
        "strategies (LOOPGUARD_STRATEGIES) = 'grep: read the index': expected JSON"
    )


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


def test_unknown_variables_are_told_once_with_the_nearest_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all of them; what is no setting on purpose is none of them."""
    for name in (
        "LOOPGUARD_REPEAT_TRESHOLD", "LOOPGUARD_COLOUR", "LOOPGUARD_EXPORTER",
        "LOOPGUARD_SERVICE_HOST", "LOOPGUARD_PORT_8080_TCP_ADDR", "LOOPGUARD_WRITE_DOCS",
        "LOOPGUARD_FRAMEWORKS_DIR", "LOOPGUARD_CYCLE_REPEATS",
    ):  # fmt: skip
        monkeypatch.setenv(name, "6")
    assert Settings().cycle_repeats == 6
    Settings(mode="shadow")
    (record,) = caplog.records
    assert record.getMessage() == (
        "otel-loopguard: the environment sets what is no setting, and it has no effect: "
        "LOOPGUARD_COLOUR, LOOPGUARD_REPEAT_TRESHOLD (is LOOPGUARD_REPEAT_THRESHOLD meant?)"
    )


def test_an_unknown_name_is_told_with_the_nearest_setting() -> None:
    """As a keyword, and in a file."""
    with pytest.raises(LoopGuardSettingsError, match=r"\(is repeat_threshold meant\?\)"):
        Settings(repeat_treshold=3)
