"""Lists of tasks before they run: is the plan sound, how hard is it, what runs side by side?

Knows neither spans nor OpenTelemetry; every function is plain values in, plain values out.

::

    from otel_loopguard import plans

    tasks = plans.checked([{"id": "read"}, {"id": "write", "depends_on": ["read"]}])
    for phase in plans.phases(tasks):
        ...
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.lazy import lazy
from otel_loopguard.core.task import Problem, Task, read, validate
from otel_loopguard.errors import PlanError
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.core.progress import Milestones
    from otel_loopguard.plans.splitting import Work, advise, answered

__all__ = [
    "Problem", "Task", "Work", "advise", "answered", "checked", "complexity", "groups",
    "independent", "phases", "read", "validate",
]  # fmt: skip

__getattr__ = lazy(__name__, {"splitting": "Work advise answered"})

# Problems in the text of an error; a model that reads it needs no more to write another plan.
_LISTED: Final = 100


def checked(plan: object) -> list[Task]:
    """The tasks of a plan that is sound.

    Args:
        plan: See `read`.

    Returns:
        The tasks, in their order.

    Raises:
        PlanError: Something is wrong; the error has all of it.
    """
    tasks, problems = read(plan)
    problems += validate(tasks)
    if problems:
        raise _unsound(problems)
    return tasks


def _unsound(problems: Sequence[Problem]) -> PlanError:
    """The error that says all of these problems; its text has the first 100."""
    lines = [problem.message for problem in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"and {len(problems) - _LISTED} more")
    head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return PlanError("\n- ".join((f"the plan has {head}:", *lines)), problems)


# Levels and values of arguments that are looked through for references: those of a call that a
# person or a model wrote have less, and a batch is read on the caller's thread.
_DEPTH: Final = 8
_VALUES: Final = 1000
_REFERENCE: Final = re.compile(
    r"\$\{\s*([^}\s.\[]+)|\{\{\s*([^}\s.\[]+)|^\$([^\W\d][\w-]*)(?:\.[\w.-]+)?$"
)
"""How arguments name the result of another task: `${a.rows}`, `{{ a }}`, and `$a` as a value. `$1`
is money."""


def groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks by dependency depth: all of one group may start when all groups before are done.

    Args:
        tasks: The tasks of a sound plan.

    Returns:
        The groups, the one without dependencies first. Within a group the order is by priority,
        highest first, then that of the plan.

    Raises:
        PlanError: The plan is not sound; the error has all that is wrong.
    """
    order = {task.id: number for number, task in enumerate(tasks)}
    sorter = _sorter(tasks)
    found: list[list[Task]] = []
    while ready := sorter.get_ready():
        sorter.done(*ready)
        group = [tasks[order[name]] for name in ready]
        found.append(sorted(group, key=lambda task: (-task.priority, order[task.id])))
    return found


def phases(tasks: Sequence[Task], settings: Settings | None = None) -> list[list[Task]]:
    """The phases of a plan: tasks that run side by side, `tuning.plans.max_parallel` (3) at most.

    Groups are cut to that size, and what is left over of one is merged with the next as far as
    dependencies allow: a task starts in the first phase in which it may and in which there is room.
    There are never more phases than the cut groups alone would need. A task whose `parallel_safe`
    is False has a phase of its own.

    Args:
        tasks: The tasks of a sound plan.
        settings: Settings; from the environment by default.

    Returns:
        The phases.

    Raises:
        PlanError: The plan is not sound; the error has all that is wrong.
    """
    most = (Settings() if settings is None else settings).tuning.plans.max_parallel
    ordered = [task for group in groups(tasks) for task in group]
    places = {task.id: place for place, task in enumerate(ordered)}
    sorter = _sorter(tasks)
    # Places of the tasks that may start.
    together: list[int] = []
    alone: list[int] = []
    found: list[list[Task]] = []
    while sorter.is_active():
        for place in map(places.__getitem__, sorter.get_ready()):
            heapq.heappush(alone if ordered[place].parallel_safe is False else together, place)
        if alone and (not together or alone[0] < together[0]):
            phase = [ordered[heapq.heappop(alone)]]
        else:
            count = min(most, len(together))
            phase = [ordered[heapq.heappop(together)] for _ in range(count)]
        sorter.done(*(task.id for task in phase))
        found.append(phase)
    return found


def independent(tasks: Sequence[Task]) -> bool:
    """True if no task needs another one's result, so that all could run at once.

    Looks at `depends_on` and at arguments that name another task: `${a.rows}`, `{{ a }}`, or `$a`
    as a whole value.

    Args:
        tasks: The tasks, of a batch of calls say; what is not among them is taken for done.
    """
    return not any(needs(tasks).values())


