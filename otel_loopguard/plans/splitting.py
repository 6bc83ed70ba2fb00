"""Advice on splitting a piece of work."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import PurePosixPath
from typing import Final, cast

import orjson

from otel_loopguard._util.tables import read_table
from otel_loopguard._util.text import StrEnum
from otel_loopguard.core.task import Problem, Task, read, validate

_CLARIFY: Final = "clarify"
"""Id of the part that asks what is wanted."""
_CHECK: Final = "check the whole"
_PARTS: Final = 100
"""Parts that are named; any more become one part: nobody hands out a hundred tasks at once."""


AskSubtasks = Callable[[str, str], object]
"""Asks a model for the parts of a piece of work.

It gets the description and the name of the strategy, and returns a plan for `read`, or text
with a JSON list of tasks, fenced or not.
"""

_ANSWER_CHARS: Final = 1_000_000
"""Characters of a model's answer that are parsed: more than any model writes."""
_FENCED: Final = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def answered(answer: object) -> tuple[list[Task], list[Problem]]:
    """The tasks of an answer, and everything that is wrong with them.

    Args:
        answer: A plan, or text with JSON; at most a million characters of it.

    Returns:
        The tasks and the problems, as `read` and `validate` give them. No task at all is a problem.
    """
    if isinstance(answer, bytes):
        answer = answer.decode("utf-8", "replace")
    if isinstance(answer, str):
        if len(answer) > _ANSWER_CHARS:
            message = f"expected at most {_ANSWER_CHARS} characters, got {len(answer)}"
            return [], [Problem("field", (), message)]
        fenced = _FENCED.search(answer)
        try:
            answer = cast("object", orjson.loads(fenced[1] if fenced else answer))
        except orjson.JSONDecodeError as error:
            return [], [Problem("field", (), f"expected a JSON list of tasks: {error}")]
    tasks, problems = read(answer)
    problems += validate(tasks)
    if not tasks and not problems:
        problems.append(Problem("field", (), "expected at least one task, got none"))
    return tasks, problems


# Characters of a description, and files in it, that are looked at: some ten pages. All patterns
# below are linear, and this runs on the caller's thread.
_SEARCHED: Final = 20_000
_FILES: Final = 1000
_WORDS: Final = {
    row.name: re.compile(rf"(?i)\b(?:{'|'.join(row.lines)})\b")
    for row in read_table(__name__, "work.txt")
}
_ITEM: Final = re.compile(r"(?m)^[ \t]*(?:[-*•]|\d{1,2}[.)])[ \t]+\S")
_JOINED: Final = re.compile(r"(?i)(?:,|;)\s+(?:and\s|then\s)?|\s(?:and|then|plus)\s")
_CLAUSE: Final = re.compile(r"(?i)(?:,|;|\.\s|\n)\s*(?:and\s|then\s)?|\s(?:and|then|plus)\s")
_LETTERS: Final = re.compile(r"[^\W\d_]{2}")
# Characters of a part's name, and parts that are read out of sentences: of a text with more the
# commas hardly separate parts.
_NAME_CHARS: Final = 80
_CLAUSES: Final = 12
_FILE: Final = re.compile(
    r"(?<![\w/.-])(?:(?:[\w.-]{1,80}/){1,12}[\w-]{1,80}|[\w-]{2,80})\.[a-z][a-z0-9]{0,4}\b"
)


class Strategy(StrEnum):
    """A way to split a piece of work."""

    NONE = "none"
    COMPONENT = "by_component"
    FILE = "by_file"
    TEST_FIRST = "test_first"


@dataclass(frozen=True, slots=True)
class Work:
    """A piece of work, as far as it is known before it begins.

    Attributes:
        description: What is to be done, in words; the first 20,000 characters are read.
        files: Paths that it touches; those that the description names are added.
        components: Parts of the system that it touches; by default the folders of the files.
        dependencies: What it depends on: other work, services, packages.
        has_tests: Whether tests for it are there; None if nobody knows.
    """

    description: str = ""
    files: Sequence[str] = ()
    components: Sequence[str] = ()
    dependencies: Sequence[str] = ()
    has_tests: bool | None = None

    @classmethod
    def of(cls, tasks: Iterable[Task]) -> Work:
        """A plan as one piece of work: its words, its dependencies, the files it names.

        Args:
            tasks: Tasks of the plan.
        """
        tasks = list(tasks)
        text = "\n".join(task.description or task.id for task in tasks)
        edges = [f"{task.id}:{each}" for task in tasks for each in task.depends_on]
        given = (str(task.args)[:_SEARCHED] for task in tasks[:_FILES] if task.args is not None)
        return cls(text, _named(" ".join(given)), (), edges)


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of how complex a piece of work is, each 0 to 1.

    Attributes:
        scope: Verbs that ask for work, and words like `all`; in full from 8.
        files: Files; in full from 10.
        dependencies: Dependencies; in full from 10.
        ambiguity: Vague words; in full from 4. At least half if there are fewer than four words.
        testing: 1 without tests; half where tests are asked for, or nobody knows; else 0.
        parts: Parts that the words name: what is asked for, items of a list, areas such as
            `database` or `login`, things big by themselves such as `platform`; in full from 8.
    """

    scope: float
    files: float
    dependencies: float
    ambiguity: float
    testing: float
    parts: float = 0.0


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on splitting a piece of work.

    Attributes:
        score: How complex the work is, 0 to 1.
        factors: Why.
        split: Whether it should be split: the score is 0.35 or more.
        strategy: How; `none` where it should not.
        subtasks: The parts, a sound plan; empty where it should not be split.
        actions: Estimated actions (tool calls) of each part, by its id; of the whole work under an
            empty id where it is not split.
        risks: What may go wrong, in sentences.
        source: `rules`, or `model` if the parts are a model's.
        problems: Why a model's parts were not taken.
    """

    score: float
    factors: Factors
    split: bool
    strategy: Strategy
    subtasks: tuple[Task, ...]
    actions: dict[str, int]
    risks: tuple[str, ...]
    source: str = "rules"
    problems: tuple[Problem, ...] = ()


