"""The one place that swallows exceptions, and the package's logger.

What a hook of a span processor raises reaches the user's code, for the SDK catches nothing. So
whatever may fail runs inside `swallow` or `attempt`, or passes what it caught to
`InternalErrors.caught`: the fault is counted, logged once per kind, and the agent goes on.
`raise_faults(True)` raises faults again, in the project's own tests only: others should not fail
for a fault of ours. What a handler of a signal raises, a limit of time of the application's say,
goes on as an interrupt does: it only came while the guard was at work.

Where an application configures no logging, Python prints warnings bare on standard error; without
the name nobody could tell whose they are. What others wrote into a message (names of sessions,
tools, replies) forges no line and commands no terminal: `text.py` says what is escaped.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeVar

from otel_loopguard._util.clock import off
from otel_loopguard._util.locks import held, later, new_lock
from otel_loopguard._util.tables import read_texts
from otel_loopguard._util.text import printable

_PREFIX: Final = "otel-loopguard: "
_USUAL: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None)))
_PLAIN: Final = (int, float, type(None))

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # Python 3.10 cannot subscript it
    _Adapter = logging.LoggerAdapter


class Log(_Adapter):
    """Logs to `otel_loopguard`, in the name of the package; `extra=` of a call is kept.

    Args:
        of: Whose lines these are, where a process has several guards; empty: not said.
    """

    def __init__(self, of: str = "") -> None:
        super().__init__(logging.getLogger("otel_loopguard"), {})
        self._of = of

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        # A handler may wait for a thread that waits for a lock of ours.
        if not self.isEnabledFor(level):
            return
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        if self._of:
            msg, args = f"%s: {msg if args else str(msg).replace('%', '%%')}", (self._of, *args)
        say = partial(super().log, level, msg, *args, **kwargs)
        if held():
            later(partial(quietly, say))
        else:
            say()

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        return f"{_PREFIX}{msg}", kwargs


def quietly(say: Callable[[], object]) -> None:
    """Logs without letting a failing handler raise into the agent."""
    with suppress(Exception):
        say()


class _Shown:
    """Lazily formatted, sanitised log argument."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __str__(self) -> str:
        return printable(str(self._value))

    def __repr__(self) -> str:
        return printable(repr(self._value))


