"""Labelled runs of coding agents are judged alike, whichever transcript tells of them."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_loopguard import Settings
from otel_loopguard.cli.replay import result_of
from otel_loopguard.core import Action, Kind
from otel_loopguard.replay import Run, labelled_runs
from tests.replay.transcripts.reading import one
from tests.replay.transcripts.writing import FORMS, Labelled, write

TRACES = Path(__file__).resolve().parents[4] / "shared/traces"
FILES = [TRACES / f"codetracer-{name}.jsonl.gz" for name in ("claude", "kimi")]
ONE_TIME = (
    "bn-fit-modify__", "hf-model-inference__", "pytorch-model-cli__", "coder/super-benchmark-upet",
)  # fmt: skip
"""Runs in which a call was made many seconds after the answer that asked for it, or took minutes
beside failures that are nearly enough for the next rung."""

_EVERY = 8

pytestmark = pytest.mark.skipif(not FILES[0].exists(), reason="the traces are not there")

Said = tuple[int, str, str]


def labelled() -> Iterator[tuple[Labelled, Run]]:
    for file in FILES:
        for line in gzip.decompress(file.read_bytes()).splitlines():
            read = json.loads(line)
            yield read, labelled_runs.run(read, "run", pytest.fail)


def decided(run: Run) -> list[Said]:
    """The decisions about a run, by the number of the call or answer; prompts are no part of it."""
    number, numbers = -1, list[int]()
    for step in run.steps:
        number += step.kind in (Kind.TOOL, Kind.MODEL)
        numbers.append(number)
    return [
        (numbers[found.step], found.action.value, found.reason)
        for found in result_of(run, Settings()).decisions
    ]


def strongest(said: list[Said]) -> Action:
    return max((Action(action) for _, action, _ in said), default=Action.ALLOW)


@pytest.fixture(scope="module")
def runs() -> list[tuple[Labelled, Run, list[Said]]]:
    """Those that were solved, those that are noticed, and some of the others."""
    found = [(line, run, decided(run)) for line, run in labelled()]
    assert len(found) == 164
    return [
        (line, run, said)
        for number, (line, run, said) in enumerate(found)
        if run.success or said or number % _EVERY == 0
    ]


@pytest.mark.parametrize("form", FORMS)
def test_decisions_are_those_about_the_labelled_run(
    form: str, runs: list[tuple[Labelled, Run, list[Said]]], tmp_path: Path
) -> None:
    stops = {action.value for action in Action if action.rank >= Action.DENY.rank}
    solved = 0
    for number, (line, run, wanted) in enumerate(runs):
        read = one(write(line, form, tmp_path / str(number)))
        found = decided(read)
        solved += run.success is True
        if run.success:
            assert not stops.intersection(action for _, action, _ in found), run.id
        # gemini-cli and ATIF tell one time for an answer and all of its calls.
        if form not in ("gemini", "atif") or not any(name in run.id for name in ONE_TIME):
            # What a pause takes off is told a little otherwise by each form.
            assert found[:1] == wanted[:1], run.id
            assert strongest(found) == strongest(wanted), run.id
    assert solved == 43
