"""Names of settings: how each source spells them, and which one a wrong or retired name means.

A name is dotted here: `mode`, or `tuning.text.tail_period`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from otel_loopguard._util.logger import warn_blind
from otel_loopguard._util.tables import read_texts
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings._group import NO_SECRET, Group, leaves

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
_OF_PYTHON: Final = "valid (?:tuple|frozenset)$"
"""What pydantic calls what a file has as a list."""
_LISTED: Final = 5
"""Unknown variables that one warning names; a deployment of another service may have hundreds."""


@cache
def retired() -> Mapping[str, str]:
    """What to use in place of a setting of an earlier release; empty: there is nothing to set."""
    return read_texts(__name__, "retired.txt")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.replace(".", "__").upper()


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two sources, of which the second takes precedence, value by value."""
    found = dict(below)
    for name, value in above.items():
        inner = found.get(name)
        both = isinstance(value, dict) and isinstance(inner, dict)
        found[name] = merged(cast("Any", inner), cast("Any", value)) if both else value
    return found


def from_environment(group: type[Group]) -> dict[str, Any]:
    """The settings that variables set; those that are empty set none.

    Raises:
        LoopGuardSettingsError: One needs JSON, and has none; or is of an earlier release.
    """
    ours = {name: value for name, value in _variables().items() if value}
    if not ours:
        return {}
    gone = [name for name in retired() if variable_of(name) in ours]
    if gone:
        raise LoopGuardSettingsError("; ".join(map(_retired, gone)))
    found: dict[str, Any] = {}
    for name, field in leaves(group):
        variable = variable_of(name)
        if variable in ours:
            *groups, last = name.split(".")
            place = found
            for each in groups:
                place = place.setdefault(each, {})
            is_json = isinstance(field.default, Mapping)
            place[last] = _json(name, variable, ours[variable]) if is_json else ours[variable]
    return found


def _variables() -> dict[str, str]:
    """The environment's variables that begin like ours."""
    found = ((name.upper(), value) for name, value in os.environ.items())
    return {name: value for name, value in found if name.startswith(PREFIX)}


def _json(name: str, variable: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        msg = f"{name} ({variable}) = {_shown(text)}: expected JSON"
    except RecursionError:
        msg = f"{name} ({variable}) is nested too deep"
    raise LoopGuardSettingsError(msg)


def unknown(group: type[Group]) -> list[str]:
    """Variables that look like settings and are none, each with the one that may be meant."""
    found = _variables().keys()
    if not found - _OTHERS:
        return []
    named = [name for name, _ in leaves(group)]
    # One that is gone is an error of its own.
    known = _OTHERS.union(map(variable_of, (*named, *retired())))
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
        warn_blind("unknown_variable", ", ".join(found[:_LISTED]), more)


def explained(error: ValidationError, group: type[Group], files: Mapping[str, str]) -> str:
    """One phrase per wrong setting: file, name, variable, value (unless secret), expectation."""
    secrets = {
        name: field.default is NO_SECRET or field.bounds.get("repr") is False
        for name, field in leaves(group)
    }
    phrases: list[str] = []
    for found in error.errors(include_url=False):
        path = [*map(str, found["loc"])]
        field = group.fields.get(path[0]) if path else None
        if field is not None and isinstance(field.default, bool):
            del path[1:]  # a member of a union
        name, file = ".".join(path), files.get(path[0], "") if path else ""
        if found["type"] == "extra_forbidden":
            # Its name is what is wrong; its value may be a secret.
            no_such = f"{name}: there is no such setting{_meant_at(path, group, secrets)}"
            phrases.append(file + (_retired(name) if name in retired() else no_such))
            continue
        value = "" if secrets.get(_setting(name), not name) else f" = {_shown(found['input'])}"
        why = re.sub(_OF_PYTHON, "list", found["msg"].removeprefix("Value error, "))
        phrase = f"{file}{name} ({variable_of(_setting(name))}){value}: "
        if phrases and phrases[-1].startswith(phrase):
            phrases[-1] += f", or {why[0].lower()}{why[1:]}"
        else:
            phrases.append(phrase + why)
    return "; ".join(phrases)


def _retired(name: str) -> str:
    """An error about a setting of an earlier release."""
    instead = f": use {new} instead" if (new := retired()[name]) else ""
    return f"{name} ({variable_of(name)}) is no longer a setting{instead}"


def _setting(name: str) -> str:
    """The setting in the name of a part of its value."""
    return ".".join(name.split(".")[: 3 if name.startswith("tuning.") else 1])


def _meant_at(path: Sequence[str], group: type[Group], names: Iterable[str]) -> str:
    """As `_meant`, also for a name within an entry of a mapping, such as `tools.search.exmpt`."""
    field = group.pydantic_model().model_fields.get(path[0])
    entries = get_args(field.annotation) if field is not None else ()
    if entries and isinstance(entries[-1], type) and issubclass(entries[-1], Group):
        place = ".".join(path[:-1])
        return _meant(path[-1], entries[-1].fields, lambda name: f"{place}.{name}")
    return _meant(".".join(path), names)


def _meant(name: str, names: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """The setting that was meant, as a question, if one has nearly that name.

    Its group may be missing, or be a part of the name: `tail_period`, `text_tail_period`.
    """
    from difflib import get_close_matches  # noqa: PLC0415  # for mistakes alone

    place, _, last = name.rpartition(".")
    if not name.startswith("tuning."):
        place, last = "", name.partition(".")[0]
    known: dict[str, str] = {}
    # Of one name in several groups, that in the group that was named.
    for full in sorted(names, key=lambda full: not full.startswith(f"{place}.")):
        group, _, own = full.rpartition(".")
        inner = group.removeprefix("tuning.")
        for spelled in (full, f"{inner}_{own}", own):
            known.setdefault(spelled, full)
        known.setdefault(inner, group)
    nearest = get_close_matches(last, known, 1, 0.7)
    if not nearest or known[nearest[0]] in (name, last):
        return ""
    return f" (is {spell(known[nearest[0]])} meant?)"


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
            found, why = None, f"cannot be imported, expected module:name ({error})"
    if not callable(found):
        msg = f"{setting} (LOOPGUARD_{setting.upper()}) = {place!r}: {why}"
        raise LoopGuardSettingsError(msg) from None
    return found
