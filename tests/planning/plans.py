"""Plans for tests, drawn at random."""

from __future__ import annotations

from hypothesis import strategies as st

from otel_loopguard.core.task import Task

NAMES = "abcdefgh"


@st.composite
def any_plans(draw: st.DrawFn) -> list[Task]:
    """Up to eight tasks with any dependencies: on themselves, in circles, on what there is not."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=8, unique=True))
    needs = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
    return [Task(name, depends_on=tuple(draw(needs))) for name in names]


@st.composite
def sound_plans(draw: st.DrawFn) -> list[Task]:
    """Up to thirty tasks in any order, each of which depends on some of those before it."""
    count = draw(st.integers(0, 30))
    tasks: list[Task] = []
    for number in range(count):
        before = [task.id for task in tasks]
        needs = draw(st.lists(st.sampled_from(before), max_size=4)) if before else []
        priority = draw(st.sampled_from((0.0, 0.5, 1.0)))
        safe = draw(st.sampled_from((None, True, True, False)))
        tasks.append(
            Task(
                f"t{number}", depends_on=tuple(needs), priority=priority, parallel_safe=safe
            )
        )  # fmt: skip
    return draw(st.permutations(tasks))
