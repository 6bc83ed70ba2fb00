"""Settings and tuning values: sources, precedence, errors, documentation."""

from __future__ import annotations

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from otel_loopguard import (
    LoopGuard,
    LoopGuardSettingsError,
    LoopGuardSpanProcessor,
    Settings,
)
from otel_loopguard.settings._names import retired, variable_of
from otel_loopguard.settings.tuning import TextTuning, Tuning
from tests.tables import rows

CANDIDATES = (
    "false", "true", "77", "7", "3", "2", "1", "0.5", "0.3", "1.5", "5000", "k", "a, b", '["a:b"]',
    "all", "shadow", "hint", "deny", "pause", "abort", "escalate_human", "critical", "high", "low",
    "none", "unclear",
    '{"hint": 2}', '{"grep": ["read the index"]}', '{"bash": {"exempt": true}}',
    '{"writer": {"actions": 5}}', "annotations", "standard", "session", "at_end",
)  # fmt: skip
"""Values as an environment has them; of each setting the first is taken that changes it."""
DEFAULTS = Settings().values()


def changed(name: str, monkeypatch: pytest.MonkeyPatch, *variables: str) -> dict[str, Any]:
    """What some variables change, with the first value that changes the setting."""
    for candidate in CANDIDATES:
        with monkeypatch.context() as patch:
            for variable in variables:
                patch.setenv(variable, candidate)
            try:
                found = Settings().values()
            except LoopGuardSettingsError:
                continue
            if found[name] != DEFAULTS[name]:
                return {name: value for name, value in found.items() if value != DEFAULTS[name]}
    return {}


