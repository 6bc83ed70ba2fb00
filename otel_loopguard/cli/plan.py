"""`plan`: the problems of a plan, its parallel phases and its complexity."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final, cast

import orjson
import typer

from otel_loopguard._util.bounded_json import oversized
from otel_loopguard.cli.output import Format, console, json_line, say, table
from otel_loopguard.core.task import read
from otel_loopguard.errors import RecordingError
from otel_loopguard.plans import Work, advise, complexity, groups, phases, validate
from otel_loopguard.replay import read_whole

if TYPE_CHECKING:
    from otel_loopguard.core.task import Problem, Task
    from otel_loopguard.plans import Complexity
    from otel_loopguard.plans.splitting import Advice
    from otel_loopguard.settings import Settings

_MOST: Final = 16 * 1024 * 1024
"""Bytes of a plan."""
# Tasks of a plan: phases and problems of so many take a few seconds.
_TASKS: Final = 10_000
# Problems that are printed: JSON has all.
_PROBLEMS_SHOWN: Final = 10


def print_plan(file: str, form: Format, settings: Settings) -> int:
    """Prints the analysis of a plan; returns the exit code, 1 if it is not sound."""
    tasks, problems = read(_loaded(file))
    if problems and not tasks:
        msg = f"{file}: there is no task in the plan: {problems[0].message}"
        raise RecordingError(msg)
    if len(tasks) > _TASKS:
        msg = f"{file}: the plan has {len(tasks):,} tasks, more than {_TASKS:,}"
        raise RecordingError(msg)
    problems += validate(tasks)
    measured, advice = complexity(tasks), advise(Work.of(tasks))
    levels = [] if problems else groups(tasks)
    runs = [] if problems else phases(tasks, settings)
    if form is Format.JSON:
        json_line({
            "tasks": len(tasks),
            "sound": not problems,
            "problems": [asdict(problem) for problem in problems],
            "groups": [_ids(group) for group in levels],
            "phases": [_ids(phase) for phase in runs],
            "complexity": asdict(measured),
            "advice": _advice(advice),
        })  # fmt: skip
    else:
        _show(len(tasks), problems, levels, runs)
        _rate(measured, advice)
    return 1 if problems else 0


def _loaded(file: str) -> object:
    written = read_whole(file, _MOST)
    why = oversized(written)
    if why:
        msg = f"{file}: the plan {why}"
        raise RecordingError(msg)
    try:
        return cast("object", orjson.loads(written))
    except orjson.JSONDecodeError as error:
        msg = f"{file}: expected a JSON list of tasks: {error}"
        raise RecordingError(msg) from None


def _ids(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


def _advice(advice: Advice) -> dict[str, object]:
    subtasks = [
        {"id": task.id, "description": task.description, "depends_on": task.depends_on}
        for task in advice.subtasks
    ]
    return {**asdict(advice), "strategy": advice.strategy.value, "subtasks": subtasks}


def _show(
    count: int, problems: list[Problem], levels: list[list[Task]], runs: list[list[Task]]
) -> None:
    for problem in problems[:_PROBLEMS_SHOWN]:
        say(f"{problem.kind}: {problem.message}")
    if len(problems) > _PROBLEMS_SHOWN:
        typer.echo(
            f"{len(problems) - _PROBLEMS_SHOWN:,} more problems left out; --format json has them"
        )
    if problems:
        typer.echo(f"\n{count} tasks; the plan cannot run as it is")
        return
    depth = {task.id: level for level, group in enumerate(levels) for task in group}
    rows = [
        (
            number,
            ", ".join(map(str, sorted({depth[task.id] for task in phase}))),
            ", ".join(_ids(phase)),
        )
        for number, phase in enumerate(runs, 1)
    ]
    console().print(table(("phase#", "depth", "side by side~"), rows))
    typer.echo(f"{count} tasks, {len(levels)} groups by depth, {len(runs)} phases")


def _rate(measured: Complexity, advice: Advice) -> None:
    parts = {name: value for name, value in asdict(measured).items() if name != "score"}
    typer.echo(f"complexity {measured.score:.2f} ({_named(parts)})")
    word = f"split {advice.strategy}" if advice.split else "no need to split"
    actions = sum(advice.actions.values())
    typer.echo(
        f"as one piece of work {advice.score:.2f} ({_named(asdict(advice.factors))}): "
        f"{word}, about {actions} actions"
    )
    for risk in advice.risks:
        say(f"risk: {risk}")


def _named(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
