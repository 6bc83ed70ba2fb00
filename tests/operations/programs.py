"""Programs that these tests need, and where the files are that they look at."""

import shutil
from pathlib import Path
from typing import Final

from tests.programs import ran
from tests.zero_code.interpreter import lacking

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIG: Final = ROOT / "collector-config"
RULES: Final = sorted((CONFIG / "prometheus/rules").glob("*.rules.yaml"))
RULE_TESTS: Final = sorted((CONFIG / "prometheus/tests").glob("*.test.yaml"))
DASHBOARDS: Final = CONFIG / "grafana/dashboards"
OPERATIONS: Final = ROOT / "docs/operations.md"


def need(program: str, *others: str) -> str:
    """Where a program is, by one of its names; skips without it, and fails under CI."""
    for name in (program, *others):
        found = shutil.which(name)
        if found is not None:
            return found
    return lacking(f"{program} is missing (Debian: prometheus, prometheus-alertmanager)")


def run(*command: str | Path) -> str:
    """What a command prints, which has to go well."""
    return ran(*command).stdout
