"""The tasks of a plan: how they are read from what people write, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any, Final, Literal, cast

from otel_loopguard._util.text import check_number

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

    Raises:
        TypeError: Its priority or estimate is no number.
        ValueError: Its estimate is below 0.

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

    def __post_init__(self) -> None:
        check_number("priority", self.priority)
        if self.estimate_ms is not None:
            check_number("estimate_ms", self.estimate_ms, 0)


def read(plan: object) -> tuple[list[Task], list[Problem]]:
    """Reads a plan.

    Args:
        plan: Tasks, maps, dataclasses or pydantic models with the names of `Task`; `dependencies`
            and `needs` are read as `depends_on`, numbers as ids. Other names are passed over, but
            in a map one that is like the name of a field that is missing there, with a value for
            it. A map with a list `tasks` stands for that list.

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
        task = item if type(item) is Task else _task(item, number, problems)
        if task is not None:
            tasks.append(task)
    return tasks, problems


def _task(item: object, number: int, problems: list[Problem]) -> Task | None:
    """Reads one task; notes what cannot be read."""
    fields = _fields_of(item)
    name = None if fields is None else _id(fields.get("id"))
    if fields is None or name is None:
        expected, got = "a map, a dataclass or a pydantic model", item
        if fields is not None:
            expected, got = "an id, a non-empty string", fields.get("id")
        message = f"task number {number}: expected {expected}, got {_shown(got)}"
        problems.append(Problem("field", (), message))
        return None
    found: dict[str, Any] = {}
    for field, (decode, expected) in _FIELDS.items():
        spelled = _NEEDS if field == "depends_on" else (field,)
        value = next((fields[each] for each in spelled if fields.get(each) is not None), None)
        if value is None or (isinstance(value, str) and not value):
            continue
        try:
            found[field] = decode(value)
        except TypeError as error:
            message = f"task {name!r}: {field} is {expected}, got {_shown(error.args[0])}"
            problems.append(Problem("field", (name,), message))
    if isinstance(item, Mapping):
        for meant, written in _misspelt(fields):
            message = f"task {name!r}: there is no field {written!r}: is {meant!r} meant?"
            problems.append(Problem("field", (name,), message))
    return Task(name, args=fields.get("args"), **found)


