"""Makes the environments of frameworks: `python -m tests.frameworks.environments NAME…`.

Without names: all. What is there already is left alone, and what the interpreter of the tests has
needs none. All of it may be deleted at any time.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.frameworks.harness import ENGINES, ENVIRONMENTS, FRAMEWORKS, Framework, lacks
from tests.zero_code.interpreter import ROOT

_KNOWN = {**FRAMEWORKS, ENGINES.name: ENGINES}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.environments")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(_KNOWN))
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(_KNOWN))
    if unknown:
        parser.error(f"there is no environment {unknown}, only {sorted(_KNOWN)}")
    wanted = [_KNOWN[name] for name in given.names or _KNOWN]
    # Named ones are made even where the main interpreter has them.
    needed = [one for one in wanted if one.name in given.names or lacks(one)]
    sys.exit(1 if [one.name for one in needed if not _made(one)] else 0)


def _made(framework: Framework) -> bool:
    began = time.monotonic()
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with Path(f"{framework.environment}.lock").open("w", encoding="utf-8") as lock:
        # Somebody else may be at it; then it is there when they are done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if framework.made:
            print(f"{framework.name}: {framework.environment} is there")
            return True
        failed = _install(framework)
    took = f"{time.monotonic() - began:.0f} s"
    print(f"{framework.name}: {'FAILED' if failed else framework.environment} ({took})", flush=True)
    return not failed


def _install(framework: Framework) -> bool:
    uv, where = _uv(), framework.environment
    requirements = framework.folder / "requirements.txt"
    overrides = framework.folder / "overrides.txt"
    install = ["pip", "install", "--requirement", str(requirements)]
    install += ["--editable", f"{ROOT}[{','.join(framework.extras)}]"]
    install += ["--overrides", str(overrides)] if overrides.exists() else []
    for command in (["venv", "--clear", "--python", sys.executable, str(where)], install):
        variables = {**os.environ, "VIRTUAL_ENV": str(where)}
        if subprocess.run([uv, "--quiet", *command], env=variables, check=False).returncode:
            return True
    (where / "complete").touch()
    return False


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        sys.exit("uv is missing: pip install uv")
    return found


if __name__ == "__main__":
    main()
