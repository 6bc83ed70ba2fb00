"""Plans: how they are read, what is wrong with them, groups and phases, complexity."""

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from otel_loopguard import Settings
from otel_loopguard.core.task import Problem, Task, read
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import checked, complexity, groups, independent, phases, validate
from tests.tables import rows

NAMES = "abcdefgh"


@st.composite
def any_plans(draw: st.DrawFn) -> list[Task]:
    """Up to eight tasks with any dependencies: on themselves, in circles, on what there is not."""
    needs = st.lists(st.sampled_from(NAMES), max_size=3, unique=True).map(tuple)
    found = draw(st.dictionaries(st.sampled_from(NAMES), needs, max_size=8))
    return [Task(name, depends_on=on) for name, on in found.items()]


@st.composite
def sound_plans(draw: st.DrawFn) -> list[Task]:
    """Up to thirty tasks in any order, each of which depends on some of those before it."""
    tasks: list[Task] = []
    for number in range(draw(st.integers(0, 30))):
        before = st.sampled_from([task.id for task in tasks] or [""])
        needs = draw(st.lists(before, max_size=4 if tasks else 0))
        priority = draw(st.sampled_from((0.0, 0.5, 1.0)))
        safe = draw(st.sampled_from((None, True, True, False)))
        made = Task(f"t{number}", depends_on=tuple(needs), priority=priority, parallel_safe=safe)
        tasks.append(made)
    return draw(st.permutations(tasks))


MANY = 10_000


def plan(text: str) -> list[Task]:
    """Tasks as `a:bc`: an id, and the ids it depends on, one letter each."""
    parts = [one.partition(":") for one in text.split()]
    return [Task(name, depends_on=tuple(needs)) for name, _, needs in parts]


WORDS = {
    "CIRCLE": "tasks depend on each other in a circle:",
    r"LATE (\w)": r"task '\1' can never start: it waits for",
    "UNKNOWN": "depends on 'x', and there is no such task",
}


@pytest.mark.parametrize("cells", [row.values for row in rows(__file__, "wrong")], ids=str)
def test_what_is_wrong_is_said_in_a_sentence(cells: tuple[str, ...]) -> None:
    """With the ids, and the circle spelled out; a sound plan is given as it is."""
    said = [one for one in cells[1:] if one]
    tasks = plan(cells[0])
    for short, words in WORDS.items():
        said = [re.sub(short, words, one) for one in said]
    assert [problem.message for problem in validate(tasks)] == said
    if not said:
        assert checked(tasks) == tasks


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
    assert isinstance(refused.value, ValueError)
    kinds = [problem.kind for problem in refused.value.problems]
    assert kinds == ["field", "field", "duplicate", "self", "unknown", "cycle"]
    assert str(refused.value).startswith("the plan has 6 problems:\n- task 'a': priority")
    assert "a -> b -> a" in str(refused.value)


def wide(*needs: Callable[[int], int | None]) -> list[Task]:
    """Ten thousand tasks, each with the numbers of those that it depends on."""
    found = [[need(each) for need in needs] for each in range(MANY)]
    return [
        Task(str(each), depends_on=tuple(str(one) for one in on if one is not None))
        for each, on in enumerate(found)
    ]


