"""Checks before a call: what was learned from failures, and what was registered (C14)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, TypeVar

from otel_loopguard.control.shapes import Shape, change, described, shape_of
from otel_loopguard.core import ErrorClass
from otel_loopguard.faults import Faults, attempt_each
from otel_loopguard.forks import renew_after_fork
from otel_loopguard.locks import new_lock
from otel_loopguard.rehearsal import now

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_MOST: Final = 1024
_NO_ARGUMENTS: Final[Mapping[str, object]] = {}
_BY_VALUE: Final = frozenset(
    {
        "assertion", "auth", "conflict", "disk_full", "missing_module", "no_match", "not_found",
        "out_of_memory", "permission", "syntax", "unknown_name",
    }
)  # fmt: skip
"""Kinds of errors that depend on what the arguments say, or on the machine, and not on their kind.
The tool took the call."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a call would fail.

    Attributes:
        tool: Name of the tool.
        check: Name of the check that says so; `learned` for what failed before.
        reason: What would fail, in a sentence.
        change: What to change, in a sentence.
        warns: Whether it only warns, and the call may be made: what was learned is a guess.
    """

    tool: str
    check: str
    reason: str
    change: str
    warns: bool = False

    def __str__(self) -> str:
        return f"{self.reason} {self.change}"


Check = Callable[[Mapping[str, object]], "tuple[str, str] | None"]
"""Takes the arguments; gives what would fail and what to change, or None. It is run on the thread
that asks and should be quick."""


@dataclass(slots=True)
class _Failing:
    """How often one kind of call failed in a row with one kind of error, and when at last."""

    signature: str
    count: int
    at: int


class Checks:
    """What speaks against a call before it is made. Any thread may call it.

    It learns from finished calls: after `recovery_check_failures` (3) failures in a row of a tool
    with one kind of arguments and one kind of error, the next such call is warned of, until one
    goes well, or `recovery_check_ttl_s` (600) seconds after the last failure. The kind of arguments
    is their names, types and orders of magnitude; what they say is not kept. So errors that depend
    on what they say (not found, no match, permission and the like) are not learned, and show that
    a call of this kind is taken. Errors that may pass (time-outs, 429 and the like) are not learned
    either: breakers are for those. The newest 1024 kinds are kept.

    Args:
        settings: Settings of the guard.
        faults: Where checks that raise are counted; they say nothing then.
    """

    def __init__(self, settings: Settings, faults: Faults | None = None) -> None:
        self._most = settings.recovery_check_failures
        self._kept = round(settings.recovery_check_ttl_s * 1e9)
        self._warns = settings.recovery_check_learned == "warn"
        self._exempt = settings.exempt
        self._faults = faults or Faults()
        self._registered: tuple[tuple[str, str, Check], ...] = ()
        self._failing: OrderedDict[tuple[str, Shape], _Failing] = OrderedDict()
        self._good: OrderedDict[str, Shape] = OrderedDict()
        self._troubled: OrderedDict[str, int] = OrderedDict()
        self.forked()
        renew_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock."""
        # Re-entrant: a finalizer may end a span while it is held.
        self._lock = new_lock()

    def register(self, name: str, check: Check, *, tool: str = "*") -> None:
        """Adds a check; one of the same name is replaced.

        Args:
            name: Its name.
            check: Takes the arguments; gives what would fail and what to change, or None.
            tool: Which tools, as a name or a pattern such as `write_*`.

        Raises:
            ValueError: The name is empty.
        """
        if not name:
            msg = f"name of a check must be a text that is not empty, got {name!r}"
            raise ValueError(msg)
        with self._lock:
            others = tuple(known for known in self._registered if known[0] != name)
            self._registered = (*others, (name, tool, check))

    def of(self, tool: str, args: Mapping[str, object] | None = None) -> tuple[Problem, ...]:
        """Everything that speaks against a call; empty if nothing does.

        Args:
            tool: Name of the tool.
            args: Its arguments by name.
        """
        learned = self.learned(tool, args)
        given = _NO_ARGUMENTS if args is None else args
        fitting = [(name, run) for name, which, run in self._registered if fnmatchcase(tool, which)]
        found, _ = attempt_each(self._faults, fitting, given)
        problems = [Problem(tool, name, *said) for name, said in found]
        return tuple(problems if learned is None else [learned, *problems])

    def learned(self, tool: str, args: object) -> Problem | None:
        """What failed before like this, from memory alone: no registered check is run.

        Args:
            tool: Name of the tool.
            args: Its arguments: a mapping, or any other value.
        """
        if tool not in self._troubled:
            return None
        shape = shape_of(args)
        failing = self._failing.get((tool, shape))
        if failing is None or failing.count < self._most or now() - failing.at > self._kept:
            return None
        reason = (
            f"{tool!r} with arguments of this kind ({described(shape)}) failed {failing.count} "
            f"times in a row: {failing.signature.replace('_', ' ')}."
        )
        return Problem(tool, "learned", reason, change(shape, self._good.get(tool)), self._warns)

    def finished(
        self,
        tool: str,
        args: object,
        error: bool,
        error_class: ErrorClass = ErrorClass.UNKNOWN,
        signature: str | None = None,
    ) -> None:
        """Learns from a call that ended. Waits for nothing.

        Args:
            tool: Name of the tool.
            args: Its arguments; None if they were not captured: nothing is learned.
            error: Whether it failed.
            error_class: What class of error it was; transient ones are not learned.
            signature: What kind of error it was (`not_found`, …); None if nothing was said.
        """
        if args is None or tool in self._exempt:
            return
        if error and signature in _BY_VALUE:
            if tool in self._troubled:
                self._forget(tool, shape_of(args))
        elif error and error_class is not ErrorClass.TRANSIENT:
            self._failed(tool, shape_of(args), signature or "an error without a text")
        elif not error and (tool in self._troubled or tool not in self._good):
            self._went_well(tool, shape_of(args))

    def _failed(self, tool: str, shape: Shape, signature: str) -> None:
        with self._lock:
            failing = self._failing.get((tool, shape))
            kinds = self._troubled.get(tool, 0) + (failing is None)
            _put(self._troubled, tool, kinds)
            time = now()
            if failing is None or failing.signature != signature or time - failing.at > self._kept:
                failing = _Failing(signature, 0, time)
            failing.count += 1
            failing.at = time
            _put(self._failing, (tool, shape), failing)

    def _went_well(self, tool: str, shape: Shape) -> None:
        with self._lock:
            self._forget(tool, shape)
            _put(self._good, tool, shape)

    def _forget(self, tool: str, shape: Shape) -> None:
        """Calls of this kind are taken: what failed before is over."""
        with self._lock:
            if self._failing.pop((tool, shape), None) is not None:
                kinds = self._troubled.pop(tool, 1) - 1
                if kinds > 0:
                    _put(self._troubled, tool, kinds)


_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _put(table: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > _MOST:
        table.popitem(last=False)