def advise(work: Work | str, ask: AskSubtasks | None = None) -> Advice:
    """Says whether a piece of work is better split, how, and what may go wrong.

    A rule of thumb on words and counts, not an understanding of the work.

    Args:
        work: The work, or just its description.
        ask: Asks a model for the parts, if the work should be split. It gets the description and
            the strategy, and its answer is validated like any plan; one that is not sound is not
            taken, and `Advice.problems` says why. What it raises is raised.
    """
    work = Work(work) if isinstance(work, str) else work
    text = work.description[:_SEARCHED]
    files = list(dict.fromkeys((*work.files, *_named(text))))
    factors = _factors(work, files)
    score = _score(factors)
    risks = _risks(factors, work)
    if score < _SPLIT:
        actions = {"": _ACTIONS + _FILE_ACTIONS * len(files) + _more_parts(text)}
        return Advice(score, factors, False, Strategy.NONE, (), actions, risks)
    unclear = factors.ambiguity >= 0.5
    components = list(dict.fromkeys(work.components)) or _folders(files)
    if not files and not components and not unclear:
        clauses = _clauses(text)
        components = clauses if len(clauses) > 1 else []
    strategy = _strategy(factors, files, components)
    subtasks = _parts(strategy, files, components, unclear=unclear)
    problems: list[Problem] = []
    source = "rules"
    if ask is not None:
        proposed, problems = answered(ask(work.description, strategy.value))
        if not problems:
            subtasks, source = proposed, "model"
    return Advice(
        score, factors, True, strategy, tuple(subtasks), _actions(subtasks, files), risks,
        source, tuple(problems),
    )  # fmt: skip


# A rule of thumb, as are the weights below; its quality is not measured. An ordinary request for
# one change of a few files stays below 0.35, one that names four parts is above.
_SPLIT: Final = 0.35
# From so many words that ask for work, files, dependencies, vague words and parts each counts in
# full: more of one kind alone do not make work harder.
_FULL_SCOPE: Final = 8
_FULL_FILES: Final = 10
_FULL_DEPENDENCIES: Final = 10
_FULL_VAGUE: Final = 4
_FULL_PARTS: Final = 8
# Look, change, check; and of each file read, edit, test, and one more that fails.
_ACTIONS: Final = 3
_FILE_ACTIONS: Final = 4


def _factors(work: Work, files: Sequence[str]) -> Factors:
    text = work.description[:_SEARCHED]
    wanted = len(_words("asked", text)) + len(_WORDS["wide"].findall(text))
    vague = (len(_WORDS["vague"].findall(text)) + text.count("?")) / _FULL_VAGUE
    if work.description and len(text.split()) < 4:
        vague = max(vague, 0.5)
    asked = _WORDS["tested"].search(text) is not None
    testing = 1.0 if work.has_tests is False else 0.5 if asked or work.has_tests is None else 0.0
    return Factors(
        min(1.0, wanted / _FULL_SCOPE),
        min(1.0, len(files) / _FULL_FILES),
        min(1.0, len(work.dependencies) / _FULL_DEPENDENCIES),
        min(1.0, vague),
        testing,
        min(1.0, _part_count(text) / _FULL_PARTS),
    )


def _parts(
    strategy: Strategy, files: Sequence[str], components: Sequence[str], *, unclear: bool
) -> list[Task]:
    """The parts of a piece of work, a sound plan."""
    clarify = Task(_CLARIFY, description="Say what exactly is wanted, and ask where that is open.")
    before = (_CLARIFY,) if unclear else ()
    tasks = [clarify] if unclear else []
    if strategy is Strategy.TEST_FIRST:
        return [
            *tasks,
            Task("write tests", description="Write tests that fail today.", depends_on=before),
            Task("implement", description="Make them pass.", depends_on=("write tests",)),
            Task(
                _CHECK,
                description="Run all tests, and look at the change.",
                depends_on=("implement",),
            ),
        ]
    by_file = strategy is Strategy.FILE
    names, what = (files, "") if by_file else (components, "the component ")
    # A part of the name of another task would be there twice.
    names = [name for name in dict.fromkeys(names) if name not in (_CLARIFY, _CHECK)]
    parts = [
        Task(name, description=f"Do what concerns {what}{name}.", depends_on=before)
        for name in names[:_PARTS]
    ]
    if len(names) > _PARTS:
        description = f"Do what concerns the other {len(names) - _PARTS}."
        parts.append(Task("the rest", description=description, depends_on=before))
    needs = tuple(part.id for part in parts) or before
    check = Task(_CHECK, description="Check that the parts fit together.", depends_on=needs)
    return [*tasks, *parts, check]


