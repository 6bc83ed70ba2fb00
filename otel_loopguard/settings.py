"""Every setting: its unit, its default, its environment variable.

The variable of a setting is `LOOPGUARD_` and its name in capitals. Earlier wins: keyword
arguments, environment, the file named by `LOOPGUARD_SETTINGS_FILE` (TOML, JSON, or YAML with the
extra `yaml`), defaults.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    JsonConfigSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
    YamlConfigSettingsSource,
)

from otel_loopguard.errors import LoopGuardSettingsError

_FILE = "LOOPGUARD_SETTINGS_FILE"
_SOURCES = {
    ".toml": TomlConfigSettingsSource,
    ".json": JsonConfigSettingsSource,
    ".yaml": YamlConfigSettingsSource,
    ".yml": YamlConfigSettingsSource,
}

Names = Annotated[frozenset[str], NoDecode]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[float, Field(ge=2, le=1000)]


class Settings(BaseSettings):
    """Settings of one guard.

    Raises:
        LoopGuardSettingsError: A value cannot be used, or a name is unknown; the message has name,
            value and expectation.
    """

    model_config = SettingsConfigDict(
        env_prefix="LOOPGUARD_", extra="forbid", frozen=True, env_ignore_empty=True
    )

    enabled: bool = Field(True, description="Switches the whole guard off; spans pass untouched.")
    mode: Literal["guard", "shadow"] = Field(
        "guard",
        description="`guard` decides and raises the flag; `shadow` decides and annotates, and "
        "never raises the flag.",
    )
    max_action: Literal["hint", "deny", "abort"] = Field(
        "abort", description="Strongest action that the policy may take."
    )

    repeat_threshold: Count = Field(
        3, description="Equal calls with an equal outcome, in repeats, that make a loop (C1, D1)."
    )
    repeat_window: int = Field(
        50, ge=4, le=1000, description="Calls that repeats are looked for in (C1)."
    )
    cycle_max_period: int = Field(
        16, ge=2, le=64, description="Longest cycle that is looked for, in calls (C3)."
    )
    cycle_repeats: float = Field(
        3, ge=2, le=20, description="Turns that make a cycle of up to three calls (C3)."
    )
    error_threshold: Count = Field(
        3, description="Equal errors of one tool, whatever the arguments, that make a loop (C4)."
    )
    transient_budget_s: Seconds = Field(
        60, description="Seconds that transient errors (429, 5xx, timeout) may go on (C4)."
    )
    wait_gap_s: Seconds = Field(
        5, description="Seconds between unchanged answers from which asking again is waiting."
    )
    wait_budget_s: Seconds = Field(
        1800, description="Seconds that waiting for an unchanged answer may go on."
    )
    step_timeout_s: Seconds = Field(
        60, description="Seconds that one tool call may take before it is a stall (D3)."
    )
    stall_warning: float = Field(
        0.8, gt=0, le=1, description="Part of `step_timeout_s` at which a warning is given (D3)."
    )
    poll_tools: Names = Field(
        frozenset(), description="Tools that poll: an unchanged answer is waiting (C5)."
    )
    exempt_tools: Names = Field(frozenset(), description="Tools that are never judged (C5).")
    read_tools: Names = Field(
        frozenset(), description="Tools that change nothing; others are judged by their name (C5)."
    )
    write_tools: Names = Field(
        frozenset(), description="Tools that change something, so that progress is possible (C5)."
    )

    deny_after: int = Field(
        2, ge=1, le=100, description="Confirming calls after a hint until calls are denied."
    )
    abort_after: int = Field(
        3, ge=1, le=100, description="Confirming calls after a hint until the session is aborted."
    )
    forget_after: int = Field(
        24, ge=1, le=1000, description="Calls without the loop after which its ladder is forgotten."
    )
    pause_limit_s: Seconds = Field(
        300, description="Seconds that a gate waits while the session is paused."
    )

    max_sessions: int = Field(
        10_000, ge=1, description="Sessions kept; the one unused for longest goes first."
    )
    session_ttl_s: Seconds = Field(3600, description="Seconds an unused session is kept.")
    max_open_steps: int = Field(10_000, ge=1, description="Open spans kept; the oldest goes first.")
    max_value_chars: int = Field(
        1_000_000,
        ge=256,
        description="Characters of arguments or outcome that are compared; of longer text head, "
        "tail and length.",
    )
    digest_key: str = Field(
        "",
        description="Key of the digests that leave the process; empty: a random one per process, "
        "so that digests compare within it only.",
        repr=False,
    )
    span_events: bool = Field(
        True, description="Adds a span event `loopguard.decision` to open ancestors."
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise LoopGuardSettingsError(_explain(error)) from None

    @field_validator("poll_tools", "exempt_tools", "read_tools", "write_tools", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Names may come as a list, or as text with commas between them."""
        if isinstance(value, str):
            names = value.strip().removeprefix("[").removesuffix("]").split(",")
            return frozenset(name.strip(" \t\"'") for name in names if name.strip(" \t\"'"))
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keyword arguments, then the environment, then the settings file."""
        del dotenv_settings, file_secret_settings
        source: Any = init_settings
        given: dict[str, object] = source.init_kwargs
        named = given.pop("settings_file", None) or os.environ.get(_FILE)
        file = () if not named else (_file_source(settings_cls, Path(str(named))),)
        return (init_settings, env_settings, *file)

    @classmethod
    def from_file(cls, path: str | Path) -> Settings:
        """Settings of a file (TOML, JSON or YAML); the environment still goes before it.

        Args:
            path: The file.

        Raises:
            LoopGuardSettingsError: It cannot be read, or a value cannot be used.
        """
        return cls(settings_file=path)


def _file_source(settings_cls: type[BaseSettings], path: Path) -> PydanticBaseSettingsSource:
    source = _SOURCES.get(path.suffix.lower())
    if source is None:
        msg = f"{_FILE}={str(path)!r}: expected a file ending in {', '.join(_SOURCES)}"
        raise LoopGuardSettingsError(msg)
    if not path.is_file():
        msg = f"{_FILE}={str(path)!r}: there is no such file"
        raise LoopGuardSettingsError(msg)
    try:
        return source(settings_cls, path)
    except (ValueError, OSError) as error:
        msg = f"{_FILE}={str(path)!r}: cannot be read: {error}"
        raise LoopGuardSettingsError(msg) from None
    except ImportError:
        msg = f"{_FILE}={str(path)!r}: YAML needs: pip install 'otel-loopguard[yaml]'"
        raise LoopGuardSettingsError(msg) from None


def _explain(error: ValidationError) -> str:
    """One line per wrong setting: name, variable, value, expectation."""
    return "; ".join(
        f"{name} (LOOPGUARD_{name.upper()}) = {_shown(found.get('input'))}: {found['msg']}"
        if found["type"] != "extra_forbidden"
        else f"{name} = {_shown(found.get('input'))}: there is no such setting"
        for found in error.errors(include_url=False)
        for name in (".".join(str(part) for part in found["loc"]),)
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
