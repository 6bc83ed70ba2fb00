"""Turns lists of tasks, written by a model or handed to a tool that keeps them, into evidence."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.core import Kind, Plan, Progress, Step
from otel_loopguard.identity.canonical import key_of, text_bytes
from otel_loopguard.identity.readings import arguments_of
from otel_loopguard.identity.speakers import speaker_of
from otel_loopguard.identity.texts import look_of

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LINES: Final = 300
_ITEMS: Final = 100
_FEW: Final = 2
_ITEM: Final = re.compile(
    r"[ \t]{0,12}(?:[-*+]|\d{1,3}[.)])[ \t]{1,4}(?:\[(?P<box>[ xX~-]?)\][ \t]{1,4})?(?P<task>\S.*)"
)
_HEADING: Final = re.compile(
    r"(?i)\A[^\n]{0,60}\b(?:plan|to-?dos?|tasks?|next steps|remaining|steps)\b[^\n]{0,30}[:*]?"
)
_DONE: Final = re.compile(
    r"(?i)\u2705|\u2714|~~|\((?:done|completed)\)|\b(?:done|completed)\W{0,3}$"
)
_PLAIN: Final = re.compile(r"[^\W_]+")
_TOOL: Final = re.compile(r"(?i)to-?_?do|task_?list|(?:write|update|set|make|create)_?plan|plan_")
_LISTS: Final = ("todos", "tasks", "plan", "steps", "items")
_NAMES: Final = ("content", "title", "task", "step", "description", "text", "name")
_FINISHED: Final = frozenset({"completed", "complete", "done", "finished", "closed"})
_CHARS: Final = 200

_Task = tuple[str, bool]
"""What is to be done, and whether it is."""


class Plans:
    """Evidence of the plans of one session. Not thread-safe: the session's lock is held.

    A plan in a text is a list with boxes to tick, or the list under a line that speaks of a plan,
    of tasks or of steps; other lists are findings, and may grow. Looks at 8,000 characters and 100
    tasks; keeps nothing but numbers.

    Args:
        settings: Settings of the guard.
        progress: Totals of the session; read only.
    """

    __slots__ = ("_epoch", "_kept", "_progress")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings
        self._progress = progress
        self._epoch = progress.epoch
        self._kept = 0

    def see(self, step: Step) -> Plan | None:
        """Evidence of one plan; None where there is none."""
        if step.kind is Kind.MODEL:
            tasks = _written(look_of(step.text)) if step.text else []
        else:
            tasks = self._handed(step)
        if len(tasks) < _FEW:
            return None
        speaker, name = speaker_of(step)
        done = sum(finished for _, finished in tasks)
        items = frozenset(_key(task) for task, _ in tasks)
        return Plan(speaker, name, items, done, self._progress.epoch - self._kept)

    def _handed(self, step: Step) -> list[_Task]:
        """The list that a call gives to its tool; to keep it changes nothing in the world."""
        opened = self._progress.epoch - self._epoch
        self._epoch = self._progress.epoch
        if not step.name or not _TOOL.search(step.name[:_CHARS]):
            return []
        self._kept += opened
        given = arguments_of(step) if _short(step.args) else None
        if not isinstance(given, dict):
            return []
        named = cast("dict[str, object]", given)
        lists = (_listed(named.get(key)) for key in _LISTS)
        return next((tasks for tasks in lists if tasks), list[_Task]())


def _short(value: object) -> bool:
    return not isinstance(value, str) or len(value) <= 100 * _CHARS


def _listed(value: object) -> list[_Task]:
    if not isinstance(value, list):
        return []
    return [task for item in cast("list[object]", value)[:_ITEMS] if (task := _task(item))]


def _task(item: object) -> _Task | None:
    if isinstance(item, str):
        return item[:_CHARS], False
    if not isinstance(item, dict):
        return None
    named = cast("dict[str, object]", item)
    said = next((text for key in _NAMES if isinstance(text := named.get(key), str)), None)
    state = named.get("status") or named.get("state")
    finished = named.get("done") is True or named.get("completed") is True
    return None if said is None else (said[:_CHARS], finished or state in _FINISHED)


def _written(look: str) -> list[_Task]:
    """The tasks of a plan in a text; boxes to tick, or else the list under a heading."""
    boxes: list[_Task] = []
    listed: list[_Task] = []
    headed = False
    for line in look.split("\n", _LINES)[:_LINES]:
        found = _ITEM.match(line[:_CHARS])
        if found is None:
            headed = (
                _HEADING.fullmatch(line.strip()[:_CHARS]) is not None if line.strip() else headed
            )
            continue
        box, task = found.group("box"), found.group("task")
        if box is not None:
            boxes.append((task, box in "xX" and box != ""))
        elif headed:
            listed.append((task, _DONE.search(task) is not None))
    return (boxes or listed)[:_ITEMS]


def _key(task: str) -> int:
    """Key of a task, whether it is done or not, and however it is marked."""
    words = " ".join(word for word in _PLAIN.findall(task.lower()) if word not in _FINISHED)
    return key_of(text_bytes(words or task))
