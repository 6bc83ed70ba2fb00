"""What of a plan may run side by side (E9), and whether calls depend on each other (A3)."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.planning.validation import refused, validate
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.planning.task import Task
    from otel_loopguard.settings.planning import PlanningSettings

_DEPTH: Final = 8
_VALUES: Final = 1000
_REFERENCE: Final = re.compile(r"\$\{\s*([^}\s.\[]+)|\{\{\s*([^}\s.\[]+)|^\$([\w-]+)$")
"""How arguments name the result of another task: `${a.rows}`, `{{ a }}`, and `$a` as a value."""

_Entry = tuple[int, float, int, "Task"]


def groups(tasks: Sequence[Task]) -> list[list[Task]]:
    """The tasks by dependency depth: all of one group may start when all groups before are done.

    Args:
        tasks: The tasks of a sound plan.

    Returns:
        The groups, the one without dependencies first. Within a group the order is by priority,
        highest first, then that of the plan. Source: FEATURES E9.

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


def phases(tasks: Sequence[Task], settings: PlanningSettings | None = None) -> list[list[Task]]:
    """What runs side by side, one phase after the other, `plan_max_parallel` (3) at most.

    Groups are cut to that size, and what is left over of one is merged with the next as far as
    dependencies allow: a task starts in the first phase in which it may and in which there is room.
    There are never more phases than the cut groups alone would need. A task that may not run beside
    others has a phase of its own; one of which nobody said so may, unless `plan_assume_safe` is
    off.

    Args:
        tasks: The tasks of a sound plan.
        settings: Settings; from the environment by default.

    Returns:
        The phases. Source: FEATURES E9.

    Raises:
        PlanError: The plan is not sound; the error has all that is wrong.
    """
    rule = Settings() if settings is None else settings
    depth = {task.id: level for level, group in enumerate(groups(tasks)) for task in group}
    entries: dict[str, _Entry] = {
        task.id: (depth[task.id], -task.priority, number, task) for number, task in enumerate(tasks)
    }
    sorter = _sorter(tasks)
    together: list[_Entry] = []
    alone: list[_Entry] = []
    found: list[list[Task]] = []
    while sorter.is_active():
        for name in sorter.get_ready():
            entry = entries[name]
            heapq.heappush(together if _safe(entry[3], rule) else alone, entry)
        phase = _phase(together, alone, rule.plan_max_parallel)
        sorter.done(*(task.id for task in phase))
        found.append(phase)
    return found


def independent(tasks: Sequence[Task]) -> bool:
    """Whether no task needs another one's result, so that all could run at once (A3).

    Looks at `depends_on` and at arguments that name another task: `${a.rows}`, `{{ a }}`, or `$a`
    as a whole value.

    Args:
        tasks: The tasks, of a batch of calls say; what is not among them is taken for done.
    """
    names = {task.id for task in tasks}
    return not any(
        not names.isdisjoint(task.depends_on) or not names.isdisjoint(_referred(task.args))
        for task in tasks
    )


def _phase(together: list[_Entry], alone: list[_Entry], most: int) -> list[Task]:
    if alone and (not together or alone[0] < together[0]):
        return [heapq.heappop(alone)[3]]
    return [heapq.heappop(together)[3] for _ in range(min(most, len(together)))]


def _safe(task: Task, rule: PlanningSettings) -> bool:
    return rule.plan_assume_safe if task.parallel_safe is None else task.parallel_safe


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
        raise refused(validate(tasks))
    return sorter


def _referred(args: object) -> Iterator[str]:
    """Names in references, within the first 1000 values and 8 levels of the arguments."""
    level: list[object] = [args]
    left = _VALUES
    for _ in range(_DEPTH):
        inner: list[object] = []
        for value in level[:left]:
            left -= 1
            if isinstance(value, str):
                yield from (one[1] or one[2] or one[3] for one in _REFERENCE.finditer(value))
            elif isinstance(value, Mapping):
                inner.extend(cast("Mapping[object, object]", value).values())
            elif isinstance(value, (list, tuple)):
                inner.extend(cast("Sequence[object]", value))
        level = inner
