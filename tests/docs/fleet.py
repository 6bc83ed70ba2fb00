"""What `bench/fleet.py` measured last."""

from __future__ import annotations

import json
from textwrap import fill
from typing import Any

from bench.fleet import RESULTS, Row, paper, table


def workers() -> str:
    """The table, and what it comes to with a million sessions."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    machine = found["machine"]
    rows = [Row(**row) for row in found["rows"]]
    about = (
        f"Measured on {machine['when']} with Python {machine['python']}, {machine['system']}, "
        f"{machine['cpus']} CPUs, whose load was {machine['load']} before."
    )
    return f"{about}\n\n{table(rows)}\n{fill(paper(rows), 100)}\n"
