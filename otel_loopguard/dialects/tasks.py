"""Plans that spans carry, and the tasks that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard.dialects.values import captured, identifier, listing, mapping, parsed, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_loopguard.dialects.view import SpanView

_OPENINFERENCE_CREW: Final = "crew_tasks"
PLAN_KEYS: Final = (semconv.PLAN, _OPENINFERENCE_CREW, "crewai.crew.tasks")
"""Keys of a list of tasks: our own, CrewAI under OpenInference, CrewAI under OpenLLMetry."""

TASK_KEYS: Final = (semconv.TASK, "crewai.task.id", "task_id")
"""Keys of the id of the task that a span is the work of."""

_CHARS: Final = 200_000
_TASKS: Final = 500


def task_of(span: SpanView, keys: tuple[str, ...] = TASK_KEYS) -> str | None:
    """Id of the task that a span is the work of, or None.

    Args:
        span: The span.
        keys: Which keys to look at.
    """
    found = (identifier(span.attributes.get(key)) for key in keys)
    return next((name for name in found if name is not None), None)


def plan_of(span: SpanView) -> tuple[object, ...] | None:
    """The tasks that a span declares, as maps; None without any, and for more than 500.

    CrewAI names what a task needs by the descriptions of the other tasks; they are written as ids.

    Args:
        span: The span.
    """
    for key in PLAN_KEYS:
        written = captured(span, key) if key in span.attributes else None
        if written is None or (isinstance(written, str) and len(written) > _CHARS):
            continue
        plan = parsed(written)
        named = mapping(plan)
        found = listing(plan if named is None else named.get("tasks"))
        if found and len(found) <= _TASKS:
            return _crew(found) if key == _OPENINFERENCE_CREW else tuple(found)
    return None


def plan_above(spans: Iterable[SpanView]) -> tuple[object, ...] | None:
    """The plan of the nearest of these spans that declares one.

    Args:
        spans: Open spans, nearest first.
    """
    return next((plan for span in spans if (plan := plan_of(span)) is not None), None)


def _crew(found: Iterable[object]) -> tuple[object, ...]:
    tasks = [task for each in found if (task := mapping(each)) is not None]
    ids = {text(task.get("description")): task.get("id") for task in tasks}
    return tuple(_crew_task(task, ids) for task in tasks)


def _crew_task(task: Mapping[str, object], ids: Mapping[str | None, object]) -> dict[str, object]:
    context = listing(parsed(task.get("context"))) or ()
    needs = [ids.get(text(each), each) for each in context]
    return {**task, "agent": task.get("agent_role"), "depends_on": needs}
