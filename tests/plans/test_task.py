"""Tasks are read from what people write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from otel_loopguard.core.task import Task, read
from otel_loopguard.errors import PlanError
from otel_loopguard.plans import checked

FIELDS: dict[str, Any] = {
    "id": "b",
    "tool": "web_search",
    "agent": "reader",
    "args": {"q": "x"},
    "depends_on": ["a"],
    "priority": "high",
    "estimate_ms": 3000,
    "parallel_safe": False,
    "description": "look it up",
    "optional": True,
}
READ = Task(
    "b", "web_search", "reader", {"q": "x"}, ("a",), 1.0, 3000.0, False, "look it up", True
)  # fmt: skip


class Model(BaseModel):
    """A task as an application may have it."""

    id: str
    tool: str | None = None
    agent: str | None = None
    args: Any = None
    depends_on: list[str] = []
    priority: float | str = 0
    estimate_ms: float | None = None
    parallel_safe: bool | None = None
    description: str = ""
    optional: bool = False
    owner: str = "nobody reads this"


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
    ("item", "said"),
    [
        ({"id": "a", "priority": "soon"}, "priority is a number, or low, medium or high"),
        ({"id": "a", "priority": float("nan")}, "priority is a number"),
        ({"id": "a", "estimate_ms": -1}, "estimate_ms is a number of milliseconds from 0 on"),
        ({"id": "a", "estimate_ms": True}, "estimate_ms is a number"),
        ({"id": "a", "estimate_ms": 10**5000}, "got a very large number"),
        ({"id": "a", "parallel_safe": "yes"}, "parallel_safe is true or false, got 'yes'"),
        ({"id": "a", "depends_on": [None]}, "depends_on is a list of ids, got None"),
        ({"id": "a", "depends_on": 1.5}, "depends_on is a list of ids, got 1.5"),
        ({"id": "a", "tool": ["x"]}, "tool is a text, got a list"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_wrong_field_is_a_problem_and_the_task_stays(item: object, said: str) -> None:
    """So that the rest of the plan is looked at all the same."""
    tasks, problems = read([item])
    assert [task.id for task in tasks] == ["a"]
    assert [problem.kind for problem in problems] == ["field"]
    assert problems[0].message.startswith("task 'a': ")
    assert said in problems[0].message


@pytest.mark.parametrize(
    "item", [{}, {"id": ""}, {"id": None}, {"id": True}, {"id": 10**5000}, "a", 5, None, Task],
    ids=lambda item: f"{type(item).__name__}",
)  # fmt: skip
def test_what_has_no_id_is_no_task(item: object) -> None:
    """It is named by its number."""
    tasks, problems = read([{"id": "a"}, item])
    assert [task.id for task in tasks] == ["a"]
    assert len(problems) == 1
    assert problems[0].message.startswith("task number 2: expected ")


@pytest.mark.parametrize(
    ("plan", "got"),
    [
        ("a, b", "'a, b'"),
        (b"a", "a bytes"),
        (5, "5"),
        (None, "None"),
        ({"plan": []}, "a map without 'tasks'"),
        ({"tasks": 5}, "5"),
    ],
    ids=repr,
)
def test_what_is_no_list_is_no_plan(plan: object, got: str) -> None:
    """The error names what was passed instead."""
    with pytest.raises(PlanError, match=f"expected a list of tasks, got {got}"):
        checked(plan)
