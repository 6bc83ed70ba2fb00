"""The names of the GenAI conventions that are read and written, by the version that has them."""

import ast
import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from otel_loopguard import semconv, spans, telemetry
from otel_loopguard.core import Kind
from otel_loopguard.spans.dialects.genai import KINDS
from tests.docs.markdown import table
from tests.tables import toml

Row = Mapping[str, Any]
TABLE: Mapping[str, Any] = toml(Path(__file__).with_suffix(".toml"))
VERSIONS = {
    "old": "to v1.36", "current": "v1.37 to v1.41", "newest": "v0.1.0", "proposed": "proposed",
}  # fmt: skip
PULL = "https://github.com/open-telemetry/semantic-conventions-genai/pull"
_NAME = re.compile(r"gen_ai\.[a-z0-9_.]*[a-z0-9_]")


def in_code() -> set[str]:
    """All names of the namespace in the code that reads spans, and in that which tells of it."""
    rooms = (Path(str(room.__file__)).parent for room in (spans, telemetry))
    files = [Path(semconv.__file__), *(file for room in rooms for file in room.rglob("*.py"))]
    return {
        word
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in node.value.split()
        if _NAME.fullmatch(word)
    }


def named(column: str | None = None) -> set[str]:
    rows: Iterable[Row] = (*TABLE["read"].values(), *TABLE["written"].values())
    return {name for row in rows for key in row if column in (None, key) for name in row[key]}


def names() -> str:
    return table(
        ("", *VERSIONS.values()),
        (
            (f"{done}: {what}", *(_cell(row.get(column, ())) for column in VERSIONS))
            for done in ("read", "written")
            for what, row in TABLE[done].items()
        ),
    )


def operations() -> str:
    """Values of `gen_ai.operation.name`, and what step each is."""
    found: dict[Kind, list[str]] = {}
    since = {name: column for column, given in TABLE["operations"].items() for name in given}
    for name, kind in KINDS.items():
        pull = TABLE["operations"]["proposed"].get(name)
        note = f" ({_pull(pull)})" if pull else " (v0.1.0)" if since[name] == "newest" else ""
        found.setdefault(kind, []).append(f"`{name}`{note}")
    called = {Kind.OTHER: "no step of its own"}
    rows = ((called.get(kind, kind), ", ".join(names)) for kind, names in found.items())
    return table("step|`gen_ai.operation.name`", rows)


def _cell(given: Iterable[str] | Mapping[str, int]) -> str:
    if not isinstance(given, Mapping):
        return ", ".join(f"`{name}`" for name in given)
    pulls = itertools.groupby(given, key=lambda name: given[name])
    return "; ".join(f"{_pull(pull)}: {_cell(list(names))}" for pull, names in pulls)


def _pull(number: int) -> str:
    return f"[#{number}]({PULL}/{number})"
