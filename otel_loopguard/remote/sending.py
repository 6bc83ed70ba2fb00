"""A change of control, told to the processes on one store."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from otel_loopguard.remote.notice import Notice
from otel_loopguard.remote.order import stands
from otel_loopguard.stores import Told

if TYPE_CHECKING:
    from otel_loopguard.stores import Store

_EARLY_NS: Final = 60 * 10**9
"""Nanoseconds that the clock of another host may be ahead."""
KIND: Final = "control"
"""Kind of the values in the store, and topic on which they are published."""


def told(notice: Notice, ttl_s: float) -> Told:
    """A notice as a writer takes it: put for those who come later, and published.

    Args:
        notice: The notice.
        ttl_s: Seconds that it is kept; not longer than the notice itself says.
    """
    left = ttl_s if notice.until is None else (notice.until - notice.at) / 1e9
    kept_s = max(0.001, min(left, ttl_s))
    return Told(notice.encode(), kept_s, KIND, partial(_goes_before, notice))


def send(store: Store, notice: Notice, ttl_s: float) -> None:
    """Tells all processes on a store of a change of control, now. Blocks: not for a hook.

    Args:
        store: The store.
        notice: The notice; its session as `wire_name` gives it.
        ttl_s: As of `told`; a guard's setting is `control_ttl_s`.

    Raises:
        StoreError: The store cannot be reached.
    """
    told(notice, ttl_s).do(store, KIND, notice.session)


def _goes_before(notice: Notice, raw: bytes) -> bool:
    """Whether what is in the store stays there. What is no notice does not."""
    standing = Notice.decode(raw)
    # One that says to be of the future would stand for ever.
    if standing is None or standing.at > time.time_ns() + _EARLY_NS:
        return False
    return stands(standing, notice)
