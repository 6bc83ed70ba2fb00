"""The guard on the labelled runs of real agents, also where spans carry less or more than that.

These are bounds, not the figures themselves (docs/project/evaluation.md has those): they hold with
a little room, so that they catch a rule that hurts, and not the last run.
"""

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.replay import Recording, Run, replay_run
from tests.golden.decisions import golden
from tests.tables import rows

NAMES = (
    "trail magentic captainagent sentinel miniswe taubench intercode sweagent "
    "codetracer-claude codetracer-kimi"
)
SOURCES = (*(f"traces/{name}.jsonl.gz" for name in NAMES.split()), "eval/scenarios.jsonl")
HEALTHY = {
    "neg_success": 471, "neg_human_annotated": 42, "neg_llm_ledger": 11, "neg_scenario": 9,
}  # fmt: skip
STUCK = ("pos_human", "pos_llm_ledger", "pos_injected", "pos_scenario")

LACKS: dict[str, dict[str, None]] = {
    "as recorded": {},
    # Instrumentations leave results out by default, some the arguments, some both; what an error
    # said is there, unless they give nothing but names.
    "without outcomes": {"outcome": None},
    "without arguments": {"args": None},
    "without either": {"args": None, "outcome": None},
    "names only": {"args": None, "outcome": None, "error_text": None},
}
VOLATILE = "with volatile values"


def changed(step: Step, change: str, dice: random.Random) -> Step:
    """A call as instrumentations tell it.

    Volatile are a fresh id in all arguments, a clock before and a duration behind every outcome.
    """
    if step.kind is not Kind.TOOL:
        return step
    if change in LACKS:
        return replace(step, **LACKS[change])
    args, outcome, error_text = step.args, step.outcome, step.error_text
    if isinstance(args, dict):
        args = {**args, "request_id": str(uuid.UUID(int=dice.getrandbits(128)))}
    if isinstance(outcome, str) and outcome:
        clock = f"10:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
        outcome = f"{clock} {outcome} (took {dice.randrange(900)} ms)"
        error_text = outcome if error_text is not None else None
    return replace(step, args=args, outcome=outcome, error_text=error_text)


@cache
def runs(shared: Path) -> tuple[tuple[str, Run], ...]:
    """The runs that say something: with a label, or of a benchmark that knows how they ended."""
    found: list[tuple[str, Run]] = []
    for source in SOURCES:
        for run in Recording(str(shared / source), lambda *_: None):
            assert isinstance(run, Run)
            if run.loop is not None or _ended(run):
                found.append((Path(source).name, run))
    return tuple(found)


@cache
def judged(shared: Path, change: str) -> Counter[str]:
    """Runs, noticed and stopped, by tier, and by benchmark and how a run ended."""
    found: Counter[str] = Counter()
    for run, actions in _decided(shared, change):
        for kind in _kinds(run):
            found[kind] += 1
            found[f"{kind} noticed"] += any(one is not Action.ALLOW for one in actions)
            found[f"{kind} stopped"] += any(one.stops for one in actions)
    return found


def _kinds(run: Run) -> list[str]:
    return [kind for kind in (run.loop is not None and run.tier, _ended(run)) if kind]


def _ended(run: Run) -> str:
    """How a run of InterCode or of CodeTracer's coding agents ended."""
    bench, _, _ = run.id.partition("/")
    if bench not in ("intercode", "codetracer") or run.success is None:
        return ""
    return f"{bench} {'succeeded' if run.success else 'failed'}"


def _decided(shared: Path, change: str) -> Iterator[tuple[Run, list[Action]]]:
    """As recorded, it is what `tests/golden` holds every run to."""
    dice, known = random.Random(7), golden()
    for file, run in runs(shared):
        if change == "as recorded":
            told = known.get((file, run.id))
            yield run, [Action(one.split()[1]) for one in (told.decisions if told else ())]
        elif run.loop is not None:
            actions: list[Action] = []
            listen = lambda _, one, found=actions: found.append(one.action)  # noqa: E731
            guard = LoopGuard(Settings(), clock="replay", on_decision=listen)
            steps = [changed(step, change, dice) for step in run.steps]
            replay_run(guard, replace(run, steps=steps))
            guard.shutdown()
            yield run, actions


def tiers(found: Counter[str], names: dict[str, int], level: str = "") -> dict[str, int]:
    """How many runs of each tier, or of each tier that were noticed or stopped."""
    return {name: found[f"{name} {level}".strip()] for name in names}


@pytest.mark.parametrize("change", [*LACKS, VOLATILE])
def test_no_healthy_run_is_stopped_and_few_are_noticed(shared: Path, change: str) -> None:
    """Whatever the spans carry: of 533 healthy runs none is stopped, and few get a hint.

    With clocks and ids everywhere one stuck run less of a tier is noticed, and two healthy ones
    more.
    """
    found = judged(shared, change)
    assert tiers(found, HEALTHY) == HEALTHY
    assert tiers(found, HEALTHY, "stopped") == dict.fromkeys(HEALTHY, 0)
    assert sum(tiers(found, HEALTHY, "noticed").values()) <= 15
    plain = judged(shared, "as recorded") if change == VOLATILE else found
    for tier in (*STUCK, *HEALTHY):
        more = found[f"{tier} noticed"] - plain[f"{tier} noticed"]
        assert more >= -1 if tier in STUCK else more <= 2, tier


@pytest.mark.parametrize(("kind", "runs", "noticed", "stopped"), rows(__file__, "recorded"))
def test_as_recorded(shared: Path, kind: str, runs: str, noticed: str, stopped: str) -> None:
    """How many runs of a kind are noticed and stopped, at least and at most."""
    found = judged(shared, "as recorded")
    assert found[kind] == int(runs)
    for level, bounds in (("noticed", noticed), ("stopped", stopped)):
        least, most = map(int, bounds.split())
        assert least <= found[f"{kind} {level}"] <= most
