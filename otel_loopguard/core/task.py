"""A task of a plan, and how it is read from what people write."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Final, Literal, cast

from otel_loopguard._util.values import dataclass

_NEEDS: Final = ("depends_on", "dependencies", "needs")
_WORDS: Final = {"low": 0.0, "medium": 0.5, "normal": 0.5, "high": 1.0, "critical": 1.0}
_SHOWN: Final = 60
"""Characters of a value that is quoted in a problem."""
_ENDLESS: Final = 1e300
"""Numbers from here on are not read: their sums may be infinite."""


ProblemKind = Literal["field", "duplicate", "self", "unknown", "cycle", "unreachable"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a plan.

    Attributes:
        kind: `field` (something cannot be read), `duplicate` (an id is there twice), `self` (a task
            depends on itself), `unknown` (it depends on what is not in the plan), `cycle`, or
            `unreachable` (it waits for a task with one of those problems).
        tasks: Ids concerned; of a cycle all of them in order, the first one again at the end.
        message: What is wrong, in a sentence.
    """

    kind: ProblemKind
    tasks: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a plan.

    Attributes:
        id: Its id, unique in the plan.
        tool: Tool that it calls; None if that is not known.
        agent: Agent that does it; None if that is not known.
        args: Arguments of the call, any value.
        depends_on: Ids of the tasks that have to be done before.
        priority: The higher, the earlier among those that could run at once. 0 to 1 for the words
            `low`, `medium` and `high`; any number else.
        estimate_ms: How long it is expected to take, milliseconds; None if that is not known.
        parallel_safe: Whether it may run beside others; None if nobody said so.
        description: What is to be done, for people.
        optional: Whether the plan may succeed without it, and what needs it may start, if not
            everything that it needs failed.
    """

    id: str
    tool: str | None = None
    agent: str | None = None
    args: object = None
    depends_on: tuple[str, ...] = ()
    priority: float = 0.0
    estimate_ms: float | None = None
    parallel_safe: bool | None = None
    description: str = ""
    optional: bool = False


def read(plan: object) -> tuple[list[Task], list[Problem]]:
    """Reads a plan.

    Args:
        plan: Tasks, maps, dataclasses or pydantic models with the names of `Task`; `dependencies`
            and `needs` are read as `depends_on`, numbers as ids. Other names are passed over. A map
            with a list `tasks` stands for that list.

    Returns:
        The tasks that can be read, and what cannot. A wrong field is a problem, and the task has
        its default there; what has no id is no task.
    """
    found = (
        cast("Mapping[object, object]", plan).get("tasks") if isinstance(plan, Mapping) else plan
    )
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        lacks = found is None and found is not plan
        got = "a map without 'tasks'" if lacks else _shown(found)
        return [], [Problem("field", (), f"expected a list of tasks, got {got}")]
    tasks: list[Task] = []
    problems: list[Problem] = []
    for number, item in enumerate(cast("Iterable[object]", found), 1):
        task = item if type(item) is Task else _Reader(number, problems).task(item)
        if task is not None:
            tasks.append(task)
    return tasks, problems


class _Reader:
    """Reads one task; notes what it cannot read."""

    __slots__ = ("_id", "_number", "_problems")

    def __init__(self, number: int, problems: list[Problem]) -> None:
        self._number = number
        self._problems = problems
        self._id = ""

    def task(self, item: object) -> Task | None:
        fields = _fields_of(item)
        if fields is None:
            return self._wrong("expected a map, a dataclass or a pydantic model", item)
        identity = _id(fields.get("id"))
        if identity is None:
            return self._wrong("expected an id, a text that is not empty", fields.get("id"))
        self._id = identity
        return Task(
            identity,
            self._text(fields, "tool"),
            self._text(fields, "agent"),
            fields.get("args"),
            self._needs(fields),
            self._priority(fields.get("priority")),
            self._estimate(fields.get("estimate_ms")),
            self._flag(fields, "parallel_safe"),
            self._text(fields, "description") or "",
            self._flag(fields, "optional") or False,
        )

    def _wrong(self, expected: str, value: object) -> None:
        where = f"task {self._id!r}" if self._id else f"task number {self._number}"
        named = (self._id,) if self._id else ()
        self._problems.append(Problem("field", named, f"{where}: {expected}, got {_shown(value)}"))

    def _text(self, fields: Mapping[str, object], name: str) -> str | None:
        value = fields.get(name)
        if value is None or isinstance(value, str):
            return value or None
        return self._wrong(f"{name} is a text", value)

    def _flag(self, fields: Mapping[str, object], name: str) -> bool | None:
        value = fields.get(name)
        if value is None or isinstance(value, bool):
            return value
        return self._wrong(f"{name} is true or false", value)

    def _needs(self, fields: Mapping[str, object]) -> tuple[str, ...]:
        value = next((fields[name] for name in _NEEDS if fields.get(name) is not None), ())
        if isinstance(value, (str, int)):
            value = (value,)
        if not isinstance(value, Iterable):
            self._wrong("depends_on is a list of ids", value)
            return ()
        found: dict[str, None] = {}
        for each in cast("Iterable[object]", value):
            identity = _id(each)
            if identity is None:
                self._wrong("depends_on is a list of ids", each)
            else:
                found[identity] = None
        return tuple(found)

    def _priority(self, value: object) -> float:
        if isinstance(value, str):
            value = _WORDS.get(value.lower(), value)
        if value is None or _is_number(value):
            return float(cast("float", value or 0.0))
        self._wrong("priority is a number, or low, medium or high", value)
        return 0.0

    def _estimate(self, value: object) -> float | None:
        if value is None or (_is_number(value) and cast("float", value) >= 0):
            return None if value is None else float(cast("float", value))
        return self._wrong("estimate_ms is a number of milliseconds from 0 on", value)


def _fields_of(item: object) -> Mapping[str, object] | None:
    if isinstance(item, Mapping):
        return cast("Mapping[str, object]", item)
    model: object = getattr(type(item), "model_fields", None)  # pydantic's, which is not imported
    if isinstance(model, dict):
        return {name: getattr(item, name) for name in cast("dict[str, object]", model)}
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    return None


def _id(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 129 else None
    return value if isinstance(value, str) and value else None


def _is_number(value: object) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    # Not `isfinite`: an integer may be larger than any float.
    return abs(value) < _ENDLESS


def _shown(value: object) -> str:
    """A value for a message; of a large one only its type, for its text may be endless."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a very large number"
    if isinstance(value, (str, int, float, bool, type(None))):
        text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return f"a {type(value).__name__}"
