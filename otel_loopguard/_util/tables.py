"""Tables of words and texts that ship beside the code, as plain text.

A row is a name, a colon, and what belongs to it: on the same line, and on the indented lines below.
A line that begins with `#` is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pkgutil import get_data
from typing import NamedTuple, NoReturn


class Row(NamedTuple):
    """One row: its place as `file:line`, its name, and its lines without indentation."""

    place: str
    name: str
    lines: list[str]

    def labelled(self, *labels: str) -> dict[str, str]:
        """Returns its text by label; `""` for the lines before any."""
        found, label = {"": ""}, ""
        for line in self.lines:
            head, colon, rest = line.partition(":")
            if colon and head in labels:
                label, line = head, rest  # noqa: PLW2901
                found[label] = ""
            found[label] = f"{found[label]} {line}".strip()
        return found

    def fail(self, why: str) -> NoReturn:
        """Raises for this row."""
        raise ValueError(f"{self.place}: {self.name}: {why}")


def read_table(module: str, file: str) -> list[Row]:
    """The rows of a table beside a module, also of one in an archive.

    Raises:
        ValueError: A line belongs to no row, or two rows have one name; with file and line. Or
            the package was loaded by what has no files.
    """
    return list(rows_in(_text(module, file), file))


def read_texts(module: str, file: str) -> dict[str, str]:
    """Reads a table in which each row is a text."""
    return {row.name: " ".join(row.lines) for row in read_table(module, file)}


def read_parts(module: str, file: str) -> dict[str, str]:
    """Reads a file of programs, each below a line `--- NAME`."""
    _, *parts = re.split(r"^--- (\w+)\n", _text(module, file), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _text(module: str, file: str) -> str:
    text = get_data(module.rpartition(".")[0], file)
    if text is None:
        raise ValueError(f"{file}: cannot be read beside {module}")
    return text.decode()


def rows_in(text: str, file: str) -> Iterator[Row]:
    """The rows in the text of a table."""
    row, names = Row(file, "", []), set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        inside = line.strip()
        if not inside or line.startswith("#"):
            continue
        if not line[0].isspace():
            if row.name:
                yield row
            name, colon, inside = line.partition(":")
            row = Row(f"{file}:{number}", name if colon else "", [])
            if row.name in names:
                row.fail("there is another row of this name")
            names.add(name)
        if not row.name:
            msg = f"{file}:{number}: expected 'name: text', or an indented line below, got {line!r}"
            raise ValueError(msg)
        if inside := inside.strip():
            row.lines.append(inside)
    if row.name:
        yield row
