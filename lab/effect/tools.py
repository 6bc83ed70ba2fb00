"""The tools of the agent: each looks at the small world of a task and answers with plain text."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.effect.tasks import Task


class ToolError(Exception):
    """A tool that cannot do what is asked; its text is for the model."""


class Desk:
    """The tools for one run of a task.

    Args:
        task: What they look at.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._looks = dict.fromkeys(task.jobs, 0)

    def call(self, name: str, args: dict[str, Any]) -> str:
        """What a tool answers.

        Raises:
            ToolError: There is no such tool, it takes other arguments, or it cannot do that.
        """
        tool = _TOOLS.get(name)
        if tool is None:
            raise ToolError(f"There is no tool {name!r}. There are: {', '.join(_TOOLS)}.")
        if set(args) != set(_PARAMETERS[name]):
            raise ToolError(f"{name} takes {', '.join(_PARAMETERS[name]) or 'nothing'}.")
        return tool(self, **{key: str(value) for key, value in args.items()})

    def list_files(self) -> str:
        """The names of all files."""
        return "\n".join(self._task.files) or "There are no files."

    def read_file(self, path: str) -> str:
        """The text of a file."""
        if path not in self._task.files:
            raise ToolError(f"File not found: {path}")
        return self._task.files[path]

    def look_up(self, name: str) -> str:
        """City and phone number of a person."""
        return self._task.people.get(name, f"No entry for {name}.")

    def search(self, query: str) -> str:
        """The document that has most of the words of a query."""
        words = set(re.findall(r"\w+", query.lower())) - _COMMON
        found = [
            (len(words & set(re.findall(r"\w+", text.lower()))), text)
            for text in self._task.documents
        ]
        hits, text = max(found, default=(0, ""), key=lambda one: one[0])
        return text if hits else "No results."

    def calculate(self, expression: str) -> str:
        """The value of an arithmetic expression."""
        try:
            return f"{_value(ast.parse(expression.strip(), mode='eval').body):.12g}"
        except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
            raise ToolError(f"Not an arithmetic expression: {expression}") from None

    def job_status(self, job: str) -> str:
        """True if a job still runs, and its result."""
        if job not in self._task.jobs:
            raise ToolError(f"No such job: {job}")
        needed, result = self._task.jobs[job]
        self._looks[job] += 1
        return f"{job}: {result if self._looks[job] > needed else 'running'}"


_COMMON = set("a an and the of in on was is when which what year built".split())
_TOOLS: dict[str, Callable[..., str]] = {
    "list_files": Desk.list_files,
    "read_file": Desk.read_file,
    "look_up": Desk.look_up,
    "search": Desk.search,
    "calculate": Desk.calculate,
    "job_status": Desk.job_status,
}
_PARAMETERS: dict[str, dict[str, str]] = {
    "list_files": {},
    "read_file": {"path": "Name of the file, as `notes.txt`."},
    "look_up": {"name": "First and last name."},
    "search": {"query": "A few words."},
    "calculate": {"expression": "As `12 + 30`."},
    "job_status": {"job": "Name of the job."},
}
SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__,
            "parameters": {
                "type": "object",
                "properties": {
                    key: {"type": "string", "description": about}
                    for key, about in _PARAMETERS[name].items()
                },
                "required": list(_PARAMETERS[name]),
                "additionalProperties": False,
            },
        },
    }
    for name, tool in _TOOLS.items()
]
"""The tools as a request to a model has them."""
_SIGNS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def _value(node: ast.expr) -> float:
    """The value of what has numbers, signs and brackets only."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left, sign, right) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(left), _value(right))
        case ast.UnaryOp(sign, operand) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_value(operand))
        case _:
            raise ValueError(ast.dump(node))