def _part_count(text: str) -> float:
    """Number of parts that the words of a description name, by rough weights."""
    asked = _words("asked", text) | _words("more", text)
    areas = {word.rstrip("s") for word in _words("area", text)}
    big = {word.rstrip("s") for word in _words("whole", text)}
    items = len(_ITEM.findall(text))
    joined = min(len(_JOINED.findall(text)), 8)
    heavy = bool(_words("heavy", text))
    return len(asked) + 2 * heavy + len(areas) + 2 * len(big) + items + joined


def _words(words: str, text: str) -> set[str]:
    """The words of a text that stand in a row of the table, in lower case."""
    return {word.lower() for word in _WORDS[words].findall(text)}


def _more_parts(text: str) -> int:
    """Number of parts that the words name besides the first; those of a path ask for nothing."""
    return max(0, round(_part_count(_FILE.sub(" ", text))) - 1)


def _clauses(text: str) -> list[str]:
    """The parts that a description names one after the other, by what each asks for."""
    lines = [line.strip() for line in text.splitlines() if _ITEM.match(line)]
    if len(lines) > 1:
        named: Iterable[str] = [line.lstrip("-*•0123456789.) \t") for line in lines]
    else:
        pieces = (piece.strip(" .\n\t") for piece in _CLAUSE.split(text))
        named = filter(_LETTERS.search, pieces)
        # What comes behind a verb is what it asks for, too: "add login, sessions, tests".
        named = dropwhile(lambda piece: not _words("asked", piece) | _words("more", piece), named)
    return list(dict.fromkeys(name[:_NAME_CHARS].strip() for name in named if name))[:_CLAUSES]


def _score(factors: Factors) -> float:
    weighted = (
        0.25 * factors.scope
        + 0.25 * factors.files
        + 0.2 * factors.dependencies
        + 0.15 * factors.ambiguity
        + 0.15 * factors.testing
    )
    if weighted < _SPLIT:
        # A request that names many parts is big, however little else is known of it.
        weighted = max(weighted, 0.5 * factors.parts)
    return min(1.0, round(weighted, 6))


def _strategy(factors: Factors, files: Sequence[str], components: Sequence[str]) -> Strategy:
    """By component where several are touched, by file where several are, else test first.

    Work that is unclear, or has no tests, begins with the tests, unless it is mostly wide.
    """
    wide = max(factors.scope, factors.files, factors.dependencies, factors.parts)
    if wide < max(factors.ambiguity, factors.testing if factors.testing > 0.5 else 0.0):
        return Strategy.TEST_FIRST
    if len(components) > 1:
        return Strategy.COMPONENT
    return Strategy.FILE if len(files) > 1 else Strategy.TEST_FIRST


def _actions(tasks: Sequence[Task], files: Sequence[str]) -> dict[str, int]:
    """A few actions for each part, more for each file that it names and all that it asks for.

    Files that no part names are shared out among the parts that others wait for.
    """
    needed = {need for task in tasks for need in task.depends_on} - {_CLARIFY}
    counts = {
        task.id: sum(
            file == task.id or file.startswith(f"{task.id}/") or file in _named(task.id)
            for file in files
        )
        for task in tasks
    }
    left = max(0, len(files) - sum(counts.values()))
    share = math.ceil(left / len(needed)) if needed else left
    for name in needed or counts:
        counts[name] += share
    return {
        name: _ACTIONS + _FILE_ACTIONS * count + _more_parts(name) for name, count in counts.items()
    }


def _risks(factors: Factors, work: Work) -> tuple[str, ...]:
    found = (
        (factors.scope >= 0.7, "much is asked for at once; parts of it may be forgotten"),
        (factors.files >= 0.7, "many files are touched; changes may contradict each other"),
        (factors.dependencies >= 0.5, "it depends on much else; one failure may hold up the rest"),
        (factors.ambiguity >= 0.5, "it is unclear what is wanted; ask before work is done twice"),
        (work.has_tests is False, "there are no tests; what breaks may go unnoticed"),
    )
    return tuple(said for there, said in found if there)


def _named(text: str) -> list[str]:
    return list(dict.fromkeys(match.group() for match in _FILE.finditer(text)))[:_FILES]


def _folders(files: Iterable[str]) -> list[str]:
    folders = dict.fromkeys(str(PurePosixPath(name).parent) for name in files)
    return [folder for folder in folders if folder != "."]
