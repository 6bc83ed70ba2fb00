"""What a model answers when it is asked for the parts of a piece of work."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, cast

import orjson

from otel_loopguard.planning.task import Problem, Task, read
from otel_loopguard.planning.validation import validate

AskSubtasks = Callable[[str, str], object]
"""Asks a model for the parts of a piece of work.

It gets the description and the name of the strategy, and gives a plan as `read` takes it, or text
with a JSON list of tasks, fenced or not.
"""

_CHARS: Final = 1_000_000
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def answered(answer: object) -> tuple[list[Task], list[Problem]]:
    """The tasks of an answer, and everything that is wrong with them.

    Args:
        answer: A plan, or text with JSON; at most a million characters of it.

    Returns:
        The tasks and the problems, as `read` and `validate` give them. No task at all is a problem.
    """
    if isinstance(answer, (str, bytes)):
        parsed = _parsed(answer)
        if isinstance(parsed, Problem):
            return [], [parsed]
        answer = parsed
    tasks, problems = read(answer)
    problems += validate(tasks)
    if not tasks and not problems:
        problems.append(Problem("field", (), "expected at least one task, got none"))
    return tasks, problems


def _parsed(answer: str | bytes) -> object:
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    if len(text) > _CHARS:
        return Problem("field", (), f"expected at most {_CHARS} characters, got {len(text)}")
    fenced = _FENCED.search(text)
    try:
        return cast("object", orjson.loads(fenced[1] if fenced else text))
    except orjson.JSONDecodeError as error:
        return Problem("field", (), f"expected a JSON list of tasks: {error}")
