"""Names of settings: how they are spelled in each source, and what they were called before.

A name is dotted here: `mode`, or `tuning.text.tail_period`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

from otel_loopguard._util.logger import warn_blind
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings._group import NO_SECRET, Group, leaves
from otel_loopguard.settings.tuning import Tuning

if TYPE_CHECKING:
    from pydantic import ValidationError

PREFIX: Final = "LOOPGUARD_"
FILE: Final = "LOOPGUARD_SETTINGS_FILE"
_OTHERS = frozenset(
    (FILE, *(PREFIX + name for name in ("EXPORTER", "SERVE_TOKEN", "URL", "TOKEN")))
)
"""Variables that are no settings: of the exporter, of `serve`, and of its clients."""
_NOT_OURS: Final = (
    r"LOOPGUARD_(?:FRAMEWORKS_.*|WRITE_DOCS"
    r"|(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_\d+_.*)?))"
)
"""Variables of our own tests, and those that Kubernetes sets for a service of this name."""
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
    "escalation.webhook_retry_s": "webhook_retry_s",
}


def _old(name: str) -> str:
    group, _, last = name.partition(".")
    return _OLD_NAMES.get(name, _OLD_PREFIXES.get(group, "") + last)


RENAMED: Final[Mapping[str, str]] = {_old(name): f"tuning.{name}" for name, _ in leaves(Tuning)}
"""The dotted name of each tuning value by the flat name it had in 0.3; accepted for one release."""

MERGED: Final[Mapping[str, str]] = {
    "stall_action": "budget_action",
    "graph_limit_action": "budget_action",
    "budget_cost_action": "budget_action",
    "budget_operation_tokens": "budget_tokens",
}
"""Settings that said the same as another one, and that one; accepted for one release."""

_OLD: Final = {**RENAMED, **MERGED}


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


def renamed(given: Mapping[str, Any], used: dict[str, str]) -> dict[str, Any]:
    """Keyword arguments or a file's values, with old names replaced."""
    for name in [name for name in given if name in MERGED]:
        used[name] = MERGED[name]
        given = {MERGED[name]: given[name], **{k: v for k, v in given.items() if k != name}}
    old = [name for name in given if name in RENAMED]
    tuning = given.get("tuning", {})
    if isinstance(tuning, Group):
        tuning = tuning.model_dump(exclude_unset=True)
    if not old or not isinstance(tuning, dict):
        return dict(given)
    groups = dict(cast("dict[str, Any]", tuning))
    for name in old:
        _, group, last = RENAMED[name].split(".")
        values = groups.get(group, {})
        if isinstance(values, Group):
            values = values.model_dump(exclude_unset=True)
        if isinstance(values, dict):
            groups[group] = {last: given[name], **values}
        used[name] = RENAMED[name]
    return {**{name: given[name] for name in given if name not in RENAMED}, "tuning": groups}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two sources, of which the second takes precedence, value by value."""
    found = dict(below)
    for name, value in above.items():
        inner = found.get(name)
        both = isinstance(value, dict) and isinstance(inner, dict)
        found[name] = merged(cast("Any", inner), cast("Any", value)) if both else value
    return found


def from_environment(group: type[Group], used: dict[str, str]) -> dict[str, Any]:
    """The settings that variables set; those that are empty set none.

    Raises:
        LoopGuardSettingsError: One needs JSON, and has none.
    """
    ours = _variables()
    if not ours:
        return {}
    found: dict[str, Any] = {}
    for name, is_json in _named(group):
        new = variable_of(name)
        olds = [old for old in map(variable_of, _olds().get(name, ())) if old in ours]
        used.update(dict.fromkeys(olds, new))
        variable = new if new in ours else next(iter(olds), None)
        if variable is not None:
            text = ours[variable]
            _put(found, name, _read(name, variable, text) if is_json else text)
    return found


@lru_cache(1)
def _olds() -> dict[str, list[str]]:
    """What each setting was called before."""
    found: dict[str, list[str]] = {}
    for old, name in _OLD.items():
        found.setdefault(name, []).append(old)
    return found


def _variables() -> dict[str, str]:
    """The environment's variables that begin like ours, and are not empty."""
    return {
        name.upper(): value
        for name, value in os.environ.items()
        if value and name[: len(PREFIX)].upper() == PREFIX
    }


