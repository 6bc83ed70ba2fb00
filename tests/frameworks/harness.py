"""Which frameworks are tested, the interpreter that each is run by, and how.

A framework has a folder here: `requirements.txt` (its packages, pinned), maybe `overrides.txt` (for
uv: what it pins too old), `agent.py` (see `scripted.py`) and `results.json`, which the tests
write with `LOOPGUARD_WRITE_DOCS=1` and compare with otherwise.

Where the interpreter of the tests (or the one in `LOOPGUARD_FRAMEWORKS_PYTHON`) can import all it
needs, that one runs it. Else it is run in an environment of its own, below
`LOOPGUARD_FRAMEWORKS_DIR`, made by `python -m tests.frameworks.environments NAME…`.
"""

import ast
import atexit
import hashlib
import json
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.programs import Interpreter
from tests.tables import rows, toml
from tests.zero_code.interpreter import PYTHON, ROOT, environment, lacking
from tests.zero_code.interpreter import missing as missing_modules

HERE = Path(__file__).parent
_DIR = os.environ.get("LOOPGUARD_FRAMEWORKS_DIR") or "~/.cache/otel-loopguard/frameworks"
ENVIRONMENTS = Path(_DIR).expanduser()
EXTRAS = ("cli", "redis")
RESULTS = "results.json"


@dataclass(frozen=True)
class Framework:
    """A framework that has an adapter; `make test-all` alone tests one that stands apart."""

    name: str
    title: str
    modules: tuple[str, ...]
    apart: bool = True
    extras: tuple[str, ...] = EXTRAS

    @property
    def folder(self) -> Path:
        return HERE / self.name

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        return json.loads((self.folder / RESULTS).read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def keep(self, key: str, line: dict[str, Any]) -> None:
        known = self.results if (self.folder / RESULTS).exists() else {}
        text = json.dumps({**known, key: line}, indent=1, sort_keys=True)
        (self.folder / RESULTS).write_text(f"{text}\n", encoding="utf-8")

    @property
    def environment(self) -> Path:
        """Its own environment, there or not; another one when what it is made of changes."""
        digest = hashlib.sha256(f"{sys.version_info[:2]}{_ours(self.extras)}".encode())
        for name in ("requirements.txt", "overrides.txt"):
            path = self.folder / name
            digest.update(path.read_bytes() if path.exists() else b"")
        return ENVIRONMENTS / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def made(self) -> bool:
        """Whether its own environment is complete."""
        return (self.environment / "complete").exists()


_OTHERS = "openinference.instrumentation."
_BESIDE = ("langchain", "openai_agents", "pydantic_ai")
"""Those that the interpreter of the tests has."""
FRAMEWORKS = {
    name: Framework(name, title, tuple(needs.replace("+", _OTHERS).split()), name not in _BESIDE)
    for name, title, needs in (row.values for row in rows(__file__, "frameworks"))
}
"""Every framework by name; in this order it stands in docs/frameworks.md."""

ENGINES = Framework(
    "engines", "Ray, chdb", ("ray.data", "chdb"), extras=("backtest", "clickhouse", "cli", "ray")
)
"""No framework, but what backtests need apart: 1.3 GB."""


def python_of(framework: Framework) -> str:
    """The interpreter that runs a framework's program; without one the test is skipped."""
    missing = lacks(framework)
    if not missing:
        return PYTHON
    if framework.made:
        return str(framework.python)
    return lacking(
        f"{PYTHON} lacks {framework.name} ({missing}), and it has no environment of its own: "
        f"python -m tests.frameworks.environments {framework.name}"
    )


def lacks(framework: Framework) -> str:
    return missing_modules(PYTHON, framework.modules)


def started(
    framework: Framework, *arguments: str, program: Path | None = None, **variables: str
) -> Interpreter:
    """Starts `agent.py` of a framework, or another program, with no other variables of ours."""
    path = program or framework.folder / "agent.py"
    running = _interpreter(framework)
    running.start(path.read_text("utf-8"), ROOT, *arguments, path=str(path), **variables)
    return running


def finished(running: Interpreter, limit_s: float = 180) -> str:
    """What a program printed, which has to go well; it is killed at the limit."""
    done = running.finish(limit_s)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def _interpreter(framework: Framework) -> Interpreter:
    """With all that its `agent.py` imports; of one framework at a time."""
    running = _RUNNING.get(framework.name)
    if running is None or not running.usable:
        for one in _RUNNING.values():
            one.close()
        _RUNNING.clear()
        running = Interpreter([python_of(framework)], _imports(framework), environment())
        _RUNNING[framework.name] = running
    return running


def _imports(framework: Framework) -> list[str]:
    text = (framework.folder / "agent.py").read_text("utf-8")
    found = [one for one in ast.parse(text).body if isinstance(one, ast.ImportFrom)]
    return [*framework.modules, *(one.module for one in found if one.module)]


_RUNNING: dict[str, Interpreter] = {}


@atexit.register
def _close() -> None:
    for one in _RUNNING.values():
        one.close()


def line_of(out: str) -> dict[str, Any]:
    return json.loads(out.strip().splitlines()[-1])  # type: ignore[no-any-return]


@cache
def _ours(extras: tuple[str, ...]) -> str:
    """What our own package brings into an environment, by its pyproject.toml."""
    project = toml(ROOT / "pyproject.toml")["project"]
    brought = [project["optional-dependencies"][name] for name in extras]
    return json.dumps([project["dependencies"], brought])
