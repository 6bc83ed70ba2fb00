"""Compares our events and answers of Codex with the schemas that its program carries.

`npm pack @openai/codex@VERSION-linux-x64` has the program, 170 MB unpacked:
`python -m tests.hooks.codex_schemas PROGRAM` prints what does not fit, and exits with 1 if any.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

from tests.hooks.exchanges import every_exchange

TITLE = re.compile(rb'"title": "([a-z-]+)\.command\.(input|output)"')
LONGEST = 100_000


def schemas(program: bytes) -> dict[tuple[str, str], Any]:
    """By event and `input` or `output` its schema."""
    found: dict[tuple[str, str], Any] = {}
    for title in TITLE.finditer(program):
        start = program.rfind(b'{\n  "$schema"', 0, title.start())
        text = program[start : start + LONGEST].decode("utf-8", "replace")
        schema, _ = json.JSONDecoder().raw_decode(text)
        name = title[1].decode().replace("-", " ").title().replace(" ", "")
        found[name, title[2].decode()] = schema
    return found


def faults(known: dict[tuple[str, str], Any]) -> Iterator[str]:
    """What does not fit, by event."""
    for each in every_exchange():
        name = each.payload.get("hook_event_name")
        if each.agent != "codex" or not each.event or name is None:
            continue
        told = [("input", each.payload), *(("output", one) for one in each.answers.values())]
        for side, value in told:
            check: Any = Draft7Validator(known.get((name, side), False))
            yield from (f"{name}, {side}: {fault.message}" for fault in check.iter_errors(value))


if __name__ == "__main__":
    carried = schemas(Path(sys.argv[1]).read_bytes())
    found = list(faults(carried))
    print(f"{len(carried)} schemas", *found, sep="\n")
    sys.exit(bool(found or not carried))
