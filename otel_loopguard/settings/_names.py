"""Names of settings: how they are spelled in each source, and what they were called before.

A name is dotted here: `mode`, or `tuning.text.tail_period`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import BaseModel

from otel_loopguard._util.logger import warn_blind
from otel_loopguard.settings.tuning import Tuning

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic.fields import FieldInfo
    from pydantic_settings import SettingsError

PREFIX: Final = "LOOPGUARD_"
FILE: Final = "LOOPGUARD_SETTINGS_FILE"
_OTHERS = frozenset((FILE, "LOOPGUARD_EXPORTER"))
"""Variables that are no settings."""
_NOT_OURS = re.compile(
    r"LOOPGUARD_(?:FRAMEWORKS_.*|WRITE_DOCS|(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_\d+_.*)?))"
)
"""Variables of our own tests, and those that Kubernetes sets for a service of this name."""
_SECRET = re.compile(r"(?i)key|secret|token|pass|url|auth|hook|redis|dsn")
"""Words in the names of what is often a secret."""
_LISTED = 5

_OLD_PREFIXES: Final = {
    "stalls": "stall_",
    "budget": "budget_",
    "milestones": "milestone_",
    "text": "text_",
    "graph": "graph_",
    "exchange": "exchange_",
    "judge": "judge_",
    "reports": "report_",
    "execution": "execution_",
    "resources": "execution_",
    "journal": "journal_",
    "latency": "profile_",
    "plans": "plan_",
    "stores": "store_",
    "telemetry": "telemetry_",
    "escalation": "escalation_",
    "admin": "desk_",
}
_OLD_NAMES: Final = {
    "milestones.elapsed_s": "milestone_s",
    "reports.context_entries": "context_entries",
    "resilience.check_failures": "recovery_check_failures",
    "resilience.check_ttl_s": "recovery_check_ttl_s",
    "escalation.webhook_retry_s": "webhook_retry_s",
}


def fields_of(model: type[BaseModel], before: str = "") -> dict[str, FieldInfo]:
    """The fields of a model and of the models in it, by dotted name."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found.update(fields_of(inner, f"{before}{name}."))
        else:
            found[before + name] = field
    return found


def _old(name: str) -> str:
    group, _, last = name.partition(".")
    return _OLD_NAMES.get(name, _OLD_PREFIXES.get(group, "") + last)


RENAMED: Final[Mapping[str, str]] = {_old(name): f"tuning.{name}" for name in fields_of(Tuning)}
"""The dotted name of each tuning value by the flat name it had in 0.3; accepted for one release."""


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


_BY_VARIABLE: Final = {
    variable_of(name).lower(): name
    for dotted in RENAMED.values()
    for name in (dotted, dotted.rpartition(".")[0], "tuning")
}
"""The dotted name of each tuning value, group of them, and of all, by its variable in lowercase."""


def renamed(given: Mapping[str, Any], used: dict[str, str]) -> dict[str, Any]:
    """Keyword arguments or a file's values, with old names replaced."""
    old = [name for name in given if name in RENAMED]
    tuning = given.get("tuning", {})
    if isinstance(tuning, Tuning):
        tuning = tuning.model_dump(exclude_unset=True)
    if not old or not isinstance(tuning, dict):
        return dict(given)
    groups = dict(cast("dict[str, Any]", tuning))
    for name in old:
        _, group, last = RENAMED[name].split(".")
        values = groups.get(group, {})
        if isinstance(values, BaseModel):
            values = values.model_dump(exclude_unset=True)
        if isinstance(values, dict):
            groups[group] = {last: given[name], **values}
        used[name] = RENAMED[name]
    return {**{name: given[name] for name in given if name not in RENAMED}, "tuning": groups}


def variables(environment: Mapping[str, str | None], used: dict[str, str]) -> dict[str, str | None]:
    """Variables with old names replaced, and without those of unknown tuning values."""
    found = {
        name: value
        for name, value in environment.items()
        if "__" not in name or name in _BY_VARIABLE
    }
    for old, dotted in RENAMED.items():
        before = f"{PREFIX}{old}".lower()
        if before in found:
            found.setdefault(variable_of(dotted).lower(), found[before])
            used[f"{PREFIX}{old.upper()}"] = variable_of(dotted)
    return found


def warn_renamed(used: Mapping[str, str]) -> None:
    """Warns, once per process, of settings that are called as in an earlier release."""
    if used:
        warn_blind(
            "renamed_settings",
            "settings have new names, and the next release will not accept the old ones: %s",
            ", ".join(f"{old} is {new}" for old, new in used.items()),
        )


def warn_unknown(names: Iterable[str]) -> None:
    """Warns, once per process, of variables that look like settings and are none."""
    found = {name.upper() for name in os.environ if name.upper().startswith(PREFIX)}
    known = _OTHERS.union(map(variable_of, (*names, *RENAMED, *_BY_VARIABLE.values())))
    unknown = sorted(name for name in found - known if not _NOT_OURS.fullmatch(name))
    if unknown:
        told = ", ".join(
            name + _meant(name.removeprefix(PREFIX).lower().replace("__", "."), names, variable_of)
            for name in unknown[:_LISTED]
        )
        more = f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else ""
        warn_blind(
            "unknown_variable",
            "the environment sets what is no setting, and it has no effect: %s%s",
            told, more,
        )  # fmt: skip


def explain(error: ValidationError, names: Mapping[str, bool]) -> str:
    """One line per wrong setting: name, variable, value (if it is no secret), expectation."""
    return "; ".join(
        f"{name} ({variable_of(_setting(name))}){value}: {found['msg']}"
        if found["type"] != "extra_forbidden"
        else f"{name}{value}: there is no such setting{_meant(name, names)}"
        for found in error.errors(include_url=False)
        for name in (".".join(str(part) for part in found["loc"]),)
        for value in ("" if _is_secret(name, names) else f" = {_shown(found.get('input'))}",)
    )


def _setting(name: str) -> str:
    """The setting in the name of a part of its value."""
    return ".".join(name.split(".")[: 3 if name.startswith("tuning.") else 1])


def unread(error: SettingsError, names: Iterable[str]) -> str:
    """A variable whose text is not the JSON that its setting needs."""
    quoted = re.findall(r'field "(\w+)"', str(error))
    spelled = {variable_of(name): name for name in (*names, *_BY_VARIABLE.values())}
    spelled |= {variable_of(old): name for old, name in RENAMED.items()}
    for variable, name in spelled.items():
        value = os.environ.get(variable)
        if value is not None and name.partition(".")[0] in quoted and not _is_json(value):
            return f"{name} ({variable}) = {_shown(value)}: expected JSON"
    return str(error)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _is_secret(name: str, names: Mapping[str, bool]) -> bool:
    """Whether a setting may hold a secret; what is no setting may have been meant as one."""
    known = names.get(_setting(name))
    if known is not None:
        return known
    return _SECRET.search(name) is not None or any(
        names[meant] for meant in get_close_matches(name, names, 3, 0.6)
    )


def _meant(name: str, names: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """The setting that was meant, as a question, if one has nearly that name."""
    name = name if name.startswith("tuning.") else name.partition(".")[0]
    if name in names:
        return ""
    choices = {**{each: each for each in names}, **RENAMED}
    nearest = get_close_matches(name, choices, 1, 0.7)
    return f" (is {spell(choices[nearest[0]])} meant?)" if nearest else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
