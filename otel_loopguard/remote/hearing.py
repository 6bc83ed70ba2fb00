"""Who is told of what is heard: held weakly, so that a guard ends when nobody holds it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Protocol

from otel_loopguard.control.watchers import WATCHERS
from otel_loopguard.faults import swallow
from otel_loopguard.locks import new_lock
from otel_loopguard.remote.notice import Notice

if TYPE_CHECKING:
    from otel_loopguard.control import Flag
    from otel_loopguard.faults import Faults


class Hearer(Protocol):
    """Hears of flags of this process, and of other processes."""

    faults: Faults

    def changed(self, flag: Flag) -> None:
        """A flag of this process was changed."""
        ...

    def hear(self, notice: Notice, *, late: bool = False) -> bool:
        """Another process tells something; `late` if it was looked up."""
        ...

    def look_again(self) -> None:
        """Something may have been missed."""
        ...


Weakly = weakref.ref[Hearer]

_hearers: tuple[Weakly, ...] = ()
_joining = new_lock()


def weakly(hearer: Hearer) -> Weakly:
    """A weak reference."""
    return weakref.ref(hearer)


def join(hearer: Hearer) -> None:
    """Has one hear of changed flags, and of baggage, as long as it lives."""
    global _hearers  # noqa: PLW0603
    reference = weakly(hearer)

    def changed(flag: Flag) -> None:
        found = reference()
        if found is not None:
            with swallow(found.faults, "sharing"):
                found.changed(flag)

    WATCHERS.add(changed)
    weakref.finalize(hearer, WATCHERS.drop, changed).atexit = False
    with _joining:
        _hearers = (*(known for known in _hearers if known() is not None), reference)


def hear_all(notice: Notice) -> None:
    """Tells every guard of this process what came in baggage."""
    for reference in _hearers:
        found = reference()
        if found is not None:
            with swallow(found.faults, "sharing"):
                found.hear(notice)


def heard(hearer: Weakly, raw: bytes) -> None:
    """Something was published."""
    _tell(hearer, raw, late=False)


def found(hearer: Weakly, raw: bytes | None) -> None:
    """Something was looked up."""
    if raw is not None:
        _tell(hearer, raw, late=True)


def joined(hearer: Weakly) -> None:
    """What is published is heard from now on."""
    known = hearer()
    if known is not None:
        with swallow(known.faults, "sharing"):
            known.look_again()


def _tell(hearer: Weakly, raw: bytes, *, late: bool) -> None:
    known = hearer()
    if known is None:
        return
    with swallow(known.faults, "sharing"):
        notice = Notice.decode(raw)
        if notice is None:
            msg = f"no notice: {raw[:100]!r}"
            raise ValueError(msg)
        known.hear(notice, late=late)
