"""Plans that models write, and how many of their tasks are done."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard._util.fields import mapping, sequence
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import Plan
from otel_loopguard.core.progress import Reached
from otel_loopguard.core.task import read
from otel_loopguard.evidence.model_text import look_of, speaker_of
from otel_loopguard.evidence.normalize import NAMED, canonical, key_of, text_bytes
from otel_loopguard.evidence.outcomes import prepare
from otel_loopguard.evidence.vocabulary import WORDS, pattern_of
from otel_loopguard.plans import follow, validate

if TYPE_CHECKING:
    from otel_loopguard.core.progress import Progress
    from otel_loopguard.settings import Settings

_MODEL: Final = Kind.MODEL
_LINES: Final = 300
"""Lines of a text in which a plan is looked for: all of what is looked at, as a rule."""
_ITEMS: Final = 100
"""Tasks of a plan that count: longer lists are data."""
_FEW: Final = 2
"""Tasks that make a plan."""
_ITEM: Final = re.compile(
    r"[ \t]{0,12}(?:[-*+]|\d{1,3}[.)])[ \t]{1,4}(?:\[(?P<box>[ xX~-]?)\][ \t]{1,4})?(?P<task>\S.*)"
)
_HEADING: Final = re.compile(pattern_of("plan"))
_DONE: Final = re.compile(pattern_of("done"))
_PLAIN: Final = re.compile(r"[^\W_]+")
_TOOL: Final = re.compile(pattern_of("keeps plans"))
_LISTS: Final = ("todos", "tasks", "plan", "steps", "items")
_NAMES: Final = ("content", "title", "task", "step", "description", "text", "name")
_FINISHED: Final = WORDS["finished"]

_Task = tuple[str, bool]
"""A task of a plan, and whether it is done."""


class PlanExtractor:
    """Evidence of the plans of one session. Not thread-safe: the session's lock is held.

    A plan in a text is a list with boxes to tick, or the list under a line that speaks of a plan,
    of tasks or of steps; other lists are findings, and may grow. Looks at 8,000 characters and 100
    tasks; keeps nothing but numbers.
    """

    __slots__ = ("_kept", "_progress")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings
        self._progress = progress
        self._kept = 0

    def extract(self, step: Step) -> Plan | None:
        """Evidence of one plan; None where there is none."""
        progress = self._progress
        if step.kind is _MODEL:
            look = look_of(step.text or "")
            # One line is no list.
            tasks = _written(look) if "\n" in look else []
        else:
            if not step.name or not _keeps_plans(step.name[:NAMED]):
                return None
            if progress.call is not None:
                # To keep the list changes nothing in the world.
                self._kept += progress.epoch - progress.call.epoch
            short = not isinstance(step.args, str) or len(step.args) <= 100 * NAMED
            tasks = _handed(prepare(step).arguments) if short else []
        if len(tasks) < _FEW:
            return None
        speaker, name = speaker_of(step)
        done = sum(finished for _, finished in tasks)
        items = frozenset(_key(task) for task, _ in tasks)
        number = None if step.kind is _MODEL else progress.calls
        return Plan(speaker, name, items, done, progress.epoch - self._kept, number)


@lru_cache(maxsize=1024)
def _keeps_plans(tool: str) -> bool:
    return _TOOL.search(tool) is not None


def keeps_plan(tool: str, arguments: object) -> bool:
    """True if a call hands a list of tasks to the tool that keeps it: no work on anything else."""
    return _keeps_plans(tool) and bool(_handed(arguments))


def _handed(given: object) -> list[_Task]:
    """The list that a call gives to its tool."""
    for value in map(mapping(given).get, _LISTS):
        if tasks := [task for item in sequence(value)[:_ITEMS] if (task := _task(item))]:
            return tasks
    return []


def _task(item: object) -> _Task | None:
    if isinstance(item, str):
        return item[:NAMED], False
    named = mapping(item)
    said = next((text for key in _NAMES if isinstance(text := named.get(key), str)), None)
    state = named.get("status") or named.get("state")
    finished = named.get("done") is True or named.get("completed") is True
    return None if said is None else (said[:NAMED], finished or state in _FINISHED)


def _written(look: str) -> list[_Task]:
    """The tasks of a plan in a text; boxes to tick, or else the list under a heading."""
    boxes: list[_Task] = []
    listed: list[_Task] = []
    above, headed = "", False
    for line in look.split("\n", _LINES)[:_LINES]:
        found = _ITEM.match(line[:NAMED])
        if found is None:
            above = line.strip() or above
            continue
        box, task = found.group("box"), found.group("task")
        if box is not None:
            boxes.append((task, box in "xX" and box != ""))
            continue
        if above:
            # The first of the tasks that may stand under this line.
            headed, above = _HEADING.fullmatch(above[:NAMED]) is not None, ""
        if headed:
            listed.append((task, _DONE.search(task) is not None))
    return (boxes or listed)[:_ITEMS]


def _key(task: str) -> int:
    """Key of a task, whether it is done or not, and however it is marked."""
    words = " ".join(word for word in _PLAIN.findall(task.lower()) if word not in _FINISHED)
    return key_of(text_bytes(words or task))


_RUNS: Final = frozenset({Kind.AGENT, Kind.NODE, Kind.WORKFLOW, Kind.TOOL})


class PlanTracker:
    """Records on a session's board what becomes of the tasks of its plan; returns no evidence.

    A plan comes from the application or from a span (`Step.tasks`). The application's goes first,
    as do the milestones it declared and a person's replacements; an invalid plan on a span is
    ignored, because there is nobody to tell. A task is done when an agent, node, workflow or tool
    call that names it (`Step.task`, or its own name) ends well, and has failed after
    `tuning.plans.task_failures` (3) that did not, so that trying a step again does no harm.
    """

    __slots__ = ("_declared", "_failures", "_limit", "_progress")
    needs_milestones: ClassVar = True

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._limit = settings.tuning.plans.task_failures
        self._progress = progress
        self._declared: int | None = None
        self._failures: dict[str, int] = {}

    def extract(self, step: Step) -> None:
        """Takes one finished step."""
        if step.tasks is not None:
            plan = key_of(canonical(step.tasks))
            if plan != self._declared:
                self._declare(step.tasks, plan)
        board = self._progress.milestones
        if not board.changes or not board.follows or step.kind not in _RUNS:
            return
        name = step.task if step.task in board.follows else step.name
        if name is not None and name in board.follows:
            self._finished(name, failed=step.error)

    def _declare(self, plan: tuple[object, ...], key: int) -> None:
        board = self._progress.milestones
        ours = self._declared is not None and bool(board.follows)
        self._declared = key
        if board.by_person or (board.changes and not ours):
            return
        tasks, problems = read(plan)
        if not problems and not validate(tasks) and follow(board, tasks):
            self._failures.clear()

    def _finished(self, name: str, *, failed: bool) -> None:
        if not failed:
            self._failures.pop(name, None)
            self._progress.milestones.report(name, Reached.DONE)
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        board = self._progress.milestones
        if failures >= self._limit and board.state(name) is Reached.OPEN:
            board.report(name, Reached.FAILED)
