"""The sources of settings: the environment, and a file (TOML, JSON or YAML).

A name is dotted here: `mode`, or `tuning.text.tail_period`.

A short text can stand for a value that fills the memory (YAML's aliases), or keep a parser busy for
hours. No file that a person writes comes near these bounds.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from otel_loopguard._util.errors import warn_blind
from otel_loopguard._util.fields import is_map
from otel_loopguard._util.tables import read_texts
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings._group import NO_SECRET, Group, leaves

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import ValidationError

_BYTES: Final = 1024 * 1024
"""So much TOML is read in half a second, so much YAML in three; a start waits for it."""
_DEPTH: Final = 32
"""Settings are four levels deep; Python's parsers end at about a thousand."""
_VALUES: Final = 100_000
"""Values, those of an alias each time that it stands: a kilobyte of them can fill the memory."""
_DIGITS: Final = 300
"""Digits of a number, as many as a float has; the time for an integer grows with their square."""
_DOTS: Final = 500
"""Dots in a line of TOML; the time for a dotted key grows with the square of its length."""
_TOO_DEEP: Final = "it is nested too deep"
_TOO_LONG: Final = "it has a number that is too long"
_TOO_MANY: Final = f"it has more than {_VALUES:,} values"


def read_file(path: Path) -> dict[str, object]:
    """Returns the names and values of a file; an empty file has none.

    Raises:
        ValueError: It cannot be read; the message says why, and quotes nothing of it.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise ValueError(f"expected a file ending in {', '.join(_READERS)}")
    # A pipe or a device may have no end.
    if not path.is_file():
        raise ValueError("it is not a file" if path.exists() else "there is no such file")
    try:
        return _parsed(path, read)
    except ImportError:
        msg = "YAML needs: pip install 'otel-loopguard[yaml]'"
    except RecursionError:
        msg = f"cannot be read: {_TOO_DEEP}"
    except (ValueError, OSError) as error:
        msg = f"cannot be read: {error}"
    raise ValueError(msg)


def _parsed(path: Path, read: Callable[[str], object]) -> dict[str, object]:
    with path.open("rb") as stream:
        raw = stream.read(_BYTES + 1)
    if len(raw) > _BYTES:
        raise ValueError(f"it has more than {_BYTES:,} bytes")
    found = read(raw.decode("utf-8-sig"))
    if found is None:
        return {}
    if not is_map(found):
        raise ValueError(f"expected names and values, got a {type(found).__name__}")
    _check(found, _inside)
    return {str(name): value for name, value in found.items()}


def _toml(text: str) -> object:
    if any(line.count(".") > _DOTS for line in text.splitlines()):
        raise ValueError(_TOO_DEEP)
    module: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    return module.loads(text)


def _yaml(text: str) -> object:
    import yaml as module  # noqa: PLC0415  # an extra

    yaml: Any = module
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        # Before it is made: a merge key writes out what its aliases stand for.
        _check(node, _below)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        # Where it is not YAML, and not what stands there: it may be a password.
        mark: Any = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"it is not YAML{where}") from None
    except yaml.YAMLError:
        raise ValueError("it is not YAML") from None


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    ".toml": _toml,
    ".json": lambda text: json.loads(text, object_pairs_hook=_once) if text.strip() else None,
    ".yaml": _yaml,
    ".yml": _yaml,
}
"""Readers of settings files, by their suffix."""


def _check(root: object, parts: Callable[[Any], Iterator[object]]) -> None:
    """Refuses what is too deep or too much, each alias counted as what it stands for."""
    waiting = [(root, 1)]
    count = 0
    while waiting:
        value, depth = waiting.pop()
        if depth > _DEPTH:
            raise ValueError(_TOO_DEEP)
        for part in parts(value):
            count += 1
            if count > _VALUES:
                raise ValueError(_TOO_MANY)
            waiting.append((part, depth + 1))


def _inside(value: object) -> Iterator[object]:
    """The values in a value."""
    if is_map(value):
        yield from value.values()
    elif isinstance(value, (list, tuple, set)):
        yield from cast("list[object]", value)
    elif isinstance(value, int) and value.bit_length() > _DIGITS * 4:
        raise ValueError(_TOO_LONG)


def _below(node: Any) -> Iterator[object]:
    """The nodes below a node of YAML."""
    if isinstance(node.value, str):
        if len(node.value) > _DIGITS and not node.tag.endswith((":str", ":binary")):
            raise ValueError(_TOO_LONG)
        return
    if node.id == "mapping":
        keys = (key for key, _ in node.value if not key.tag.endswith(":merge"))
        _once([(str(key.value), None) for key in keys])
    for part in node.value:
        yield from cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,)


def _once(named: Sequence[tuple[str, object]]) -> dict[str, object]:
    """Values by name; that of a name which is there twice would be lost without a word."""
    found: dict[str, object] = {}
    for name, value in named:
        if name in found:
            msg = f"{name!r:.100} is there twice"
            raise ValueError(msg)
        found[name] = value
    return found


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
    """The successor of a setting of an earlier release; empty: there is nothing to set."""
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
    # If several groups have the name, the group that was named comes first.
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
            from pkgutil import resolve_name  # noqa: PLC0415  # only if one is named

            found = resolve_name(place)
        except (ImportError, AttributeError, ValueError) as error:
            found, why = None, f"cannot be imported, expected module:name ({error})"
    if not callable(found):
        msg = f"{setting} (LOOPGUARD_{setting.upper()}) = {place!r}: {why}"
        raise LoopGuardSettingsError(msg) from None
    return found
