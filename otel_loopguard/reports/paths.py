"""Which file a call writes, told from its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

_NAMES: Final = (
    "path", "file_path", "filepath", "file", "filename", "file_name", "target_file",
    "notebook_path", "destination", "output_path",
)  # fmt: skip
_SHELL: Final = ("command", "cmd", "script")
_HEAD: Final = 4_000
_TAIL: Final = 1_000
_LONGEST: Final = 300
_IN_JSON: Final = re.compile(
    r'"(?:' + "|".join(_NAMES) + r')"\s{0,4}:\s{0,4}"([^"\\\n]{1,300})"', re.IGNORECASE
)
_IN_COMMAND: Final = re.compile(r'"(?:command|cmd|script)"\s{0,4}:\s{0,4}"')
_REDIRECT: Final = re.compile(r"(?:^|\s)>{1,2}[ \t]{0,4}['\"]?([\w./~+-]{1,300})")


def written_path(arguments: object) -> str | None:
    """The file that a changing call writes; None where that cannot be told.

    Looks at arguments named `path`, `file_path`, `filename` and the like, and at the redirects of a
    shell command; at most 5,000 characters of a text.

    Args:
        arguments: Arguments of a call: a map, JSON text or a command.
    """
    if isinstance(arguments, Mapping):
        return _of_map(cast("Mapping[object, object]", arguments))
    if isinstance(arguments, str):
        return _of_text(arguments)
    return None


def _of_map(named: Mapping[object, object]) -> str | None:
    for name in _NAMES:
        found = named.get(name)
        if isinstance(found, str) and 0 < len(found) <= _LONGEST and "\n" not in found:
            return found
    for name in _SHELL:
        command = named.get(name)
        if isinstance(command, str):
            return _redirected(command)
    return None


def _of_text(text: str) -> str | None:
    if text.lstrip()[:1] != "{":
        return _redirected(text)
    found = _IN_JSON.search(text, 0, _HEAD)
    if found is None and len(text) > _HEAD:
        found = _IN_JSON.search(text[-_TAIL:])
    if found is not None:
        return found[1]
    command = _IN_COMMAND.search(text, 0, _HEAD)
    return None if command is None else _redirected(text[command.end() : command.end() + _HEAD])


def _redirected(command: str) -> str | None:
    for found in _REDIRECT.finditer(command, 0, _HEAD):
        path = found[1]
        # `x > 5` in a program on the command line is no file.
        if not path.startswith("/dev/") and any(sign.isalpha() for sign in path):
            return path
    return None
