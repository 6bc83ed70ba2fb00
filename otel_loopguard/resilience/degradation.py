"""Degraded results, in place of those of steps that were skipped or failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard._control.context import happened
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import BreakerOpenError, LoopGuardStop

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

_UNSET: Final = object()
_EXPECTED: Final = (BreakerOpenError, TimeoutError, ConnectionError)


@dataclass(frozen=True, slots=True)
class Degraded:
    """In place of the result of a step that did not run, or failed.

    Attributes:
        step: Name of the step.
        reason: Why, in a few words.
        value: What there is instead: nothing (None), a part, an older or a default value.
    """

    step: str
    reason: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Partial:
    """The results that a step may build on, with what is missing among them.

    Attributes:
        values: Result by step. Of a degraded one what stands in for it; one for which nothing
            does is left out.
        missing: Reason by step, for all degraded ones.
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    missing: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def complete(self) -> bool:
        """Whether no step is missing."""
        return not self.missing

    @property
    def note(self) -> str | None:
        """A sentence for the model or the user about what is missing; None if nothing is."""
        if not self.missing:
            return None
        missing = ", ".join(
            f"{step} ({reason}{'; a stand-in is used' if step in self.values else ''})"
            for step, reason in self.missing.items()
        )
        return f"This rests on partial data: {missing}."


def degraded(step: str, reason: str, value: object = None) -> Degraded:
    """The result of a step that is skipped, so that what depends on it can run. Logged.

    Args:
        step: Name of the step.
        reason: Why it is skipped, in a few words. It is logged: no content.
        value: What there is instead; it is not logged.

    Raises:
        ValueError: Name or reason is empty.
    """
    if not step or not reason:
        msg = f"a degraded result needs a step and a reason, got {step!r} and {reason!r}"
        raise ValueError(msg)
    stands_in = "nothing stands in" if value is None else "a stand-in is used"
    logger.warning("step %r is skipped: %s; %s", step, reason, stands_in)
    happened("degraded")
    return Degraded(step, reason, value)


def combined(results: Mapping[str, object]) -> Partial:
    """Splits the results of several steps into values and missing ones.

    Args:
        results: Result by step. What a `Partial` or `Degraded` among them lacks is missing
            here too, so that it is known two steps later.
    """
    found = Partial()
    new = sum(isinstance(result, Degraded) for result in results.values())
    if new:
        happened("missing_dependencies", new)
    for step, result in results.items():
        if isinstance(result, Partial):
            found.missing.update(result.missing)
            found.values[step] = result.values
        elif isinstance(result, Degraded):
            found.missing[result.step] = result.reason
            if result.value is not None:
                found.values[step] = result.value
        else:
            found.values[step] = result
    return found


class degrading:  # noqa: N801  # reads as a statement: `with resilience.degrading("search") as step:`
    """A block whose failure becomes a degraded result. Logged.

    ::

        with resilience.degrading("search", value=[]) as step:
            step.value = search(query)
        results["search"] = step.result

    What stops the session (`LoopGuardStop`) goes through, whatever `on` says. A block that sets no
    `value` gives a degraded result too, with the reason "it gave no result"; None is a value.

    Args:
        step: Name of the step.
        value: What there is instead.
        on: Errors that become a degraded result; by default an open breaker, a time-out, a
            connection that fails.

    Attributes:
        value: The result, set inside the block.
    """

    def __init__(
        self, step: str, value: object = None, *, on: tuple[type[Exception], ...] = _EXPECTED
    ) -> None:
        self._step = step
        self._instead = value
        self._on = on
        self._failed: Degraded | None = None
        self._given: object = _UNSET

    @property
    def value(self) -> object:
        """What was set inside the block; None before."""
        return None if self._given is _UNSET else self._given

    @value.setter
    def value(self, value: object) -> None:
        self._given = value

    @property
    def result(self) -> object:
        """What was set inside the block, or the `Degraded` in its place."""
        if self._failed is None and self._given is _UNSET:
            self._failed = degraded(self._step, "it gave no result", self._instead)
        return self._given if self._failed is None else self._failed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, self._on) or isinstance(error, LoopGuardStop):
            return False
        own = isinstance(error, BreakerOpenError)
        reason = "its breaker is open" if own else type(error).__name__
        self._failed = degraded(self._step, reason, self._instead)
        return True
