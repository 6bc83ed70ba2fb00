"""Everything that is wrong with a plan is said at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given

from otel_loopguard.core.task import Problem, Task
from otel_loopguard.errors import LoopGuardError, PlanError
from otel_loopguard.plans import checked, validate
from tests.planning.plans import any_plans

MANY = 10_000


def plan(**needs: str) -> list[Task]:
    """Tasks by id, each with the ids it depends on, one letter each."""
    return [Task(name, depends_on=tuple(on)) for name, on in needs.items()]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        (plan(a="a"), ["task 'a' depends on itself"]),
        (plan(a="x"), ["task 'a' depends on 'x', and there is no such task"]),
        ([Task("a"), Task("a"), Task("a")], ["there are 3 tasks with the id 'a'"]),
        (
            plan(a="b", b="c", c="a"),
            ["tasks depend on each other in a circle: a -> b -> c -> a"],
        ),
        (
            plan(a="b", b="ac", c="d", d="c"),
            [
                "tasks depend on each other in a circle: a -> b -> a",
                "tasks depend on each other in a circle: c -> d -> c",
            ],
        ),
        (
            plan(a="b", b="ac", c="b"),
            [("tasks depend on each other in a circle: a -> b -> a; "
             "1 more wait for each other with them")],
        ),
        (
            plan(a="x", b="a", c="b"),
            [
                "task 'a' depends on 'x', and there is no such task",
                ("task 'b' can never start: it waits for 'a', which depends on 'x', and there is "
                "no such task"),
                ("task 'c' can never start: it waits for 'a', which depends on 'x', and there is "
                "no such task"),
            ],
        ),
        (
            plan(a="b", b="a", c="a"),
            [
                "tasks depend on each other in a circle: a -> b -> a",
                "task 'c' can never start: it waits for 'a', which is in the circle a -> b -> a",
            ],
        ),
        (
            plan(a="a", b="a"),
            [
                "task 'a' depends on itself",
                "task 'b' can never start: it waits for 'a', which depends on itself",
            ],
        ),
    ],
    ids=["self", "unknown", "duplicate", "circle", "two circles", "wide circle",
         "after an unknown", "after a circle", "after a self"],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(tasks: list[Task], said: list[str]) -> None:
    """With the ids, and the circle spelled out."""
    assert [problem.message for problem in validate(tasks)] == said


def test_all_of_it_is_in_the_error() -> None:
    """Fields, duplicates, unknown ones, circles: one look at the error is enough."""
    wrong = [
        {"id": "a", "depends_on": ["b"], "priority": "soon"},
        {"id": "b", "depends_on": ["a", "nowhere"]},
        {"id": "c", "depends_on": ["c"]},
        {"id": "c"},
        {"name": "no id"},
    ]
    with pytest.raises(PlanError) as refused:
        checked(wrong)
    kinds = [problem.kind for problem in refused.value.problems]
    assert kinds == ["field", "field", "duplicate", "self", "unknown", "cycle"]
    assert str(refused.value).startswith("the plan has 6 problems:\n- task 'a': priority")
    assert "a -> b -> a" in str(refused.value)
    assert isinstance(refused.value, LoopGuardError)
    assert isinstance(refused.value, ValueError)


def test_a_sound_plan_is_given_as_it_is() -> None:
    """In its order."""
    tasks = plan(b="a", a="", c="ab")
    assert validate(tasks) == []
    assert checked(tasks) == tasks


def test_a_long_circle_is_cut_in_the_text_only() -> None:
    """The problem has all of its tasks."""
    tasks = [Task(str(each), depends_on=(str((each + 1) % MANY),)) for each in range(MANY)]
    (problem,) = validate(tasks)
    assert len(problem.tasks) == MANY + 1
    assert problem.tasks[0] == problem.tasks[-1] == "0"
    assert "0 -> 1 -> 2" in problem.message
    assert "(9980 more) -> 9999 -> 0" in problem.message


@pytest.mark.parametrize(
    ("needs", "found"),
    [
        (lambda each: each - 1 if each else None, 0),
        (lambda each: (each + 1) % MANY, 1),
        (lambda each: each ^ 1, MANY // 2),
        (lambda each: each - 1, MANY),
        (lambda each: each, MANY),
    ],
    ids=["chain", "one circle", "5,000 circles", "all behind an unknown", "all on themselves"],
)
def test_ten_thousand_tasks_are_validated(needs: object, found: int) -> None:
    """However they hang together, and without recursion."""
    assert callable(needs)
    tasks = [
        Task(str(each), depends_on=() if needs(each) is None else (str(needs(each)),))
        for each in range(MANY)
    ]
    problems = validate(tasks)
    assert len(problems) == found


def test_many_dependencies_are_validated() -> None:
    """A hundred thousand of them, all in one knot."""
    tasks = [
        Task(str(each), depends_on=tuple(str((each + far) % MANY) for far in range(1, 11)))
        for each in range(MANY)
    ]
    (problem,) = validate(tasks)
    assert problem.kind == "cycle"


@given(any_plans())
def test_it_says_what_a_slow_search_says(tasks: list[Task]) -> None:
    """Each kind of problem is found where trying all ways finds it, and nowhere else."""
    needs = {task.id: set(task.depends_on) for task in tasks}
    problems = validate(tasks)
    unknown = {(name, need) for name, on in needs.items() for need in on - set(needs)}
    selfish = {name for name, on in needs.items() if name in on}
    ways = reach({name: (on & set(needs)) - {name} for name, on in needs.items()})
    circular = {name for name in needs if name in ways[name]}
    broken = {name for name, _ in unknown} | selfish | circular
    lost = {name for name in needs if ways[name] & broken} - broken
    assert told(problems, "unknown") == {*unknown}
    assert {names[0] for names in told(problems, "self")} == selfish
    assert {names[0] for names in told(problems, "unreachable")} == lost
    knots = {frozenset(each for each in ways[name] if name in ways[each]) for name in circular}
    circles = told(problems, "cycle")
    assert len(circles) == len(knots)
    for circle in circles:
        assert all(after in needs[before] for before, after in itertools.pairwise(circle))
        assert circle[0] == circle[-1]
        assert any(set(circle) <= knot for knot in knots)
        assert len(set(circle)) == len(circle) - 1


def told(problems: list[Problem], kind: str) -> set[tuple[str, ...]]:
    """The tasks of all problems of a kind."""
    return {problem.tasks for problem in problems if problem.kind == kind}


def reach(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """What each task waits for, directly or by way of others."""
    ways = {name: set(on) for name, on in needs.items()}
    for _ in needs:
        for name in needs:
            ways[name] |= {far for near in ways[name] for far in ways[near]}
    return ways
