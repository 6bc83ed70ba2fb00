# ruff: noqa: E402
"""What a hook of a coding agent costs, from its start to its answer: `bench/hooks.py`.

With the process that judges (warm), where the first event has to start it (cold), and where each
hook judges by itself. Beside it what starting Python takes at all, which is most of it. On a busy
machine only the processor time says something.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE)]

from tests.hooks.running import Home

WARM_MS: Final = 50
COLD_MS: Final = 150
TIMES: Final = {"python": 50, "warm": 200, "cold": 20, "alone": 5}


class Took(NamedTuple):
    """Milliseconds of one run: from its start to its end, and of the processor."""

    wall: float
    processor: float


def measured() -> Iterator[str]:
    """A line for each way."""
    yield _line("python -c pass", [_took(_python) for _ in range(TIMES["python"])])
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.begin()
        try:
            warm = [_took(lambda: _event(home)) for _ in range(TIMES["warm"])]
        finally:
            home.end()
    yield _line("hook run, the process is there", warm, WARM_MS)
    cold = [_cold() for _ in range(TIMES["cold"])]
    yield _line("hook run, the process is to be started", cold, COLD_MS)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        with_settings = [_took(lambda: _event(home, "--no-process")) for _ in range(TIMES["alone"])]
        # What checks settings is loaded where there are any, and takes as long as the guard.
        home.environment = {k: v for k, v in home.environment.items() if "LOOPGUARD" not in k}
        alone = [_took(lambda: _event(home, "--no-process")) for _ in range(TIMES["alone"])]
    yield _line("hook run --no-process", alone)
    yield _line("hook run --no-process, with settings", with_settings)


def _python() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _cold() -> Took:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        try:
            return _took(lambda: _event(home))
        finally:
            home.kill()


def _event(home: Home, *options: str) -> None:
    home.calls += 1
    home.event(
        "PostToolUse", "--mode", "enforce", *options, tool_name="Read", tool_response="text " * 200,
        tool_input={"file_path": f"{home.calls}.py"}, tool_use_id=f"toolu_{home.calls}",
    )  # fmt: skip


def _took(run: Callable[[], object]) -> Took:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall * 1e3, spent * 1e3)


def _line(name: str, took: list[Took], aim: float | None = None) -> str:
    walls = sorted(one.wall for one in took)
    spent = sorted(one.processor for one in took)[len(took) // 2]
    late = walls[min(len(walls) - 1, int(len(walls) * 0.95))]
    reached = "" if aim is None else f"   aim {aim:g}: {'reached' if late <= aim else 'missed'}"
    return (
        f"{name:40} n={len(took):<4} median {walls[len(walls) // 2]:6.1f} ms   p95 {late:6.1f} ms"
        f"   processor {spent:6.1f} ms{reached}"
    )


if __name__ == "__main__":
    for row in measured():
        print(row, flush=True)
