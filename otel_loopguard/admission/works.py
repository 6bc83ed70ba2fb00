"""What calls amount to before they run: how long their tools take, how complex they are.

Source: FEATURES A2, A3, A5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from otel_loopguard.planning import Task, complexity
from otel_loopguard.policy import Work
from otel_loopguard.profiling import Knowledge, PlannedCall

if TYPE_CHECKING:
    from otel_loopguard.policy import Preferences
    from otel_loopguard.profiling import BatchEstimate, Estimate
    from otel_loopguard.settings import Settings

_GUESSED: Final = (Knowledge.UNKNOWN, Knowledge.DEFAULT)


class Estimator(Protocol):
    """What is known of tools from past calls: the profiler of a guard."""

    def estimate(self, tool: str, args: object = None) -> Estimate:
        """How long a call will take, from memory."""
        ...

    def batch(self, calls: Sequence[PlannedCall]) -> BatchEstimate:
        """How long several calls take, and whether they may run at the same time."""
        ...


class Works:
    """Reckons what calls amount to, for one guard; from memory.

    Args:
        settings: Settings of the guard.
        estimator: How long calls take.
    """

    def __init__(self, settings: Settings, estimator: Estimator) -> None:
        self._settings = settings
        self._estimator = estimator
        self._alone = complexity([Task("0", "one")], settings).score

    def of(self, tasks: Sequence[Task], wishes: Preferences, *, parallel: bool | None) -> Work:
        """What calls amount to.

        Args:
            tasks: The calls; at least one. What one says of its own time goes before its estimate.
            wishes: What the user prefers.
            parallel: Whether several are to run side by side; None: where no call needs another,
                all tools are declared safe, and the user prefers it.
        """
        if len(tasks) > 1:
            return self._batch(tasks, wishes, parallel)
        task = tasks[0]
        tool = task.tool or ""
        if task.estimate_ms is not None:
            return Work(1, (tool,), False, task.estimate_ms, self._alone, 0, {tool: "given"})
        return self._single(tool, self._estimator.estimate(tool, task.args))

    def known(self, tool: str, args: object) -> Work | None:
        """What one call amounts to; None where only a default for such tools is known.

        Args:
            tool: Name of the tool.
            args: Its arguments, a JSON value or text; None if they are not known.
        """
        settings, estimate = self._settings, self._estimator.estimate(tool, args)
        if estimate.source in _GUESSED:
            known = tool in settings.profile_defaults_ms
        else:
            known = estimate.records >= settings.profile_min_records
        return self._single(tool, estimate) if known else None

    def _single(self, tool: str, estimate: Estimate) -> Work:
        source = {tool: estimate.source.value}
        ms, records = estimate.duration_ms, estimate.records
        return Work(1, (tool,), False, ms, self._alone, records, source)

    def _batch(self, tasks: Sequence[Task], wishes: Preferences, parallel: bool | None) -> Work:
        calls = [PlannedCall(one.tool or "", one.args, one.id, one.depends_on) for one in tasks]
        found = self._estimator.batch(calls)
        if parallel is None:
            parallel = found.can_run_in_parallel and wishes.parallel_execution_preferred
        sources = {
            call.tool: one.source.value for call, one in zip(calls, found.estimates, strict=True)
        }
        return Work(
            len(tasks),
            tuple(sorted(sources)),
            parallel,
            found.parallel_ms if parallel else found.sequential_ms,
            complexity(tasks, self._settings).score,
            sum(one.records for one in found.estimates),
            sources,
        )
