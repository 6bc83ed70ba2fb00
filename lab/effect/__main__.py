"""What the guard changes: tasks solved, calls, tokens and time with and without it.

    python -m lab.effect --url https://api.openai.com/v1 --model gpt-5-mini

The key is read from OPENAI_API_KEY, or the variable that `--key` names; settings of the guard from
LOOPGUARD_*. Without an address, the small model of `make effect` runs here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import otel_loopguard
from lab.effect import installed
from lab.effect.agent import STEPS, Run, run
from lab.effect.model import Model, RefusedError
from lab.effect.report import report
from lab.effect.tasks import Task, tasks


def main(words: list[str] | None = None) -> int:
    """The command line; the exit code."""
    given = _arguments(words)
    runs: list[Run] = []
    failed = False
    try:
        with _address(given) as (url, name):
            model = Model(url, name, os.environ.get(given.key), temperature=given.temperature)
            runs.extend(_runs(model, given))  # adds each as it comes
    except (RefusedError, RuntimeError, CalledProcessError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        failed = True
    if not runs:
        return 1
    about = {
        "model": given.model or installed.NAME,
        "otel-loopguard": otel_loopguard.__version__,
        "when": time.strftime("%Y-%m-%d"),
        **{name: getattr(given, name) for name in ("tasks", "seeds", "steps", "temperature")},
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(written(about, runs), encoding="utf-8")
    print(report(runs))
    return int(failed)


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.effect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--url", help="address of an OpenAI-compatible API, up to /v1")
    add("--model", help="name of the model there")
    add("--key", default="OPENAI_API_KEY", metavar="VARIABLE", help="variable that has the key")
    add("--tasks", type=int, default=32, help="number of tasks")
    add("--seeds", type=int, default=2, help="runs of each task, with and without the guard")
    add("--steps", type=int, default=STEPS, help="requests to the model in one run, at most")
    add("--temperature", type=float, help="of the model; not sent by default")
    add("--out", type=Path, default=Path("build/effect.json"), help="file for the results")
    add("--log", type=Path, default=Path("build/effect.txt"), help="file for what happened")
    given = parser.parse_args(words)
    if bool(given.url) != bool(given.model):
        parser.error("--url and --model are given together, or neither for the small model here")
    if min(given.tasks, given.seeds, given.steps) < 1:
        parser.error("--tasks, --seeds and --steps must be at least 1")
    return given


@contextmanager
def _address(given: argparse.Namespace) -> Generator[tuple[str, str]]:
    if given.url:
        yield given.url, given.model
        return
    installed.install()
    with installed.served() as url:
        yield url, installed.NAME


def _runs(model: Model, given: argparse.Namespace) -> Generator[Run]:
    """All runs; those that are complete where it is interrupted."""
    given.log.parent.mkdir(parents=True, exist_ok=True)
    with given.log.open("w", encoding="utf-8") as log, suppress(KeyboardInterrupt):
        for seed in range(1, given.seeds + 1):
            for task in tasks(given.tasks):
                for guarded in (False, True):
                    found = run(task, seed, model, guarded=guarded, limit=given.steps)
                    print(*_told(found, task), sep="\n", file=log, flush=True)
                    print(_head(found), flush=True)
                    yield found


def _head(found: Run) -> str:
    arm = "with" if found.guarded else "without"
    end = f"{found.ended}, {'solved' if found.solved else 'not solved'}"
    return f"{found.task} seed {found.seed} {arm}: {end}, {found.tool_calls} calls"


def _told(found: Run, task: Task) -> list[str]:
    """A run for people: what was asked, what happened, how it ended."""
    asked = f"  asked {task.question} [{task.answer}]"
    return [_head(found), asked, *(f"  {step!r}"[:400] for step in found.steps)]


def written(about: dict[str, Any], runs: Iterable[Run]) -> str:
    """Results as JSON, a line for each run."""
    kept = [{name: value for name, value in asdict(one).items() if name != "steps"} for one in runs]
    rows = map(json.dumps, kept)
    return json.dumps(about)[:-1] + ', "runs": [\n' + ",\n".join(rows) + "\n]}\n"


def read(path: Path) -> tuple[dict[str, Any], list[Run]]:
    """What was measured, and its runs."""
    about = json.loads(path.read_text(encoding="utf-8"))
    return about, [Run(**row) for row in about.pop("runs")]


if __name__ == "__main__":
    sys.exit(main())