def _named(group: type[Group]) -> list[tuple[str, bool]]:
    """Each setting, and each group of them before its parts; whether its variable is JSON."""
    found: dict[str, bool] = {}
    for name, field in leaves(group):
        *groups, _ = name.split(".")
        for depth in range(len(groups)):
            found[".".join(groups[: depth + 1])] = True
        found[name] = isinstance(field.default, (Mapping, tuple))
    return sorted(found.items(), key=lambda each: each[0].count("."))


def _put(values: dict[str, Any], name: str, value: object) -> None:
    *groups, last = name.split(".")
    for group in groups:
        inner: object = values.setdefault(group, {})
        if not isinstance(inner, dict):
            return  # pydantic says what is wrong with it
        values = cast("dict[str, Any]", inner)
    values[last] = value


def _read(name: str, variable: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        msg = f"{name} ({variable}) = {_shown(text)}: expected JSON"
    except RecursionError:
        msg = f"{name} ({variable}) is nested too deep"
    raise LoopGuardSettingsError(msg)


def warn_renamed(used: Mapping[str, str]) -> None:
    """Warns, once per process, of settings that are called as in an earlier release."""
    if used:
        warn_blind(
            "renamed_settings",
            "settings have new names, and the next release will not accept the old ones: %s",
            ", ".join(f"{old} is {new}" for old, new in used.items()),
        )


def unknown(group: type[Group]) -> list[str]:
    """Variables that look like settings and are none, each with the one that may be meant."""
    found = {name.upper() for name in os.environ if name[: len(PREFIX)].upper() == PREFIX}
    if not found - _OTHERS:
        return []
    names = [name for name, _ in _named(group)]
    known = _OTHERS.union(map(variable_of, (*names, *_OLD)))
    named = [name for name, _ in leaves(group)]
    return [
        name + _meant(name.removeprefix(PREFIX).lower().replace("__", "."), named, variable_of)
        for name in sorted(found - known)
        if not re.fullmatch(_NOT_OURS, name)
    ]


def warn_unknown(group: type[Group]) -> None:
    """Warns, once per process, of variables that look like settings and are none."""
    found = unknown(group)
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        warn_blind(
            "unknown_variable",
            "unknown setting in the environment, ignored: %s%s",
            ", ".join(found[:_LISTED]), more,
        )  # fmt: skip


def explained(error: ValidationError, group: type[Group]) -> str:
    """One phrase per wrong setting: name, variable, value (if it is no secret), expectation."""
    secrets = {name: field.default is NO_SECRET for name, field in leaves(group)}
    phrases: list[str] = []
    for found in error.errors(include_url=False):
        name = ".".join(map(str, found["loc"]))
        if found["type"] == "extra_forbidden":
            # Its name is what is wrong; its value may be a secret.
            phrases.append(f"{name}: there is no such setting{_meant(name, secrets)}")
            continue
        value = "" if secrets.get(_setting(name), not name) else f" = {_shown(found['input'])}"
        phrases.append(f"{name} ({variable_of(_setting(name))}){value}: {found['msg']}")
    return "; ".join(phrases)


def _setting(name: str) -> str:
    """The setting in the name of a part of its value."""
    return ".".join(name.split(".")[: 3 if name.startswith("tuning.") else 1])


def _meant(name: str, names: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """The setting that was meant, as a question, if one has nearly that name."""
    from difflib import get_close_matches  # noqa: PLC0415  # for mistakes alone

    name = name if name.startswith("tuning.") else name.partition(".")[0]
    if name in names:
        return ""
    choices = {**{each: each for each in names}, **_OLD}
    nearest = get_close_matches(name, choices, 1, 0.7)
    return f" (is {spell(choices[nearest[0]])} meant?)" if nearest else ""


def _shown(value: object) -> str:
    """A value in an error, of a bounded length."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def imported(setting: str, place: object, expected: str) -> Any:
    """The callable that a setting names, or that was given in its place.

    Raises:
        LoopGuardSettingsError: It cannot be imported, or not be called.
    """
    found, why = place, f"expected {expected}"
    if isinstance(place, str):
        try:
            from pkgutil import resolve_name  # noqa: PLC0415  # who names one

            found = resolve_name(place)
        except (ImportError, AttributeError, ValueError) as error:
            found, why = None, f"cannot be imported: {error}"
    if not callable(found):
        msg = f"{setting} (LOOPGUARD_{setting.upper()}) = {place!r}: {why}"
        raise LoopGuardSettingsError(msg) from None
    return found
