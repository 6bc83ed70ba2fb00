"""What runs side by side."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from otel_loopguard import Settings
from otel_loopguard.core.task import Task
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import groups, independent, phases
from tests.planning.plans import sound_plans
from tests.planning.test_validation import MANY, plan

DEFAULT = Settings()


def ids(found: list[list[Task]]) -> list[str]:
    """Each group as the letters of its tasks."""
    return ["".join(task.id for task in group) for group in found]


def test_groups_go_by_depth() -> None:
    """A task is in the group after the last of its dependencies."""
    assert ids(groups(plan(d="bc", b="a", c="", a="", e="d"))) == ["ca", "b", "d", "e"]


def test_a_group_is_in_order_of_priority() -> None:
    """Highest first; of equal ones in the order of the plan."""
    tasks = [Task("a"), Task("b", priority=1), Task("c", priority=0.5), Task("d", priority=1)]
    assert ids(groups(tasks)) == ["bdca"]


def test_phases_are_cut_and_merged() -> None:
    """Four tasks are two phases; what is left over runs with the next depth, where it may."""
    tasks = plan(a="", b="", c="", d="", e="a", f="d")
    assert ids(phases(tasks)) == ["abc", "de", "f"]
    assert ids(phases(tasks, Settings(plan_max_parallel=6))) == ["abcd", "ef"]
    assert ids(phases(tasks, Settings(plan_max_parallel=1))) == list("abcdef")


def test_a_task_that_is_not_safe_runs_alone() -> None:
    """And one that nobody spoke of does, if that is wanted."""
    tasks = [Task("a"), Task("b", parallel_safe=False), Task("c"), Task("d", parallel_safe=True)]
    assert ids(phases(tasks)) == ["acd", "b"]
    careful = Settings(plan_assume_safe=False)
    assert ids(phases([*tasks, Task("e", parallel_safe=True)], careful)) == ["a", "b", "c", "de"]


@given(sound_plans())
def test_no_task_is_lost_and_none_comes_before_its_dependencies(tasks: list[Task]) -> None:
    """In groups, each at the depth of its longest way; in phases, each as soon as there is room."""
    levels, runs = groups(tasks), phases(tasks, DEFAULT)
    depth = place(levels)
    for found in (depth, place(runs)):
        assert sorted(found) == sorted(task.id for task in tasks)
        assert all(found[task.id] > found[need] for task in tasks for need in task.depends_on)
    for task in tasks:
        assert depth[task.id] == max((depth[need] + 1 for need in task.depends_on), default=0)
    for phase in runs:
        assert 0 < len(phase) <= 3
        assert len(phase) == 1 or all(task.parallel_safe is not False for task in phase)


@given(sound_plans())
def test_merged_phases_are_never_more_than_cut_groups(tasks: list[Task]) -> None:
    """Where every task may run beside others."""
    safe = [Task(task.id, depends_on=task.depends_on) for task in tasks]
    cut = sum(math.ceil(len(group) / 3) for group in groups(safe))
    assert len(phases(safe, DEFAULT)) <= cut


@pytest.mark.parametrize("make", [groups, phases])
def test_a_plan_that_is_not_sound_has_no_groups(make: object) -> None:
    """The error has all that is wrong."""
    assert callable(make)
    for tasks in (plan(a="b", b="ax", c="c"), [Task("a"), Task("a")], plan(a="x")):
        with pytest.raises(PlanError) as refused:
            make(tasks)
        assert refused.value.problems


def test_ten_thousand_tasks_are_grouped() -> None:
    """In a tree, with phases."""
    tasks = [Task(str(each), depends_on=(str(each // 2),) if each else ()) for each in range(MANY)]
    assert len(groups(tasks)) == 15
    assert sum(len(phase) for phase in phases(tasks, DEFAULT)) == MANY


@pytest.mark.parametrize(
    ("tasks", "free"),
    [
        ([], True),
        (plan(a="", b=""), True),
        (plan(a="", b="a"), False),
        (plan(a="x", b="x"), True),
        ([Task("a"), Task("b", args={"in": "${a.rows}"})], False),
        ([Task("a"), Task("b", args=["x", {"deep": ["see {{ a }}"]}])], False),
        ([Task("a"), Task("b", args="$a")], False),
        ([Task("a"), Task("b", args={"price": "$a is a text"})], True),
        ([Task("a"), Task("b", args={"home": "${HOME}"})], True),
    ],
    ids=["nothing", "free", "named", "outside", "dollar", "braces", "whole", "in a text", "other"],
)
def test_calls_that_need_each_other_are_told(tasks: list[Task], free: bool) -> None:
    """By their dependencies, and by arguments that name another call."""
    assert independent(tasks) is free


def place(found: list[list[Task]]) -> dict[str, int]:
    """Number of the group of each task."""
    placed = [(task.id, number) for number, group in enumerate(found) for task in group]
    assert len(placed) == len(dict(placed))
    return dict(placed)
