"""The package's logger, and warnings about what the guard cannot see.

Where an application configures no logging, Python prints warnings bare on standard error; without
the name nobody could tell whose they are. What others wrote into a message (names of sessions,
tools, replies) forges no line and commands no terminal: `text.py` says what is escaped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

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
    quietly(partial(logger.warning, _BLIND_SPOTS[reason], *args))
    return True


def forget_warnings() -> None:
    """Lets every reason be warned of again, for tests."""
    with _warning:
        _warned.clear()


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
