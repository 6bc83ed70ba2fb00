"""Families of made-up runs: each is a way to be stuck, or to be well, drawn from a seed."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from tests.scenarios import (
    healthy_agents,
    healthy_coding,
    healthy_coding_more,
    healthy_everyday,
    healthy_supervisors,
    healthy_texts,
    healthy_turns,
    healthy_waiting,
    healthy_work,
    stuck,
    stuck_agents,
    stuck_coding,
    stuck_failures,
    stuck_handoffs,
    stuck_texts,
    undecided,
)
from tests.scenarios.prefixes import TRADES
from tests.scenarios.tape import Tape

if TYPE_CHECKING:
    from otel_loopguard.core import Step


@dataclass(frozen=True)
class Family:
    """One way to be stuck, or to be well.

    Attributes:
        name: Its name.
        stuck: Whether its runs get nowhere.
        write: Writes one run on a tape.
    """

    name: str
    stuck: bool
    write: Callable[[Tape], None]

    def run(self, seed: int) -> tuple[list[Step], int]:
        """The steps of one run, and the index of the first that does not belong to the beginning.

        Every second seed has model calls between tool calls; every run begins with 3 to 8 healthy
        calls of some trade; every third seed of a stuck family has healthy calls in between, where
        the family leaves room for them.
        """
        tape = Tape(random.Random(f"{self.name} {seed}"), spoken=seed % 2 == 1)
        trade = tape.dice.choice(TRADES)
        for _ in range(tape.dice.randrange(3, 9)):
            trade(tape)
        onset = len(tape.steps)
        tape.between = trade if seed % 3 == 2 else None
        self.write(tape)
        return tape.steps, onset


def _families(module: ModuleType, *, stuck: bool) -> list[Family]:
    return [
        Family(name, stuck, write)
        for name, write in vars(module).items()
        if inspect.isfunction(write) and write.__module__ == module.__name__ and name[0] != "_"
    ]


STUCK = [
    family
    for module in (
        stuck,
        stuck_failures,
        stuck_agents,
        stuck_coding,
        stuck_texts,
        stuck_handoffs,
    )
    for family in _families(module, stuck=True)
]
HEALTHY = [
    family
    for module in (
        healthy_waiting,
        healthy_coding,
        healthy_coding_more,
        healthy_work,
        healthy_agents,
        healthy_texts,
        healthy_supervisors,
    )
    for family in _families(module, stuck=False)
]
EVERYDAY = [
    family
    for module in (healthy_everyday, healthy_turns)
    for family in _families(module, stuck=False)
]
"""Everyday work. Nothing of it may be stopped, and those that `HINTED` does not name, not noticed.

`python -m tests.scenarios.everyday FILE` writes them for `otel-loopguard eval`.
"""
HINTED = healthy_everyday.HINTED
OPEN = _families(undecided, stuck=False)
"""Nobody can tell from outside whether these are stuck."""