@pytest.mark.parametrize("name", Settings.pydantic_fields())
def test_every_setting_has_a_variable_and_a_description(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LOOPGUARD_` and the name in capitals sets it, and nothing else."""
    assert Settings.pydantic_fields()[name].description
    found = changed(name, monkeypatch, variable_of(name))
    assert name in found
    assert len(found) == 1 or name == "limits"


def test_few_settings_are_in_front() -> None:
    """All others are tuning values, each by its group; what replaced a setting is there."""
    front = [name for name in Settings.pydantic_fields() if not name.startswith("tuning.")]
    assert len(front) <= 70
    assert len(DEFAULTS) - len(front) <= 120
    assert set(Settings.pydantic_fields()) == set(DEFAULTS)
    assert variable_of("tuning.text.tail_period") == "LOOPGUARD_TUNING__TEXT__TAIL_PERIOD"
    known = set(Settings.pydantic_fields())
    assert {new for new in retired().values() if re.fullmatch(r"tuning[\w.]+", new)} <= known
    assert not retired().keys() & known


def test_a_copy_keeps_what_was_set() -> None:
    """Copied and pickled, settings are equal to the ones they came from."""
    made = Settings(mode="shadow", tuning={"text": {"alike": 0.5}})
    for copied in (made.model_copy(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert copied == made
        assert copied.model_fields_set == {"mode", "tuning"}
        assert copied.model_dump(exclude_unset=True) == {
            "mode": "shadow", "tuning": {"text": {"alike": 0.5}}
        }  # fmt: skip
    assert repr(made) == "Settings(mode='shadow', tuning=Tuning(text=TextTuning(alike=0.5)))"
    for made in (Settings(), Settings(store_url="")):  # a secret that is not set is empty
        assert (bool(made.store_url), made.store_url.get_secret_value()) == (False, "")


def test_settings_are_a_field_of_a_model() -> None:
    """Of pydantic, for an application whose own settings hold those of the guard."""
    model = create_model("Model", guard=(Settings, Settings()))
    assert model(guard={"mode": "shadow"}).guard == Settings(mode="shadow")
    assert model(guard=Settings(mode="shadow")).guard.mode == "shadow"
    with pytest.raises(ValueError, match=r"guard\.mode"):
        model(guard={"mode": "loud"})


TAIL, ALIKE = "tuning.text.tail_period", "tuning.text.alike"
GROUP = "LOOPGUARD_TUNING__TEXT"
TAIL_VARIABLE = f"{GROUP}__TAIL_PERIOD"
MODEL = Tuning(text=TextTuning(alike=0.5))
Sources = tuple[dict[str, Any], dict[str, str], str]
"""Keyword arguments, variables, and a file in TOML."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (({"tuning": {"text": {"tail_period": 7}}}, {}, ""), {TAIL: 7}),
        (({"tuning": MODEL}, {}, ""), {ALIKE: 0.5}),
        (({}, {TAIL_VARIABLE: "7"}, ""), {TAIL: 7}),
        (({}, {}, "[tuning.text]\ntail_period = 7"), {TAIL: 7}),
        (({"max_sessions": 7}, {}, ""), {"max_sessions": 7}),
        (({}, {}, "max_sessions = 7"), {"max_sessions": 7}),
        (
            (
                {"tuning": {"text": {"tail_period": 7}}},
                {TAIL_VARIABLE: "8", f"{GROUP}__ALIKE": "0.5"},
                "[tuning.text]\ntail_period = 9\nalike = 0.6\nnews = 0.2",
            ),
            {TAIL: 7, ALIKE: 0.5, "tuning.text.news": 0.2},
        ),
        (
            ({}, {"LOOPGUARD_EXEMPT_TOOLS": "['a', 'b']", "LOOPGUARD_DETECTORS": "z:b, a:c"}, ""),
            {"exempt_tools": {"a", "b"}, "detectors": ("z:b", "a:c")},
        ),
        (
            ({}, {"LOOPGUARD_TUNING__POLICY__COOLDOWN_S": '{"hint": 2}'}, ""),
            {"tuning.policy.cooldown_s": {"hint": 2}},
        ),
    ],
    ids=["keyword", "model", "variable", "file", "flat keyword", "flat in a file",
         "one group in all three", "names with commas between", "JSON"],
)  # fmt: skip
def test_where_values_come_from(
    given: Sources, expected: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keywords take precedence over the environment, and that over the file, value by value."""
    assert different(given, tmp_path, monkeypatch) == expected


def different(given: Sources, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the sources change of the defaults."""
    keywords, environment, file = given
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    path = folder / "settings.toml"
    path.write_text(file)
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", str(path))
    values = Settings(**keywords).values()
    return {name: value for name, value in values.items() if value != DEFAULTS[name]}


STANDARD = {
    "limits": "standard",
    "budget_steps": 50, "budget_tokens": 100_000, "budget_actions": 500,
    "budget_task_actions": 100, "budget_errors": 10, "budget_elapsed_s": 3600,
    "budget_phases": 20, "stall_idle_s": 30, "stall_run_s": 300, "stall_overall_s": 840,
    "graph_iterations": 50,
}  # fmt: skip


def test_the_standard_limits_are_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """They set what is not set by itself; without them there is no limit at all."""
    assert Settings().budgets == ()
    assert changed("limits", monkeypatch, "LOOPGUARD_LIMITS") == STANDARD
    own = Settings(limits="standard", budget_steps=0, budget_tokens=7)
    assert (own.budget_steps, own.budget_tokens, own.budget_actions) == (0, 7, 500)


def test_a_checkpoint_is_advised_where_somebody_asked_for_it() -> None:
    assert Settings(budget_action="hint").checkpoint_every == 0
    assert Settings(limits="standard").checkpoint_every == 25
    assert Settings(tuning={"budget": {"checkpoint_every": 9}}).checkpoint_every == 9
    none = Settings(limits="standard", tuning={"budget": {"checkpoint_every": 0}})
    assert none.checkpoint_every == 0


@pytest.mark.parametrize(("old", "new"), retired().items())
def test_a_retired_setting_is_told_with_what_to_use(
    old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In code, in a file and in the environment, where nothing else that is unknown fails."""
    file = tmp_path / "settings.toml"
    file.write_text(f"{old} = 5\n")
    told = re.escape(f"{old} ({variable_of(old)}) is no setting any more")
    told += re.escape(f": use {new} instead") if new else ""
    with pytest.raises(LoopGuardSettingsError, match=told):
        Settings(**{old: 5})
    with pytest.raises(LoopGuardSettingsError, match=told):
        Settings.from_file(file)
    monkeypatch.setenv(variable_of(old), "5")
    with pytest.raises(LoopGuardSettingsError, match=told):
        Settings()


BAD = rows(__file__, "bad")


@pytest.mark.parametrize(("given", "parts"), [(row.values[0], row.values[1:]) for row in BAD])
def test_a_bad_setting_fails_at_start(given: str, parts: tuple[str, ...]) -> None:
    """The error has name, value and expectation, for settings and for the processor alike."""
    for make in (Settings, LoopGuardSpanProcessor):
        with pytest.raises(LoopGuardSettingsError) as error:
            make(**json.loads(given))
        assert [part for part in parts if part not in str(error.value)] == [], str(error.value)


@pytest.mark.parametrize(
    ("variable", "value", "name"),
    [
        ("STRATEGIES", "grep: read the index", "strategies"),
        ("TUNING__POLICY__COOLDOWN_S", "hint", "tuning.policy.cooldown_s"),
        ("TOOLS", '{"search": ', "tools"),
    ],
)
def test_a_variable_that_is_no_json_is_refused(
    variable: str, value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has name, variable and value, as for every other setting."""
    monkeypatch.setenv(f"LOOPGUARD_{variable}", value)
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings()
    assert str(error.value) == f"{name} (LOOPGUARD_{variable}) = {value!r}: expected JSON"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.toml", "repeat_threshold = 5\nmode = 'shadow'\n[tuning.text]\nalike = 0.5\n"),
        ("s.json", '{"repeat_threshold": 5, "mode": "shadow", "tuning": {"text": {"alike": 0.5}}}'),
        ("s.yaml", "repeat_threshold: 5\nmode: shadow\ntuning: {text: {alike: 0.5}}\n"),
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
    assert Settings().tuning.text.alike == 0.5
    assert Settings(repeat_threshold=7).repeat_threshold == 7


def test_unknown_variables_are_told_once_with_the_nearest_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for all of them; what is no setting on purpose is none of them."""
    for name in (
        "LOOPGUARD_REPEAT_TRESHOLD", "LOOPGUARD_COLOUR", "LOOPGUARD_EXPORTER",
        "LOOPGUARD_SERVICE_HOST", "LOOPGUARD_PORT_8080_TCP_ADDR", "LOOPGUARD_WRITE_DOCS",
        "LOOPGUARD_FRAMEWORKS_DIR", "LOOPGUARD_ERROR_THRESHOLD", f"{TAIL_VARIABLE}S",
        "LOOPGUARD_SERVE_TOKEN", "LOOPGUARD_URL", "LOOPGUARD_TOKEN",
    ):  # fmt: skip
        monkeypatch.setenv(name, "6")
    assert Settings().error_threshold == 6
    Settings(mode="shadow")
    (record,) = caplog.records
    assert record.getMessage() == (
        "otel-loopguard: unknown setting in the environment, ignored: "
        "LOOPGUARD_COLOUR, LOOPGUARD_REPEAT_TRESHOLD (is LOOPGUARD_REPEAT_THRESHOLD meant?), "
        f"{TAIL_VARIABLE}S (is {TAIL_VARIABLE} meant?)"
    )


def test_a_name_that_is_not_there_cannot_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard knows its detectors; the settings do not."""
    monkeypatch.setenv("LOOPGUARD_SWITCHED_OFF", "cycle,cycles")
    with pytest.raises(LoopGuardSettingsError, match=r"LOOPGUARD_SWITCHED_OFF.* = cycles: "):
        LoopGuard(Settings())
