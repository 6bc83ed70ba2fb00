"""Reads a settings file (TOML, JSON or YAML) within bounds.

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
        msg = f"expected a file ending in {', '.join(_READERS)}"
        raise ValueError(msg)
    # A pipe or a device may have no end.
    if not path.is_file():
        msg = "it is not a file" if path.exists() else "there is no such file"
        raise ValueError(msg)
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
        msg = f"it has more than {_BYTES:,} bytes"
        raise ValueError(msg)
    found = read(raw.decode("utf-8-sig"))
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
        msg = f"it is not YAML{where}"
        raise ValueError(msg) from None
    except yaml.YAMLError:
        msg = "it is not YAML"
        raise ValueError(msg) from None


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
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
