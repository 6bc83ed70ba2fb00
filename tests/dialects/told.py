"""Steps in one line each, as the tables beside tell them."""

import json
from pathlib import Path

from otel_loopguard.core import Step

FIELDS = (
    "name", "args", "outcome", "error", "error_text", "error_type", "call_id", "model", "tokens_in",
    "tokens_out", "text", "cost", "cache_read", "cache_write", "session", "agent", "server",
    "lacks",
)  # fmt: skip


def told(step: Step, *without: str) -> str:
    known = {name: getattr(step, name) for name in FIELDS if name not in without}
    known["cost"] = step.cost and round(step.cost, 9)
    found = {
        key: one for key, one in known.items() if one is not None and one is not False and one != ()
    }
    return f"{step.kind.value} {json.dumps(found, ensure_ascii=False)}"


def sections(name: str) -> dict[str, list[str]]:
    """The sections of a table beside by their titles in brackets; `#` begins a comment."""
    found: dict[str, list[str]] = {}
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines = found[line[1:-1]] = []
        elif line and not line.startswith("#"):
            lines.append(line)
    return found
