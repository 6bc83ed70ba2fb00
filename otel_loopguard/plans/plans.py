"""Lists of tasks before they run: whether a plan is sound, how hard, and what runs side by side."""

from __future__ import annotations

import heapq
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.core.task import Problem, Task, read
from otel_loopguard.errors import PlanError
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.core import Milestones

_SPELLED: Final = 20


def cycles(needs: Mapping[str, Sequence[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """One circle for each group of tasks that all wait for each other."""
    # graphlib stops at the first circle, and to ask it again for each is no longer linear.
    order = {name: number for number, name in enumerate(needs)}
    groups = [sorted(group, key=order.__getitem__) for group in _Components(needs).found]
    for group in sorted(groups, key=lambda group: order[group[0]]):
        yield _circle(group[0], set(group), needs), group


def spelled(circle: Sequence[str]) -> str:
    """A circle as text, `a -> b -> a`; of one of more than 20 tasks the middle is left out."""
    if len(circle) <= _SPELLED + 1:
        return " -> ".join(circle)
    head, tail = circle[: _SPELLED - 1], circle[-2:]
    left = len(circle) - len(head) - len(tail)
    return " -> ".join((*head, f"({left} more)", *tail))


def _circle(start: str, group: set[str], needs: Mapping[str, Sequence[str]]) -> list[str]:
    came: dict[str, str] = {}
    queue = deque([start])
    while start not in came:
        name = queue.popleft()
        for need in needs[name]:
            if need in group and need not in came:
                came[need] = name
                queue.append(need)
    circle = [start, came[start]]
    while circle[-1] != start:
        circle.append(came[circle[-1]])
    return circle[::-1]


class _Components:
    """Strongly connected groups of at least two, by Tarjan's algorithm without recursion.

    Attributes:
        found: The groups.
    """

    __slots__ = ("_index", "_low", "_needs", "_open", "_stack", "found")

    def __init__(self, needs: Mapping[str, Sequence[str]]) -> None:
        self.found: list[list[str]] = []
        self._needs = needs
        self._index: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._stack: list[str] = []
        self._open: set[str] = set()
        for name in needs:
            if name not in self._index:
                self._walk(name)

    def _walk(self, start: str) -> None:
        path = [(start, self._enter(start))]
        while path:
            name, left = path[-1]
            for need in left:
                if need not in self._index:
                    path.append((need, self._enter(need)))
                    break
                if need in self._open:
                    self._low[name] = min(self._low[name], self._index[need])
            else:
                path.pop()
                self._leave(name)
                if path:
                    above = path[-1][0]
                    self._low[above] = min(self._low[above], self._low[name])

    def _enter(self, name: str) -> Iterator[str]:
        self._index[name] = self._low[name] = len(self._index)
        self._stack.append(name)
        self._open.add(name)
        return iter(self._needs[name])

    def _leave(self, name: str) -> None:
        if self._low[name] != self._index[name]:
            return
        at = len(self._stack) - 1
        while self._stack[at] != name:
            at -= 1
        group = self._stack[at:]
        del self._stack[at:]
        self._open.difference_update(group)
        if len(group) > 1:
            self.found.append(group)


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
        raise refused(problems)
    return tasks


def validate(tasks: Iterable[Task]) -> list[Problem]:
    """What is wrong with the ids and dependencies of a plan, in time linear in its size.

    Of tasks that depend on each other in a circle one circle is spelled out per group; a group may
    have further ones among its tasks. Of tasks with the same id the first counts.

    Args:
        tasks: The tasks.

    Returns:
        The problems: duplicates, dependencies on themselves, unknown ones, circles, and then what
        can never start because of those. Empty if the plan is sound. Source: FEATURES E6.
    """
    known: dict[str, Task] = {}
    times: Counter[str] = Counter()
    for task in tasks:
        times[task.id] += 1
        known.setdefault(task.id, task)
    problems = [_duplicate(name, count) for name, count in times.items() if count > 1]
    broken: dict[str, str] = {}
    problems += _own(known, broken)
    problems += _unknown(known, broken)
    needs = {
        name: [each for each in task.depends_on if each in known and each != name]
        for name, task in known.items()
    }
    problems += _circles(needs, broken)
    return problems + _unreachable(needs, broken)


def _duplicate(name: str, count: int) -> Problem:
    return Problem("duplicate", (name,), f"there are {count} tasks with the id {name!r}")


def _own(known: dict[str, Task], broken: dict[str, str]) -> list[Problem]:
    found: list[Problem] = []
    for name, task in known.items():
        if name in task.depends_on:
            broken[name] = "which depends on itself"
            found.append(Problem("self", (name,), f"task {name!r} depends on itself"))
    return found


def _unknown(known: dict[str, Task], broken: dict[str, str]) -> list[Problem]:
    found: list[Problem] = []
    for name, task in known.items():
        for each in dict.fromkeys(task.depends_on):
            if each not in known:
                broken.setdefault(name, f"which depends on {each!r}, and there is no such task")
                message = f"task {name!r} depends on {each!r}, and there is no such task"
                found.append(Problem("unknown", (name, each), message))
    return found


def _circles(needs: dict[str, list[str]], broken: dict[str, str]) -> list[Problem]:
    found: list[Problem] = []
    for circle, members in cycles(needs):
        said = spelled(circle)
        beside = len(members) - (len(circle) - 1)
        more = f"; {beside} more wait for each other with them" if beside else ""
        message = f"tasks depend on each other in a circle: {said}{more}"
        found.append(Problem("cycle", tuple(circle), message))
        for name in members:
            broken.setdefault(name, f"which is in the circle {said}")
    return found


def _unreachable(needs: dict[str, list[str]], broken: dict[str, str]) -> list[Problem]:
    """What waits for a broken task, directly or by way of others."""
    followers: dict[str, list[str]] = {}
    for name, each in needs.items():
        for need in each:
            followers.setdefault(need, []).append(name)
    root = {name: name for name in broken}
    queue = list(broken)
    found: list[Problem] = []
    for name in queue:
        for follower in followers.get(name, ()):
            if follower in root:
                continue
            cause = root[follower] = root[name]
            queue.append(follower)
            message = f"task {follower!r} can never start: it waits for {cause!r}, {broken[cause]}"
            found.append(Problem("unreachable", (follower, cause), message))
    return found


def refused(problems: Sequence[Problem]) -> PlanError:
    """The error that says all of these problems; its text has the first 100."""
    lines = [problem.message for problem in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"and {len(problems) - _LISTED} more")
    head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return PlanError("\n- ".join((f"the plan has {head}:", *lines)), problems)


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


def phases(tasks: Sequence[Task], settings: Settings | None = None) -> list[list[Task]]:
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


def _safe(task: Task, rule: Settings) -> bool:
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


MOST_FOLLOWED: Final = 1000
"""Tasks of one session that are followed."""


def follow(board: Milestones, tasks: Sequence[Task], *, by_person: bool = False) -> bool:
    """Declares the tasks of a sound plan as milestones with their dependencies (D2, E10).

    Every task weighs the same. What was done before under the same id stays done.

    Args:
        board: Board of the session.
        tasks: The tasks.
        by_person: Whether a person gave them, in place of the plan before (C18).

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


@dataclass(frozen=True, slots=True)
class Complexity:
    """How complex a plan is; every part is 0 to 1, before its weight.

    Attributes:
        score: The weighted sum, 0 to 1.
        count: Tasks, of `tuning.plans.count_full` (30).
        tools: Different tools, of `tuning.plans.tools_full` (10).
        dependencies: Dependencies, `tuning.plans.dependency_share` (0.1) each.
        priorities: Highest priority less the lowest, of `tuning.plans.priority_span` (1).
        durations: Mean deviation of the estimates that are known, relative to their mean.
    """

    score: float
    count: float
    tools: float
    dependencies: float
    priorities: float
    durations: float


def complexity(tasks: Sequence[Task], settings: Settings | None = None) -> Complexity:
    """How complex a plan is.

    .3 count/30 + .25 distinct tools/10 + .2 dependencies (.1 each) + .15 priority spread + .1
    relative mean deviation of durations, each capped at 1. Source: FEATURES A5.

    Args:
        tasks: The tasks; they need not be sound. Where a task has no tool its agent counts as one.
        settings: Weights and scales; from the environment by default.
    """
    rule = Settings() if settings is None else settings
    worked = {task.tool or task.agent for task in tasks} - {None}
    edges = sum(len(task.depends_on) for task in tasks)
    parts = (
        min(1.0, len(tasks) / rule.tuning.plans.count_full),
        min(1.0, len(worked) / rule.tuning.plans.tools_full),
        min(1.0, edges * rule.tuning.plans.dependency_share),
        min(1.0, _spread(tasks) / rule.tuning.plans.priority_span),
        min(1.0, _deviation([one.estimate_ms for one in tasks if one.estimate_ms is not None])),
    )
    weights = (
        rule.tuning.plans.weight_count,
        rule.tuning.plans.weight_tools,
        rule.tuning.plans.weight_dependencies,
        rule.tuning.plans.weight_priorities,
        rule.tuning.plans.weight_durations,
    )
    score = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    return Complexity(min(1.0, round(score, 6)), *parts)


def _spread(tasks: Sequence[Task]) -> float:
    priorities = [task.priority for task in tasks]
    return max(priorities) - min(priorities) if priorities else 0.0


def _deviation(durations: Sequence[float]) -> float:
    """Mean distance from the mean, relative to it; 0 without durations."""
    if not durations:
        return 0.0
    mean = sum(durations) / len(durations)
    if mean <= 0:
        return 0.0
    return sum(abs(one - mean) for one in durations) / len(durations) / mean
