"""How words, arguments and answers are read: the rows of `readings.txt`.

Each section begins with its `[name]`; a row has what is read of the values behind it, with two
spaces or more between them. A value is JSON, or else text.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Evidence, Kind, Progress, Step
from otel_loopguard.evidence import ToolCallExtractor, parsed, prepare, signature_of
from otel_loopguard.evidence.calls import Call, Calls, place_of
from otel_loopguard.evidence.effects import effect_of, is_compound, is_runner, written_file
from otel_loopguard.evidence.errors import error_class, error_line, error_shape, is_call_error
from otel_loopguard.evidence.model_text import ModelTextExtractor, Novelty
from otel_loopguard.evidence.normalize import canonical, masked_call, masked_outcome
from otel_loopguard.evidence.outcomes import (
    Outcome,
    content_key,
    leaves_of,
    rejects,
    reports_failure,
    says_nothing_found,
)
from otel_loopguard.evidence.plans import PlanExtractor
from otel_loopguard.evidence.tool_calls import Rounds
from otel_loopguard.evidence.weight import Frame
from otel_loopguard.policy.hints import kind_of
from tests.calls import call
from tests.evidence.test_evidence import rounds_of, told
from tests.evidence.test_normalize import left
from tests.evidence.test_weight import ANSWERS, KINDS, between, rested, weights


def answer(said: object) -> Outcome:
    return prepare(Step(Kind.TOOL, "t", outcome=said), 1_000_000).found


def fails(said: object) -> bool:
    step = Step(Kind.TOOL, "t", outcome=said)
    reading = prepare(step)
    return bool(reading.failure) or reports_failure(step, reading, shell=False)


def failed(text: str | None) -> Step:
    return Step(Kind.TOOL, "t", error=True, error_text=text)


def length(said: object) -> int:
    """As JSON text or as a value, of one length."""
    size, as_text = answer(said).size, answer(json.dumps(said, separators=(",", ":"))).size
    assert size == as_text
    return size


def announces(text: str) -> bool:
    seen = ModelTextExtractor(Settings(), Progress()).extract(Step(Kind.MODEL, "m", text=text))
    assert seen is not None
    return seen.promise is not None


def plan(text: str) -> str | None:
    seen = PlanExtractor(Settings(), Progress()).extract(Step(Kind.MODEL, "m", text=text))
    return seen and f"{len(seen.items)} tasks, {seen.done} done"


def identity(arguments: object) -> Call:
    step = call("search", arguments)
    return Calls(Settings()).identify(step, prepare(step), 1)


def place(arguments: object) -> float | None:
    found = place_of(identity(arguments))
    return found and found[1]


def evidence(tool: str, arguments: object = None, said: object = "x") -> Evidence:
    return ToolCallExtractor(Settings()).evidence(call(tool, arguments, said))


def named(text: str | None) -> str | None:
    line = error_line(failed(text))
    return None if line is None else line.decode()


def one_shape(one: str, other: str, of_one: str, of_other: str) -> bool:
    lines = error_line(failed(one)), error_line(failed(other))
    assert lines[0] is not None
    assert lines[1] is not None
    return error_shape(lines[0], of_one.encode()) == error_shape(lines[1], of_other.encode())


def alike(one: str, other: str) -> str:
    sense = ModelTextExtractor(Settings(), Progress())
    found = None
    for text in (".", one, other):
        found = sense.extract(Step(Kind.MODEL, "m", text=text)) or found
    assert found is not None
    return f"{'alike' if found.alike >= 0.85 else 'other'}{', renumbered' * found.renumbered}"


def shares(*outcomes: str) -> list[float]:
    novelty = Novelty()
    return [round(novelty.add(outcome.encode()).share, 2) for outcome in outcomes]


def waits(pause: float, said: str, given: dict[str, Any], took: float = 0.5) -> bool:
    """Of the second of two equal calls."""
    tool, args = given.pop("tool", "job"), given.pop("args", {"id": 9})
    observer = ToolCallExtractor(Settings(**given))
    first, again = (call(tool, args, said, at=at, took=took) for at in (0, pause + took))
    observer.evidence(first)
    return observer.evidence(again).waits


def sleeps(tool: str, command: str, took: float) -> bool:
    """Of the second of two equal calls, one right behind the other."""
    given = {"tool": tool, "args": {"befehl": command}}
    return waits(0, "the build has 12 parts", given, took)


def stops(kinds: str, given: dict[str, Any], least: float, most: float) -> bool:
    """Whether a repeat weighs so much towards a stop: of a kind of call, an answer, or both."""
    kind = {
        name: value for each in kinds.split() for name, value in {**KINDS, **ANSWERS}[each].items()
    }
    return least <= weights(**{**kind, **given})[1] <= most


def rounds(*spans: list[int]) -> list[int]:
    """Of calls with a start and an end in nanoseconds."""
    found = Rounds()
    return [found.add(start, end) for start, end in spans]


def equal(form: Callable[[Any], object]) -> Callable[[Any, Any], bool]:
    """Whether two values have one form."""
    return lambda one, other: form(one) == form(other)


def common(read: Callable[[Any], Any], names: tuple[str, ...]) -> Callable[[Any, Any], list[str]]:
    """Which of these attributes two values share."""
    return lambda one, other: [
        name for name in names if getattr(read(one), name) == getattr(read(other), name)
    ]


def brings(said: str, asked: str | dict[str, str]) -> list[object]:
    found = Novelty().add(said.encode(), asked.encode() if isinstance(asked, str) else b"")
    return [round(found.share, 2), found.echo]


def bare(*calls: tuple[str, object, object]) -> object:
    """What is left of the last answer, of an error where `args` is "!", after all before it."""
    frame, step = Frame(), call()
    for tool, args, said in calls:
        failed = str(said) if args == "!" else None
        step = call(tool, args, None if failed else said, error=failed)
        step = frame.taken_off(step, prepare(step), runs_code=is_runner(tool))
    return step.error_text if step.error else step.outcome


READERS: Final[dict[str, Callable[..., object]]] = {
    "the effect of a call": effect_of,
    "a tool that runs what the agent wrote": is_runner,
    "a command that does several things": is_compound,
    "the class of an error": lambda text: error_class(failed(text)).name.lower(),
    "an error of the call itself": lambda text: is_call_error(failed(text)),
    "an answer that says that nothing was found": lambda said: says_nothing_found(answer(said)),
    "an answer that turns down what was tried": lambda said: rejects(answer(said)),
    "an answer that reports a failure": fails,
    "the length of an answer without its frame": length,
    "the length of an answer in elements": lambda said: answer(said).size,
    "the letters of an answer": lambda said: answer(said).size,
    "what is left of the last answer": bare,
    "equal content in another order": equal(lambda said: content_key(answer(said))),
    "equal but for what changes by itself": equal(lambda said: masked_outcome(said.encode())),
    "equal calls but for what changes by itself": equal(lambda args: masked_call(args.encode())),
    "one canonical form": equal(lambda value: canonical(parsed(value))),
    "an announcement": announces,
    "a plan": plan,
    "equal states of a node": equal(leaves_of),
    "a place that is asked for": place,
    "the kind of a tool": kind_of,
    "the signature of an error": lambda text: signature_of(failed(text)),
    "the file that a call writes": lambda given: written_file(parsed(given)),
    "equal calls": equal(lambda arguments: identity(arguments).key),
    "a call that is told apart by a guess": lambda arguments: identity(arguments).guessed,
    "the line that names an error": named,
    "one shape of error": one_shape,
    "an answer that is pending": lambda said: evidence("job", {"id": 9}, said).pending,
    "an answer that holds nothing": lambda *given: evidence(*given).nothing,
    "a call that failed by its answer": lambda *given: evidence(*given).failing,
    "how many content words a question has": lambda *given: len(evidence(*given).terms),
    "two texts of a model": alike,
    "what part of each answer was new": shares,
    "a second look that waits": waits,
    "a command that sleeps": sleeps,
    "rounds of calls": rounds,
    "rounds of calls that messages ask for": rounds_of,
    "what a stop hears of a repeat": stops,
    "the rest before a call": rested,
    "what was between a call and the same before it": between,
    "what two calls have in common": common(identity, ("key", "exact", "change")),
    "what two answers have in common": common(answer, ("key", "exact")),
    "what an answer brings, and whether it only repeats its call": brings,
    "visits of nodes": told,
    "an argument that is kept": lambda name, text: all(left(name, text)),
}


def value(cell: str) -> object:
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def rows(file: Path) -> list[Any]:
    """Of each row its section, the cell with what is read, and the cells that it is read from."""
    found: list[Any] = []
    name = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if head := re.fullmatch(r"\[([a-z].*)\]", line):
            name = head[1]
        elif line and not line.startswith("#"):
            expected, *given = re.split(r" {2,}", line)
            found.append(pytest.param(name, expected, given, id=f"{name}: {line[:70]}"))
    return found


ROWS: Final = rows(Path(__file__).with_name("readings.txt"))


@pytest.mark.parametrize(("name", "expected", "cells"), ROWS)
def test_it_is_read(name: str, expected: str, cells: list[str]) -> None:
    assert READERS[name](*map(value, cells)) == value(expected)
