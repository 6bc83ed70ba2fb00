"""The parts that a strategy splits a piece of work into."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_loopguard.planning.task import Task

CLARIFY: Final = "clarify"
"""Id of the part that asks what is wanted."""

_CHECK: Final = "check the whole"
_MOST: Final = 100


def parts_of(
    strategy: str, files: Sequence[str], components: Sequence[str], *, unclear: bool
) -> list[Task]:
    """The parts of a piece of work, a sound plan.

    Args:
        strategy: `by_component`, `by_file`, or else test first.
        files: Its files, by path.
        components: Its components.
        unclear: Whether it has to be made clear first what is wanted.

    Returns:
        One part per component or file (at most 100, the last one has the rest), with a check of the
        whole at the end; or tests, work, check.
    """
    before = (CLARIFY,) if unclear else ()
    first = [Task(CLARIFY, description="Say what exactly is wanted, and ask where that is open.")]
    tasks = first if unclear else []
    if strategy == "by_component":
        return tasks + _each(components, "Do what concerns the component {}.", before)
    if strategy == "by_file":
        return tasks + _each(files, "Do what concerns {}.", before)
    return [
        *tasks,
        Task("write tests", description="Write tests that fail today.", depends_on=before),
        Task("implement", description="Make them pass.", depends_on=("write tests",)),
        Task(_CHECK, description="Run all tests, and look at the change.", depends_on=_AFTER),
    ]


_AFTER: Final = ("implement",)


def _each(names: Sequence[str], said: str, before: tuple[str, ...]) -> list[Task]:
    # A part of the name of another task would be there twice.
    names = [name for name in dict.fromkeys(names) if name not in (CLARIFY, _CHECK)]
    kept, rest = names[:_MOST], names[_MOST:]
    parts = [Task(name, description=said.format(name), depends_on=before) for name in kept]
    if rest:
        told = f"Do what concerns the other {len(rest)}."
        parts.append(Task("the rest", description=told, depends_on=before))
    needs = tuple(part.id for part in parts) or before
    check = Task(_CHECK, description="Check that the parts fit together.", depends_on=needs)
    return [*parts, check]
