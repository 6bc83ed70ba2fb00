"""Settings, tuning values and prices: sources, precedence, errors, and files made to hurt."""

import copy
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from otel_loopguard import LoopGuardSettingsError, LoopGuardSpanProcessor, Settings
from otel_loopguard.settings._sources import retired, variable_of
from otel_loopguard.settings.prices import PriceTable
from otel_loopguard.settings.tuning import TextTuning, Tuning
from tests.fields import fields_of
from tests.tables import content, rows

CANDIDATES = [row.values[0] for row in rows(__file__, "candidates")]
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


@pytest.mark.parametrize("name", fields_of())
def test_every_setting_has_a_variable_and_a_description(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`LOOPGUARD_` and the name in capitals sets it, and nothing else."""
    assert fields_of()[name].description
    found = changed(name, monkeypatch, variable_of(name))
    assert name in found
    assert len(found) == 1 or name == "limits"


def test_few_settings_are_in_front() -> None:
    """All others are tuning values, each by its group; what replaced a setting is there."""
    front = [name for name in fields_of() if not name.startswith("tuning.")]
    assert len(front) <= 70
    assert len(DEFAULTS) - len(front) <= 120
    assert set(fields_of()) == set(DEFAULTS)
    assert variable_of("tuning.text.tail_period") == "LOOPGUARD_TUNING__TEXT__TAIL_PERIOD"
    known = set(fields_of())
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
    for made in (Settings(), Settings(store_url="")):  # a secret that is not set is empty
        assert (bool(made.store_url), made.store_url.get_secret_value()) == (False, "")


def test_settings_and_models_of_pydantic_go_together() -> None:
    """An application's own settings hold those of the guard; a group of them may be a model."""
    model = create_model("Model", guard=(Settings, Settings()))
    assert model(guard={"mode": "shadow"}).guard == Settings(mode="shadow")
    assert model(guard=Settings(mode="shadow")).guard.mode == "shadow"
    with pytest.raises(ValueError, match=r"guard\.mode"):
        model(guard={"mode": "loud"})
    made = Settings(tuning=Tuning(text=TextTuning(alike=0.5)))
    assert made == Settings(tuning={"text": {"alike": 0.5}})


TAIL_VARIABLE = "LOOPGUARD_TUNING__TEXT__TAIL_PERIOD"


@pytest.mark.parametrize(("given", "expected", "file"), rows(__file__, "sources"))
def test_where_values_come_from(
    given: str, expected: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keywords take precedence over the environment, and that over the file, value by value."""
    keywords, environment = json.loads(given)
    for name, value in environment.items():
        monkeypatch.setenv(f"LOOPGUARD_{name}", value)
    path = tmp_path / "settings.toml"
    path.write_text(file.replace("\\n", "\n"))
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", str(path))
    values = Settings(**keywords).values()
    found = {name: value for name, value in values.items() if value != DEFAULTS[name]}
    assert json.loads(json.dumps(found, default=sorted)) == json.loads(expected)


STANDARD = {name: int(value) for name, value in (row.values for row in rows(__file__, "standard"))}


def test_the_standard_limits_are_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """They set what is not set by itself; a checkpoint is advised where somebody asked for it."""
    assert Settings().budgets == ()
    assert changed("limits", monkeypatch, "LOOPGUARD_LIMITS") == {"limits": "standard", **STANDARD}
    own = Settings(limits="standard", budget_steps=0, budget_tokens=7)
    assert (own.budget_steps, own.budget_tokens, own.budget_actions) == (0, 7, 500)
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
    told = re.escape(f"{old} ({variable_of(old)}) is no longer a setting")
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


@pytest.mark.parametrize(("variable", "value", "name"), rows(__file__, "no_json"))
def test_a_variable_that_is_no_json_is_refused(
    variable: str, value: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has name, variable and value, as for every other setting."""
    monkeypatch.setenv(f"LOOPGUARD_{variable}", value)
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings()
    assert str(error.value) == f"{name} (LOOPGUARD_{variable}) = {value!r}: expected JSON"


@pytest.mark.parametrize(("name", "text"), rows(__file__, "files"))
def test_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    """A file sets what the environment and the call do not."""
    file = tmp_path / name
    file.write_text(text.replace("\\n", "\n"))
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


ALIASES = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MADE = {"<aliases>": ALIASES.encode(), "<merges>": MERGES.encode()}


@pytest.mark.parametrize(("_", "name", "told", "text"), rows(__file__, "hurt"))
def test_a_file_made_to_hurt_is_refused(
    tmp_path: Path, _: str, name: str, told: str, text: str
) -> None:
    """The error names the file and says what is wrong, in one line of a bounded length."""
    file = tmp_path / name
    file.write_bytes(MADE.get(text) or content(text))
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
    told = "there is no such file" if kind == "nothing" else "it is not a file"
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


TABLE = PriceTable.load()


@pytest.mark.parametrize(("model", "like"), rows(__file__, "names"))
def test_a_name_with_provider_date_and_version_has_the_price_of_its_model(
    model: str, like: str
) -> None:
    assert TABLE.cost(model, 10_000, 1_000) == (TABLE.cost(like, 10_000, 1_000) if like else None)
    assert not like or TABLE.cost(like, 10_000, 1_000)


@pytest.mark.parametrize("model", ["", "x" * 5_000], ids=["empty", "long"])
def test_what_is_no_name_has_no_price(model: str) -> None:
    assert TABLE.cost(model, 1, 1) is None


@pytest.mark.parametrize(("model", "tokens", "cost"), rows(__file__, "input"))
def test_what_input_costs(model: str, tokens: str, cost: str) -> None:
    assert TABLE.cost(model, int(tokens), 0) == pytest.approx(float(cost))


def test_tokens_of_a_cache_have_their_own_price() -> None:
    price = TABLE.cost("claude-opus-4-5", 1_000, 0, cache_read=600, cache_write=300)
    assert price == pytest.approx((100 * 5 + 600 * 0.5 + 300 * 6.25) / 1e6)
    # Told beside the input, as some instrumentations do.
    beside = TABLE.cost("claude-opus-4-5", 100, 0, cache_read=600, cache_write=300)
    assert beside == pytest.approx(price)
    # A cache without a price of its own costs as input does.
    assert TABLE.cost("gpt-4", 1_000, 0, cache_read=500) == TABLE.cost("gpt-4", 1_000, 0)


def test_a_file_of_yours_adds_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '[models]\n"mine" = { input = 1, output = 2 }\n'
        '"Gemini-2.5-pro" = { input = 3, output = 4, cache_read = 0 }\n'
    )
    table = PriceTable.load(str(path))
    assert table.cost("mine-latest", 1_000_000, 1_000_000) == 3
    # Yours holds for long requests too.
    assert table.cost("gemini-2.5-pro", 1_000_000, 0) == 3
    assert table.cost("gemini-2.5-pro", 1_000_000, 0, cache_read=1_000_000) == 0
    assert table.cost("gpt-4o", 100, 1) == TABLE.cost("gpt-4o", 100, 1)
    assert TABLE.cost("mine", 1, 1) is None


@pytest.mark.parametrize(("text", "says"), rows(__file__, "broken"))
def test_a_broken_file_says_where_and_what(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text.replace("\\n", "\n"))
    with pytest.raises(LoopGuardSettingsError, match=says) as error:
        PriceTable.load(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", ["none.toml", "prices.txt"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoopGuardSettingsError, match=name):
        PriceTable.load(str(tmp_path / name))
