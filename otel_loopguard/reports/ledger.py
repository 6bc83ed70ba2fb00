"""Which decision was made about which session, for whoever comes back to it later."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.reports.record import Record

_KEPT: Final = 4096


class _Entry:
    __slots__ = ("false_alarm", "record")

    def __init__(self, record: Record) -> None:
        self.record = weakref.ref(record)
        self.false_alarm: bool | None = None


class Ledger:
    """The newest 4096 decisions of a guard, and what people said of them (A10).

    Not thread-safe: the guard's lock is held.

    Attributes:
        told: How many decisions are a false alarm (True), or right (False), as people said last.
    """

    __slots__ = ("_entries", "told")

    def __init__(self) -> None:
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.told: Counter[bool] = Counter()

    def enter(self, decision_id: str, record: Record) -> None:
        """Takes a decision about the session of a record."""
        self._entries[decision_id] = _Entry(record)
        if len(self._entries) > _KEPT:
            self._entries.popitem(last=False)

    def feedback(self, decision_id: str, *, false_alarm: bool) -> bool:
        """Counts what a person says of a decision; whoever speaks last is right.

        Returns:
            False if the decision, or its session, is not known any more.
        """
        entry = self._entries.get(decision_id)
        record = None if entry is None else entry.record()
        if entry is None or record is None:
            return False
        if entry.false_alarm is not None:
            record.told(false_alarm=entry.false_alarm, times=-1)
            self.told[entry.false_alarm] -= 1
        entry.false_alarm = false_alarm
        record.told(false_alarm=false_alarm)
        self.told[false_alarm] += 1
        return True
