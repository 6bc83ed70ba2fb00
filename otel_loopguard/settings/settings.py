"""Settings of one guard, and where they come from.

The variable of a setting is `LOOPGUARD_` and its name in capitals. Earlier wins: keyword
arguments, environment, the file named by `LOOPGUARD_SETTINGS_FILE` (TOML, JSON, or YAML with the
extra `yaml`), defaults.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from otel_loopguard._util.logger import warn_blind
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings.budget import BudgetSettings
from otel_loopguard.settings.calls import CallSettings
from otel_loopguard.settings.desk import DeskSettings
from otel_loopguard.settings.escalation import EscalationSettings
from otel_loopguard.settings.exchange import ExchangeSettings
from otel_loopguard.settings.execution import ExecutionSettings
from otel_loopguard.settings.file import FORMS, read_file
from otel_loopguard.settings.general import GeneralSettings
from otel_loopguard.settings.graph import GraphSettings
from otel_loopguard.settings.journal import JournalSettings
from otel_loopguard.settings.judge import JudgeSettings
from otel_loopguard.settings.limits import LimitSettings
from otel_loopguard.settings.planning import PlanningSettings
from otel_loopguard.settings.policy import PolicySettings
from otel_loopguard.settings.profiling import ProfileSettings
from otel_loopguard.settings.propagation import PropagationSettings
from otel_loopguard.settings.recovery import RecoverySettings
from otel_loopguard.settings.reports import ReportSettings
from otel_loopguard.settings.stalls import StallSettings
from otel_loopguard.settings.stores import StoreSettings
from otel_loopguard.settings.telemetry import TelemetrySettings
from otel_loopguard.settings.text import TextSettings
from otel_loopguard.settings.tools import DeclaredTools

_FILE = "LOOPGUARD_SETTINGS_FILE"
_PREFIX = "LOOPGUARD_"
_OTHERS = frozenset((_FILE, "LOOPGUARD_EXPORTER"))
"""Variables that are no settings."""
_NOT_OURS = re.compile(
    r"LOOPGUARD_(?:FRAMEWORKS_.*|WRITE_DOCS|(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_\d+_.*)?))"
)
"""Variables of our own tests, and those that Kubernetes sets for a service of this name."""
_SECRET = re.compile(r"(?i)key|secret|token|pass|url|auth|hook|redis|dsn")
"""Words in the names of what is often a secret."""
_LISTED = 5


class Settings(
    GeneralSettings,
    CallSettings,
    StallSettings,
    DeclaredTools,
    PolicySettings,
    BudgetSettings,
    LimitSettings,
    TextSettings,
    GraphSettings,
    ExchangeSettings,
    JudgeSettings,
    ReportSettings,
    ExecutionSettings,
    JournalSettings,
    ProfileSettings,
    PlanningSettings,
    PropagationSettings,
    RecoverySettings,
    StoreSettings,
    TelemetrySettings,
    EscalationSettings,
    DeskSettings,
    BaseSettings,
):
    """Settings of one guard.

    Raises:
        LoopGuardSettingsError: A value cannot be used, or a name is unknown; the message has name,
            value and expectation.
    """

    model_config = SettingsConfigDict(
        env_prefix="LOOPGUARD_", extra="forbid", frozen=True, env_ignore_empty=True,
        hide_input_in_errors=True,
    )  # fmt: skip

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise LoopGuardSettingsError(_explain(error)) from None
        except SettingsError as error:
            raise LoopGuardSettingsError(_unread(error)) from None
        except RecursionError:
            msg = "a variable LOOPGUARD_… holds JSON that is nested too deep"
            raise LoopGuardSettingsError(msg) from None
        _tell_unknown()

    def of(self, tool: str) -> Settings:
        """The settings as they are for one tool (C5)."""
        return self._own.get(tool, self)

    @cached_property
    def _own(self) -> dict[str, Settings]:
        return {
            name: self.model_copy(update=tool.overrides)
            for name, tool in self.tools.items()
            if tool.overrides
        }

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
    if path.suffix.lower() not in FORMS:
        msg = f"{_FILE}={str(path)!r}: expected a file ending in {', '.join(FORMS)}"
        raise LoopGuardSettingsError(msg)
    if not path.is_file():
        why = "it is no file" if path.exists() else "there is no such file"
        msg = f"{_FILE}={str(path)!r}: {why}"
        raise LoopGuardSettingsError(msg)
    try:
        return InitSettingsSource(settings_cls, read_file(path))
    except (ValueError, OSError) as error:
        msg = f"{_FILE}={str(path)!r}: cannot be read: {error}"
        raise LoopGuardSettingsError(msg) from None
    except ImportError:
        msg = f"{_FILE}={str(path)!r}: YAML needs: pip install 'otel-loopguard[yaml]'"
        raise LoopGuardSettingsError(msg) from None


def _explain(error: ValidationError) -> str:
    """One line per wrong setting: name, variable, value (if it is no secret), expectation."""
    return "; ".join(
        f"{name} (LOOPGUARD_{name.partition('.')[0].upper()}){value}: {found['msg']}"
        if found["type"] != "extra_forbidden"
        else f"{name}{value}: there is no such setting{_meant(name)}"
        for found in error.errors(include_url=False)
        for name in (".".join(str(part) for part in found["loc"]),)
        for value in ("" if _is_secret(name) else f" = {_shown(found.get('input'))}",)
    )


def _is_secret(name: str) -> bool:
    """Whether a setting may hold a secret; what is no setting may have been meant as one."""
    field = Settings.model_fields.get(name.partition(".")[0])
    if field is not None:
        return field.annotation is SecretStr
    return _SECRET.search(name) is not None or any(
        _is_secret(meant) for meant in get_close_matches(name, Settings.model_fields, 3, 0.6)
    )


def _tell_unknown() -> None:
    """Warns, once per process, of variables that look like settings and are none."""
    names = (name.upper() for name in os.environ if name.upper().startswith(_PREFIX))
    known = _OTHERS.union(f"{_PREFIX}{name.upper()}" for name in Settings.model_fields)
    unknown = sorted(name for name in names if name not in known and not _NOT_OURS.fullmatch(name))
    if unknown:
        told = ", ".join(
            name + _meant(name.removeprefix(_PREFIX).lower(), _PREFIX) for name in unknown[:_LISTED]
        )
        more = f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else ""
        warn_blind(
            "unknown_variable",
            "the environment sets what is no setting, and it has no effect: %s%s",
            told, more,
        )  # fmt: skip


def _meant(name: str, prefix: str = "") -> str:
    """The setting that was meant, as a question, if one has nearly that name."""
    nearest = get_close_matches(name.partition(".")[0], Settings.model_fields, 1, 0.7)
    if not nearest:
        return ""
    meant = f"{prefix}{nearest[0].upper()}" if prefix else nearest[0]
    return f" (is {meant} meant?)"


def _unread(error: SettingsError) -> str:
    """A variable whose text is not the JSON that its setting needs."""
    name = next((name for name in Settings.model_fields if f'"{name}"' in str(error)), None)
    if name is None:
        return str(error)
    variable = f"LOOPGUARD_{name.upper()}"
    return f"{name} ({variable}) = {_shown(os.environ.get(variable))}: expected JSON"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
