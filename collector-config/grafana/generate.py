"""Writes the dashboards: `python collector-config/grafana/generate.py [FOLDER]`.

The folder is `dashboards` beside this file by default. Needs grafana-foundation-sdk, which is made
for one version of Grafana each; the pinned one says 11.6.
"""

from __future__ import annotations

import json
import sys
from itertools import count
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from health import health
from operators import operators


def generate(folder: Path) -> None:
    """Writes both dashboards into a folder, keys sorted, so that equal ones are equal files."""
    for name, made in (("operators", operators()), ("health", health())):
        board = json.loads(json.dumps(made.build(), cls=JSONEncoder))
        _number(board["panels"], count(1))
        _close_up(board["panels"])
        text = json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False)
        (folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def _number(panels: list[dict[str, Any]], ids: count[int]) -> None:
    """Gives each panel an id, those in folded rows too."""
    for panel in panels:
        panel["id"] = next(ids)
        _number(panel.get("panels") or [], ids)


def _close_up(panels: list[dict[str, Any]]) -> None:
    """Moves up what stands below folded rows, which the builder gives the room of open ones."""
    spare = 0
    for panel in panels:
        panel["gridPos"]["y"] -= spare
        if panel.get("collapsed"):
            spare += max(each["gridPos"]["h"] for each in panel["panels"])


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards"
    target.mkdir(parents=True, exist_ok=True)
    generate(target)