def _misspelt(fields: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Fields that are missing, and the name under which each seems to stand, with such a value."""
    for written in islice(cast("Iterable[object]", fields), _NAMES):
        if not isinstance(written, str) or len(written) > _LONGEST or written in _KNOWN:
            continue
        for meant in get_close_matches(written, _KNOWN, 1, _ALIKE):
            spelled = _NEEDS if meant in _NEEDS else (meant,)
            if any(each in fields for each in spelled):
                continue
            with suppress(TypeError):
                if spelled[0] in _FIELDS:
                    _FIELDS[spelled[0]][0](fields[written])
                yield meant, written


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _needs(value: object) -> tuple[str, ...]:
    if not isinstance(value, Iterable) or isinstance(value, str):
        value = (value,)
    found: dict[str, None] = {}
    for each in cast("Iterable[object]", value):
        name = _id(each)
        if name is None:
            raise TypeError(each)
        found[name] = None
    return tuple(found)


def _number(value: object) -> float:
    # Not `isfinite`: an integer may be larger than any float.
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < _ENDLESS:
        raise TypeError(value)
    return float(value)


def _priority(value: object) -> float:
    return _number(_WORDS.get(value.lower(), value) if isinstance(value, str) else value)


def _estimate(value: object) -> float:
    if (number := _number(value)) < 0:
        raise TypeError(value)
    return number


_FIELDS: Final[Mapping[str, tuple[Callable[[object], object], str]]] = {
    "tool": (_text, "a string"),
    "agent": (_text, "a string"),
    "depends_on": (_needs, "a list of ids"),
    "priority": (_priority, "a number, or low, medium or high"),
    "estimate_ms": (_estimate, "a number of milliseconds, 0 or more"),
    "parallel_safe": (_flag, "true or false"),
    "description": (_text, "a string"),
    "optional": (_flag, "true or false"),
}
"""Readers of the fields of a task, and what each field is."""
_KNOWN: Final = ("id", "args", *_NEEDS, *_FIELDS)
_ALIKE: Final = 0.8
"""Of the letters of a misspelt name, as with `depends` for `depends_on`."""
_NAMES: Final = 50
_LONGEST: Final = 30
"""Fields of a task that are looked at, and letters of each: comparing takes the square of them."""


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


def _shown(value: object) -> str:
    """A value for a message; of a large one only its type, for its text may be endless."""
    if isinstance(value, int) and value.bit_length() > 128:
        return "a very large number"
    if isinstance(value, (str, int, float, bool, type(None))):
        text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
    return f"a {type(value).__name__}"


# Tasks of a circle that are spelled out, and circles that are: who mends those sees the rest. Each
# circle takes time linear in the size of the plan.
_SPELLED: Final = 20
_CYCLES: Final = 20


def validate(tasks: Iterable[Task]) -> list[Problem]:
    """The faults in the ids and dependencies of a plan, in time linear in its size.

    Of circles of tasks that depend on each other up to 20 are spelled out, none of which share a
    task. Of tasks with the same id the first counts.

    Args:
        tasks: The tasks.

    Returns:
        The problems: duplicates, dependencies on themselves, unknown ones, circles, and then what
        can never start because of those. Empty if the plan is sound.
    """
    known: dict[str, Task] = {}
    times: Counter[str] = Counter()
    for task in tasks:
        times[task.id] += 1
        known.setdefault(task.id, task)
    problems = [
        Problem("duplicate", (name,), f"there are {count} tasks with the id {name!r}")
        for name, count in times.items()
        if count > 1
    ]
    own = [name for name, task in known.items() if name in task.depends_on]
    problems += [Problem("self", (name,), f"task {name!r} depends on itself") for name in own]
    broken = dict.fromkeys(own, "which depends on itself")
    for name, task in known.items():
        for each in dict.fromkeys(task.depends_on):
            if each not in known:
                why = f"depends on {each!r}, and there is no such task"
                broken.setdefault(name, f"which {why}")
                problems.append(Problem("unknown", (name, each), f"task {name!r} {why}"))
    waits = {
        name: [each for each in dict.fromkeys(task.depends_on) if each in known and each != name]
        for name, task in known.items()
    }
    followers: dict[str, list[str]] = {name: [] for name in known}
    for name, before in waits.items():
        for each in before:
            followers[each].append(name)
    problems += _cycles(waits, broken)
    problems += _unreachable(followers, broken)
    return problems


def _cycles(needs: Mapping[str, Sequence[str]], broken: dict[str, str]) -> Iterator[Problem]:
    """One circle after the other, each without the tasks of those before."""
    left = dict(needs)
    for _ in range(_CYCLES):
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            cycle: list[str] = error.args[1][::-1]
        else:
            return
        path = cycle
        if len(cycle) > _SPELLED + 1:
            path = [*cycle[: _SPELLED - 1], f"({len(cycle) - _SPELLED - 1} more)", *cycle[-2:]]
        shown = " -> ".join(path)
        message = f"tasks depend on each other in a circle: {shown}"
        yield Problem("cycle", tuple(cycle), message)
        for name in cycle:
            broken.setdefault(name, f"which is in the circle {shown}")
        gone = set(cycle)
        left = {
            name: [each for each in before if each not in gone]
            for name, before in left.items()
            if name not in gone
        }


def _unreachable(
    followers: Mapping[str, Sequence[str]], broken: Mapping[str, str]
) -> Iterator[Problem]:
    """Tasks that wait for a broken task, directly or through others."""
    root = {name: name for name in broken}
    queue = list(broken)
    for name in queue:
        for follower in followers[name]:
            if follower in root:
                continue
            cause = root[follower] = root[name]
            queue.append(follower)
            message = f"task {follower!r} can never start: it waits for {cause!r}, {broken[cause]}"
            yield Problem("unreachable", (follower, cause), message)