def _safe(record: logging.LogRecord) -> bool:
    """Makes what a record says safe, whichever handler prints it; a filter that keeps all."""
    if isinstance(record.msg, str):
        record.msg = printable(record.msg)
    args: Any = record.args
    if isinstance(args, Mapping):
        record.args = {name: _shown(value) for name, value in args.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif args:
        record.args = tuple(_shown(value) for value in args)
    for name in vars(record).keys() - _USUAL:
        value = getattr(record, name)
        if isinstance(value, str):
            setattr(record, name, printable(value))
    return True


def _shown(value: object) -> object:
    if isinstance(value, str):
        return printable(value)
    return value if isinstance(value, _PLAIN) else _Shown(value)


logger: Final = Log()

logger.logger.addFilter(_safe)


# Read on import: what a processor or an agent's loop calls reads no file.
_BLIND_SPOTS: Final = read_texts(__name__, "blind_spots.txt")
_warned: Final[set[str]] = set()
"""The reasons that were warned of. Reasons are literals of ours, so there are few."""
_warning = new_lock()


def warn_blind(reason: str, *args: object) -> bool:
    """Logs a warning of `blind_spots.txt`, the first time that this process has this reason.

    Never call it with the guard's lock held: a log handler may wait for a thread that waits for it.
    """
    if off():
        return False
    with _warning:
        if reason in _warned:
            return False
        _warned.add(reason)
    quietly(partial(logger.warning, _BLIND_SPOTS[reason], *args, extra={"blind": reason}))
    return True


_KEYS: Final = 256
"""Keys that are warned of: a reader of so many knows that all is broken."""


class LogOnce:
    """Logs one warning about each key of a part; beyond 256 keys nothing more is logged."""

    def __init__(self, part: str, log: Log | None = None) -> None:
        self._part = part
        self._log = logger if log is None else log
        # No lock: a warning that two threads log twice does no harm.
        self._logged: set[str] = set()

    def log(self, key: str, what: str) -> None:
        """Logs a warning, the first time that it is about this key."""
        if key not in self._logged and len(self._logged) < _KEYS:
            self._logged.add(key)
            self._log.warning("%s: %s", self._part, what)


_KINDS: Final = 256
"""Kinds of faults that are counted apart. Some 100 places catch faults, of few classes; only names
of users' own functions could make it more."""
_FRAMES: Final = 6
"""Innermost frames of a fault that are logged: from what failed to who asked for it."""


class InternalErrors:
    """Counts faults by kind (`where:ExceptionClass`) and logs the first of each kind.

    Attributes:
        counts: How often each kind was seen; past 256 kinds all others are one.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = new_lock()

    def note(self, where: str, fault: BaseException) -> None:
        """Counts one fault, and logs it if it is the first of its kind: where, not its message.

        What raised it may have put content into its message, unless nothing did: then it is ours.

        Raises:
            BaseException: A handler of a signal raised this fault.
        """
        if is_of_signal(fault):
            raise fault
        kind = f"{where}:{type(fault).__name__}"
        with self._lock:
            if kind not in self.counts and len(self.counts) >= _KINDS:
                kind = "other"
            self.counts[kind] += 1
            first = self.counts[kind] == 1
        if first:
            try:
                place = place_of(fault, _FRAMES) or fault
                logger.warning("%s failed and was skipped: %s", kind, place, extra={"fault": kind})
            except Exception:  # noqa: BLE001
                # A log handler that throws must not do so into the agent.
                with self._lock:
                    self.counts["log:" + kind] += 1

    def caught(self, where: str, fault: Exception) -> None:
        """Counts and logs what an `except` clause of a hot path caught.

        Cheaper than `swallow` and `attempt`, which cost a call where nothing fails.
        """
        self.note(where, fault)
        if _raising:
            raise fault


def is_of_signal(fault: BaseException) -> bool:
    """True if a fault came out of a handler of a signal, which Python calls on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(one, "__code__", None) for one in handlers if callable(one)}
    return any(frame.f_code in codes for frame, _ in walk_tb(fault.__traceback__))


def place_of(fault: BaseException, frames: int) -> str:
    """The innermost frames that an exception came through; empty if it was not raised."""
    codes = [(frame.f_code, line) for frame, line in walk_tb(fault.__traceback__)][-frames:]
    places: list[str] = []
    for code, line in codes:
        file = code.co_filename.split(os.sep)[-2:]  # noqa: PTH206  # pathlib is not imported yet
        places.append(f"{'/'.join(file)}:{line} {code.co_name}")
    return " > ".join(places)


_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")
_raising = False


def raise_faults(raising: bool) -> None:
    """Says whether faults are raised again after they were counted; the default is no."""
    global _raising  # noqa: PLW0603
    _raising = raising


def attempt(
    faults: InternalErrors, where: str, function: Callable[[_Argument], _Result], given: _Argument
) -> _Result | None:
    """Calls a function; returns None for an `Exception`, which is counted and logged."""
    try:
        return function(given)
    except Exception as fault:
        faults.note(where, fault)
        if _raising:
            raise
        return None


class swallow:  # noqa: N801  # reads as a statement: `with swallow(faults, "on_end"):`
    """Swallows, counts and logs any `Exception` raised inside the block."""

    __slots__ = ("_faults", "_where")

    def __init__(self, faults: InternalErrors, where: str) -> None:
        self._faults = faults
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, fault: BaseException | None, _traceback: object) -> bool:
        if not isinstance(fault, Exception):
            return False
        self._faults.note(self._where, fault)
        return not _raising