def test_ten_thousand_tasks_are_validated() -> None:
    """However they hang together, and without recursion; a long circle is cut in the text only."""
    assert validate(wide(lambda each: each - 1 if each else None)) == []
    (circle,) = validate(wide(lambda each: (each + 1) % MANY))
    assert len(circle.tasks) == MANY + 1
    assert "0 -> 1 -> 2" in circle.message
    assert "(9980 more) -> 9999 -> 0" in circle.message
    # Five thousand circles; all behind an unknown task; all on themselves.
    for needs, count in ((1).__xor__, 20), ((-1).__add__, MANY), (int, MANY):
        assert len(validate(wide(needs))) == count
    # A hundred thousand dependencies in one knot: circles without a common task, and the rest.
    knot = wide(*(lambda each, n=n: (each + n) % MANY for n in range(1, 11)))
    kinds = Counter(problem.kind for problem in validate(knot))
    assert 1 <= kinds["cycle"] <= 20
    assert kinds["cycle"] + kinds["unreachable"] == sum(kinds.values()) <= MANY
    tree = wide(lambda each: each // 2 if each else None)
    assert len(groups(tree)) == 15
    assert sum(len(phase) for phase in phases(tree, DEFAULT)) == MANY


@given(any_plans())
def test_it_says_what_a_slow_search_says(tasks: list[Task]) -> None:
    """Each kind of problem is found where trying all ways finds it, and nowhere else."""
    needs = {task.id: set(task.depends_on) for task in tasks}
    problems = validate(tasks)
    unknown = {(name, need) for name, on in needs.items() for need in on - set(needs)}
    selfish = {name for name, on in needs.items() if name in on}
    ways = reach({name: (on & set(needs)) - {name} for name, on in needs.items()})
    circular = {name for name in needs if name in ways[name]}
    circles = told(problems, "cycle")
    broken = {name for name, _ in unknown} | selfish | {name for one in circles for name in one}
    lost = {name for name in needs if ways[name] & broken} - broken
    assert told(problems, "unknown") == {*unknown}
    assert {names[0] for names in told(problems, "self")} == selfish
    assert {names[0] for names in told(problems, "unreachable")} == lost
    assert circular <= broken | lost
    assert bool(circles) is bool(circular)
    for circle in circles:
        assert all(after in needs[before] for before, after in itertools.pairwise(circle))
        assert circle[0] == circle[-1]
        assert len(set(circle)) == len(circle) - 1


def told(problems: list[Problem], kind: str) -> set[tuple[str, ...]]:
    """The tasks of all problems of a kind."""
    return {problem.tasks for problem in problems if problem.kind == kind}


def reach(needs: dict[str, set[str]]) -> dict[str, set[str]]:
    """What each task waits for, directly or by way of others."""
    ways = {name: set(on) for name, on in needs.items()}
    for name in [*needs] * len(needs):
        ways[name] |= {far for near in ways[name] for far in ways[near]}
    return ways


DEFAULT = Settings()


def ids(found: list[list[Task]]) -> list[str]:
    """Each group as the letters of its tasks."""
    return ["".join(task.id for task in group) for group in found]


def test_a_group_is_in_order_of_priority() -> None:
    """Highest first; of equal ones in the order of the plan."""
    tasks = [Task("a"), Task("b", priority=1), Task("c", priority=0.5), Task("d", priority=1)]
    assert ids(groups(tasks)) == ["bdca"]
    assert ids(groups(plan("d:bc b:a c a e:d"))) == ["ca", "b", "d", "e"]


def test_phases_are_cut_and_merged() -> None:
    """Four tasks are two phases; what is left over runs with the next depth, where it may."""
    tasks = plan("a b c d e:a f:d")
    assert ids(phases(tasks)) == ["abc", "de", "f"]
    for most, expected in ((6, ["abcd", "ef"]), (1, list("abcdef"))):
        assert ids(phases(tasks, Settings(tuning={"plans": {"max_parallel": most}}))) == expected
    unsafe = [Task("a"), Task("b", parallel_safe=False), Task("c"), Task("d", parallel_safe=True)]
    assert ids(phases(unsafe)) == ["acd", "b"]


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
    # Merged phases are never more than cut groups, where every task may run beside others.
    safe = [Task(task.id, depends_on=task.depends_on) for task in tasks]
    cut = sum(math.ceil(len(group) / 3) for group in groups(safe))
    assert len(phases(safe, DEFAULT)) <= cut


@pytest.mark.parametrize("make", [groups, phases])
@pytest.mark.parametrize("text", ["a:b b:ax c:c", "a a", "a:x"])
def test_a_plan_that_is_not_sound_has_no_groups(make: Callable[..., object], text: str) -> None:
    """The error has all that is wrong."""
    with pytest.raises(PlanError) as refused:
        make(plan(text))
    assert [*refused.value.problems] == validate(plan(text))


@pytest.mark.parametrize(
    "args", [{"in": "${a.rows}"}, ["x", {"deep": ["see {{ a }}"]}], "$a", {"u": "$a.url"}], ids=str
)
def test_arguments_name_another_call(args: object) -> None:
    """As a reference in a text, or as a whole value; a price or a variable is none."""
    assert not independent([Task("a"), Task("b", args=args)])
    other = {"price": "$a is a text", "cost": "$5", "home": "${HOME}", "n": 2**70}
    assert independent([Task("a"), Task("b", args=other)])
    free = [independent(plan(text)) for text in ("", "a b", "a b:a", "a:x b:x")]
    assert free == [True, True, False, True]


def place(found: list[list[Task]]) -> dict[str, int]:
    """Number of the group of each task."""
    placed = [(task.id, number) for number, group in enumerate(found) for task in group]
    assert len(placed) == len(dict(placed))
    return dict(placed)


def test_a_plan_worked_out_by_hand() -> None:
    """.3 x 3/30 + .25 x 2/10 + .2 x 2 x .1 + .15 x .5 + .1 x (mean deviation / mean)."""
    tasks = [
        Task("a", tool="read", priority=0.5, estimate_ms=1000),
        Task("b", tool="write", depends_on=("a",), estimate_ms=3000),
        Task("c", tool="read", depends_on=("b",), priority=0.25),
    ]
    found = complexity(tasks)
    assert (found.count, found.tools, found.dependencies) == pytest.approx((0.1, 0.2, 0.2))
    assert (found.priorities, found.durations) == pytest.approx((0.5, 0.5))
    assert found.score == pytest.approx(0.03 + 0.05 + 0.04 + 0.075 + 0.05)


def test_every_part_is_capped() -> None:
    """The highest score is 1; nothing is divided by zero, and an agent stands for a tool."""
    names = [str(each) for each in range(40)]
    tasks = [
        Task(name, tool=name, depends_on=tuple(names[:each]), priority=each, estimate_ms=each**9)
        for each, name in enumerate(names)
    ]
    found = complexity(tasks)
    assert (found.score, found.count, found.tools, found.dependencies) == (1, 1, 1, 1)
    assert (found.priorities, found.durations) == (1, 1)
    small = [[], [Task("a")], [Task(each, estimate_ms=0) for each in "ab"]]
    small += [[Task("a", agent="x"), Task("b", agent="y")]]
    assert [complexity(each).score for each in small] == pytest.approx([0, 0.01, 0.02, 0.07])


READ = Task("b", "web_search", "reader", {"q": "x"}, ("a",), 1.0, 3000.0, False, "look it up", True)
FIELDS: dict[str, Any] = {**dataclasses.asdict(READ), "depends_on": ["a"], "priority": "high"}
# A task as an application may have it, with a field that nobody reads.
Model = create_model("Model", owner=(str, "nobody"), **dict.fromkeys(FIELDS, (Any, None)))
Plain = dataclasses.make_dataclass("Plain", list(FIELDS))


@pytest.mark.parametrize(
    "item",
    [FIELDS, Model(**FIELDS), Plain(**FIELDS), READ],
    ids=["map", "pydantic model", "dataclass", "task"],
)
def test_a_task_is_read_from_what_it_is(item: object) -> None:
    """Whatever it is written as, the task is the same."""
    assert read([item]) == ([READ], [])
    assert checked({"tasks": [Task("a"), item], "title": "t"}) == [Task("a"), READ]


@pytest.mark.parametrize("name", ["depends_on", "dependencies", "needs"])
@pytest.mark.parametrize("needs", [["1", "2"], (1, 2), {"1": 0, "2": 0}, ["1", 2, "1"]], ids=str)
def test_names_and_numbers_of_dependencies(name: str, needs: object) -> None:
    """Models write numbers, and other words for `depends_on`."""
    tasks, problems = read([{"id": 3, name: needs}])
    assert problems == []
    assert (tasks[0].id, tasks[0].depends_on) == ("3", ("1", "2"))


@pytest.mark.parametrize(("name", "value", "said"), rows(__file__, "fields"))
def test_a_wrong_field_is_a_problem_and_the_task_stays(name: str, value: str, said: str) -> None:
    """So that the rest of the plan is looked at all the same."""
    tasks, (problem,) = read([{"id": "a", name: eval(value)}])
    assert [task.id for task in tasks] == ["a"]
    assert problem.kind == "field"
    assert problem.message.startswith("task 'a': ")
    assert name in problem.message
    assert said in problem.message


@pytest.mark.parametrize(
    ("name", "value"),
    [("owner", "nobody"), ("tools", ["search", "read"]), ("prioritise", True), (5, 5)],
    ids=str,
)
def test_what_is_no_field_is_passed_over(name: object, value: object) -> None:
    """Of an application, or like a field but with what it never has; or the field is there too."""
    assert read([{"id": "a", name: value}])[1] == []
    both = {"id": "a", "tool": "search", "tools": "search", "needs": [], "depends": ["b"]}
    assert read([both])[1] == []


NO_TASKS = [{}, {"id": ""}, {"id": None}, {"id": True}, {"id": 10**5000}, "a", 5, None, Task]


@pytest.mark.parametrize("item", NO_TASKS, ids=range(9))
def test_what_has_no_id_is_no_task(item: object) -> None:
    """It is named by its number."""
    tasks, (problem,) = read([{"id": "a"}, item])
    assert [task.id for task in tasks] == ["a"]
    assert problem.message.startswith("task number 2: expected ")


NO_LISTS = [("a, b", "'a, b'"), (b"a", "a bytes"), (5, "5"), (None, "None")]
NO_LISTS += [({"plan": []}, "a map without 'tasks'"), ({"tasks": 5}, "5")]


@pytest.mark.parametrize(("plan", "got"), NO_LISTS)
def test_what_is_no_list_is_no_plan(plan: object, got: str) -> None:
    """The error names what was passed instead."""
    with pytest.raises(PlanError, match=f"expected a list of tasks, got {got}"):
        checked(plan)
