"""Other detectors, from a Python file, on labelled runs: see `lab.evaluate --baselines`.

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

from otel_loopguard._util.errors import InternalErrors, swallow
from otel_loopguard.core import Action, Kind
from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    from types import ModuleType

    from otel_loopguard.core import Step
    from otel_loopguard.replay import Run

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

    def reset(self) -> None:
        """The user spoke."""


Factory = Callable[[], Baseline]


def load(file: str) -> Sequence[Factory]:
    """The factories in a Python file, which is run for it."""
    faults = InternalErrors()
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


def verdicts(baseline: Baseline, run: Run, faults: InternalErrors) -> Iterator[tuple[int, Action]]:
    """The verdicts of a fresh baseline on a run: index of the step, and action.

    A baseline that fails is silent for the rest of the run; the fault is counted and logged.
    """
    message: tuple[int, Step] | None = None
    with swallow(faults, f"baseline {baseline.name}"):
        for index, step in enumerate(run.steps):
            if message is not None and step.kind is not Kind.TOOL:
                yield from _verdict(baseline.step(None, text=message[1].text), message[0])
            text = message[1].text if message is not None and step.kind is Kind.TOOL else None
            message = (index, step) if step.kind is Kind.MODEL else None
            if step.kind is Kind.TOOL:
                yield from _verdict(_call(baseline, step, step.text or text), index)
            elif step.kind is Kind.OTHER and step.name == "user":
                baseline.reset()
        if message is not None:
            yield from _verdict(baseline.step(None, text=message[1].text), message[0])


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