def needs(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """The tasks that each task waits for, by its dependencies and its arguments; by their ids."""
    names = {task.id for task in tasks}
    return {
        task.id: names.intersection(task.depends_on) | (names & _referred(task.args)) - {task.id}
        for task in tasks
    }


def _sorter(tasks: Sequence[Task]) -> TopologicalSorter[str]:
    """A sorter that is prepared; of an unsound plan the full list of what is wrong."""
    known = {task.id for task in tasks}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for task in tasks:
        sorter.add(task.id, *task.depends_on)
    sound = len(known) == len(tasks) and all(known.issuperset(one.depends_on) for one in tasks)
    try:
        sorter.prepare()
    except CycleError:
        sound = False
    if not sound:
        raise _unsound(validate(tasks))
    return sorter


def _referred(args: object) -> set[str]:
    """Names in references, within the first 1000 values and 8 levels of the arguments."""
    found: set[str] = set()
    level: list[object] = [args]
    left = _VALUES
    for _ in range(_DEPTH):
        inner: list[object] = []
        for value in level[:left]:
            left -= 1
            if isinstance(value, str):
                found.update(one[1] or one[2] or one[3] for one in _REFERENCE.finditer(value))
            elif isinstance(value, Mapping):
                inner.extend(cast("Mapping[object, object]", value).values())
            elif isinstance(value, (list, tuple)):
                inner.extend(cast("Sequence[object]", value))
        level = inner
    return found


MOST_FOLLOWED: Final = 1000
"""Tasks of one session that are followed."""


def follow(board: Milestones, tasks: Sequence[Task], *, by_person: bool = False) -> bool:
    """Declares the tasks of a sound plan as milestones with their dependencies.

    Every task weighs the same. What was done before under the same id stays done.

    Args:
        board: Board of the session.
        tasks: The tasks.
        by_person: Whether a person gave them, in place of the plan before.

    Returns:
        Whether it is followed: there are at most 1000 tasks, and no two are one in their first 200
        characters.

    Raises:
        PlanError: The plan is not sound.
    """
    if not 0 < len(tasks) <= MOST_FOLLOWED:
        return False
    ordered = [task for group in groups(tasks) for task in group]
    return board.follow(
        {task.id: task.depends_on for task in ordered},
        [task.id for task in ordered if task.optional],
        by_person=by_person,
    )


# From so many tasks, tools, dependencies, and so far between the highest and the lowest priority
# (0 to 1), a part counts in full. Weights and scales are those of the first release, a rule of
# thumb: the score decides no more than whether a user is asked (from 0.7).
_FULL_TASKS: Final = 30
_FULL_TOOLS: Final = 10
_FULL_DEPENDENCIES: Final = 10
_WEIGHTS: Final = (0.3, 0.25, 0.2, 0.15, 0.1)


@dataclass(frozen=True, slots=True)
class Complexity:
    """The complexity of a plan; every part is 0 to 1, before its weight.

    Attributes:
        score: The weighted sum, 0 to 1.
        count: Tasks, of 30; weight 0.3.
        tools: Different tools, of 10; weight 0.25.
        dependencies: Dependencies, of 10; weight 0.2.
        priorities: Highest priority less the lowest, at most 1; weight 0.15.
        durations: Mean deviation of the known estimates, relative to their mean; weight 0.1.
    """

    score: float
    count: float
    tools: float
    dependencies: float
    priorities: float
    durations: float


def complexity(tasks: Sequence[Task]) -> Complexity:
    """Returns how complex a plan is.

    Args:
        tasks: The tasks; they need not be sound. Where a task has no tool its agent counts as one.
    """
    workers = {task.tool or task.agent for task in tasks} - {None}
    priorities = [task.priority for task in tasks] or [0.0]
    durations = [task.estimate_ms for task in tasks if task.estimate_ms is not None]
    total = sum(durations)
    mean = total / len(durations) if durations else 0.0
    deviation = sum(abs(one - mean) for one in durations)
    found = (
        len(tasks) / _FULL_TASKS,
        len(workers) / _FULL_TOOLS,
        sum(len(task.depends_on) for task in tasks) / _FULL_DEPENDENCIES,
        max(priorities) - min(priorities),
        deviation / total if total > 0 else 0.0,
    )
    parts = [min(1.0, part) for part in found]
    score = sum(weight * part for weight, part in zip(_WEIGHTS, parts, strict=True))
    return Complexity(round(score, 6), *parts)
