"""A settings file as names and values: TOML, JSON or YAML, read within bounds.

A short text can stand for a value that fills the memory (YAML's aliases), or keep a parser busy for
hours. No file that a person writes comes near these bounds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

_toml_module: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

MOST_BYTES: Final = 1024 * 1024
_TOO_DEEP: Final = "it is nested too deep"
_TOO_LONG: Final = "it has a number that is too long"
_DEPTH: Final = 32
_VALUES: Final = 100_000
_TOO_MANY: Final = f"it has more than {_VALUES:,} values"
_DIGITS: Final = 300
_DOTS: Final = 500
"""Dots in a line of TOML; the time for a dotted key grows with the square of its length."""


def read_file(path: Path) -> dict[str, object]:
    """Names and values of a settings file; an empty file has none."""
    with path.open("rb") as stream:
        raw = stream.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        msg = f"it has more than {MOST_BYTES:,} bytes"
        raise ValueError(msg)
    try:
        found = FORMS[path.suffix.lower()](raw.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        msg = f"expected names and values, got a {type(found).__name__}"
        raise ValueError(msg)  # noqa: TRY004  # of the file, not of an argument
    named = cast("dict[object, object]", found)
    _check(named, _inside)
    return {str(name): value for name, value in named.items()}


def _toml(text: str) -> object:
    if any(line.count(".") > _DOTS for line in text.splitlines()):
        raise ValueError(_TOO_DEEP)
    return _toml_module.loads(text)


def _yaml(text: str) -> object:
    import yaml as module  # noqa: PLC0415  # an extra

    yaml: Any = module
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(text, yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEPTH:
                raise ValueError(_TOO_DEEP)
            if count > _VALUES:
                raise ValueError(_TOO_MANY)
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        # Before it is made: a merge key writes out what its aliases stand for.
        _check(node, _below)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        # Where it is no YAML, and not what stands there: it may be a password.
        mark: Any = error.problem_mark or error.context_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        msg = f"it is no YAML{where}"
        raise ValueError(msg) from None
    except yaml.YAMLError:
        msg = "it is no YAML"
        raise ValueError(msg) from None


FORMS: Final[Mapping[str, Callable[[str], object]]] = {
    ".toml": _toml,
    ".json": lambda text: json.loads(text) if text.strip() else None,
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
    if isinstance(value, dict):
        yield from cast("dict[object, object]", value).values()
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
    for part in node.value:
        yield from cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,)
