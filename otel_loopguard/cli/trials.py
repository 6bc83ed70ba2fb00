"""Trials: the same runs under other thresholds, in worker processes where there are many."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from types import TracebackType
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.log import keep_faults
from otel_loopguard.cli.replay import account_of
from otel_loopguard.cli.stop_line import at_line
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardError

if TYPE_CHECKING:
    from typing_extensions import Self

    from otel_loopguard.recordings import Run
    from otel_loopguard.settings import Settings

SENSITIVITIES: Final = (0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0)
"""What all thresholds are divided by, one after the other."""

LINES: Final = 4
"""Stop lines that are tried: 1 to this."""

_BATCH: Final = 16
_FEW: Final = 64


@dataclass(frozen=True, slots=True)
class Trial:
    """What the guard said of one run at one sensitivity.

    Attributes:
        sensitivity: What the thresholds were divided by.
        noticed: Whether there was a hint or stronger.
        stopped: Whether there was a stop, at the stop line of the settings.
        line: The highest stop line tried at which it is stopped; 0 if it is at none.
    """

    sensitivity: float
    noticed: bool
    stopped: bool
    line: int


Tried = tuple[Trial, ...]
"""The trials of one run, in the order of `SENSITIVITIES`."""


def tried(run: Run, settings: Settings, lines: int) -> Tried:
    """Tries every sensitivity on a run, and at each the stop lines from 1 to `lines`."""
    return tuple(_trial(run, settings, sensitivity, lines) for sensitivity in SENSITIVITIES)


class Trials:
    """Tries runs one after the other; few at once are held, whatever their number.

    The first 64 runs are tried here; if there are more, all are given to worker processes. The
    results are the same and come in the order of the runs.

    Args:
        settings: Settings that the trials start from.
        lines: Stop lines that are tried: 1 to this; 0 for none.
        jobs: Worker processes; with 1 there are none.
    """

    def __init__(self, settings: Settings, lines: int, jobs: int) -> None:
        self._settings = settings
        self._lines = lines
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._batch: list[Run] = []
        self._waiting: deque[Future[list[Tried]]] = deque()
        self._results: list[Tried] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=kind is not None)

    def add(self, run: Run) -> None:
        """Takes one run."""
        if self._jobs <= 1:
            self._results.append(tried(run, self._settings, self._lines))
            return
        self._batch.append(run)
        if len(self._batch) >= (_BATCH if self._pool else _FEW):
            self._send()

    def results(self) -> list[Tried]:
        """The trials of all runs, in their order; waits for those under way.

        Raises:
            LoopGuardError: The worker processes ended before their time.
        """
        if self._pool is None:
            self._results += [tried(run, self._settings, self._lines) for run in self._batch]
        else:
            self._send()
        self._batch = []
        while self._waiting:
            self._take()
        return self._results

    def _send(self) -> None:
        """Gives what is gathered to the workers, and waits if they have enough to do."""
        if self._pool is None:
            # Started anew and not forked: a fork would take over threads and locks.
            self._pool = ProcessPoolExecutor(
                self._jobs, mp_context=get_context("spawn"), initializer=keep_faults
            )
        batch, self._batch = self._batch, []
        for first in range(0, len(batch), _BATCH):
            part = batch[first : first + _BATCH]
            self._waiting.append(self._pool.submit(_try_all, part, self._settings, self._lines))
        while len(self._waiting) > 2 * self._jobs + _FEW // _BATCH:
            self._take()

    def _take(self) -> None:
        try:
            self._results += self._waiting.popleft().result()
        except BrokenProcessPool as error:
            msg = f"the worker processes ended before their time ({error}); try --jobs 1"
            raise LoopGuardError(msg) from error


def _try_all(runs: Sequence[Run], settings: Settings, lines: int) -> list[Tried]:
    return [tried(run, settings, lines) for run in runs]


def _trial(run: Run, settings: Settings, sensitivity: float, lines: int) -> Trial:
    scaled = settings.model_copy(update={"sensitivity": sensitivity})
    strongest = account_of(run, scaled).strongest
    noticed = strongest.rank >= Action.HINT.rank
    line = 0
    # What is not noticed is stopped nowhere, and what one line does not stop, no higher one does.
    while noticed and line < lines and _stops(run, at_line(scaled, line + 1)):
        line += 1
    return Trial(sensitivity, noticed, strongest.stops, line)


def _stops(run: Run, settings: Settings) -> bool:
    return account_of(run, settings).strongest.stops
