"""Is a plan sound? Everything that is wrong with it is said at once (E6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from otel_loopguard.errors import PlanError
from otel_loopguard.planning.cycles import cycles, spelled
from otel_loopguard.planning.task import Problem, Task, read

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
    """The error that says all of these problems; its text has the first 100.

    Args:
        problems: What is wrong, at least one.
    """
    lines = [problem.message for problem in problems[:_LISTED]]
    if len(problems) > _LISTED:
        lines.append(f"and {len(problems) - _LISTED} more")
    head = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return PlanError("\n- ".join((f"the plan has {head}:", *lines)), problems)
