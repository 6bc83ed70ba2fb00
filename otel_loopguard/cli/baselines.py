"""Baselines: other detectors, from a Python file, fed with the same labelled runs.

The file has lists `FIVE` and `EXTRAS` (either may be missing) of factories without arguments; what
they make has a `name` and::

    step(tool, args, output, error, text) -> str | None   # "<action>:<rule>"
    reset()                                               # the user spoke

`tool` is None for a model turn without a tool call; `error` is the text of a failure of the call
itself; `text` is what the model said with the turn.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from otel_loopguard.core import Action, Kind
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.faults import Faults, swallow

if TYPE_CHECKING:
    from types import ModuleType

    from otel_loopguard.core import Step
    from otel_loopguard.recordings import Run

_LISTS: Final = ("FIVE", "EXTRAS")
# Tools that run what the agent wrote: that it fails is an answer of theirs, no failure of the call.
_RUNNERS: Final = frozenset({"bash", "code_executor", "python", "sh", "shell", "sql", "terminal"})


class Baseline(Protocol):
    """A detector as the file makes it."""

    name: str

    def step(
        self,
        tool: str | None,
        args: object = None,
        output: object = None,
        error: str | None = None,
        text: str | None = None,
    ) -> str | None:
        """Takes one step; answers an action and a rule, or nothing."""
        ...

    def reset(self) -> None:
        """The user spoke."""
        ...


Factory = Callable[[], Baseline]


def load(file: str) -> Sequence[Factory]:
    """The factories in a Python file, which is run for it.

    Raises:
        LoopGuardError: There is no such file, running it fails, or it has no factories.
    """
    faults = Faults()
    module = None
    if Path(file).is_file():
        with swallow(faults, "baselines"):
            module = _module(file)
    if module is None:
        why = ", ".join(faults.counts) or "there is no such file"
        msg = f"--baselines {file}: cannot be used: {why}"
        raise LoopGuardError(msg)
    found = [factory for name in _LISTS for factory in _factories(module, name)]
    if not found:
        msg = f"--baselines {file}: has no factories, expected lists FIVE or EXTRAS"
        raise LoopGuardError(msg)
    return found


def verdicts(baseline: Baseline, run: Run, faults: Faults) -> Iterator[tuple[int, Action]]:
    """What a fresh baseline says of a run: index of the step and action, for each verdict.

    A baseline that fails is silent for the rest of the run; the fault is counted and logged.
    """
    said: tuple[int, Step] | None = None
    with swallow(faults, f"baseline {baseline.name}"):
        for index, step in enumerate(run.steps):
            if said is not None and step.kind is not Kind.TOOL:
                yield from _verdict(baseline.step(None, text=said[1].text), said[0])
            text = said[1].text if said is not None and step.kind is Kind.TOOL else None
            said = (index, step) if step.kind is Kind.MODEL else None
            if step.kind is Kind.TOOL:
                yield from _verdict(_call(baseline, step, step.text or text), index)
            elif step.kind is Kind.OTHER and step.name == "user":
                baseline.reset()
        if said is not None:
            yield from _verdict(baseline.step(None, text=said[1].text), said[0])


def _call(baseline: Baseline, step: Step, text: str | None) -> str | None:
    failed = step.error and step.name not in _RUNNERS
    error = (step.error_text or "error") if failed else None
    return baseline.step(step.name or "", step.args, None if failed else step.outcome, error, text)


def _verdict(answer: str | None, index: int) -> Iterator[tuple[int, Action]]:
    if answer:
        yield index, Action(answer.partition(":")[0])


def _module(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_loopguard_baselines", file)
    if spec is None or spec.loader is None:
        msg = "expected a Python file"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickles look their module up by its name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _factories(module: ModuleType, name: str) -> list[Factory]:
    found: object = getattr(module, name, None)
    return cast("list[Factory]", found) if isinstance(found, list) else []
