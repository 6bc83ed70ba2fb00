"""Tasks are read from what people write."""

import dataclasses
from typing import Any

import pytest
from pydantic import create_model

from otel_loopguard.core.task import Task, read
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import checked

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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("priority", "soon", "is a number, or low, medium or high"),
        ("priority", float("nan"), "is a number"),
        ("estimate_ms", -1, "is a number of milliseconds from 0 on"),
        ("estimate_ms", True, "is a number"),
        ("estimate_ms", 10**5000, "is a number of milliseconds from 0 on, got a very large number"),
        ("parallel_safe", "yes", "is true or false, got 'yes'"),
        ("depends_on", [None], "is a list of ids, got None"),
        ("depends_on", 1.5, "is a list of ids, got 1.5"),
        ("tool", ["x"], "is a text, got a list"),
    ],
    ids=range(9),
)
def test_a_wrong_field_is_a_problem_and_the_task_stays(name: str, value: object, said: str) -> None:
    """So that the rest of the plan is looked at all the same."""
    tasks, (problem,) = read([{"id": "a", name: value}])
    assert [task.id for task in tasks] == ["a"]
    assert problem.kind == "field"
    assert problem.message.startswith(f"task 'a': {name} {said}")


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
