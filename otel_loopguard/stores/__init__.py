"""Storage that outlives a process: Redis, behind a thread that writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util.errors import Log, logger
from otel_loopguard.settings import Settings, needing
from otel_loopguard.stores.write_behind import PublishedValue, State, Writer

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.stores.redis import RedisStore

__all__ = ["PublishedValue", "State", "Writer", "open_store", "open_writer"]


def open_store(settings: Settings, *, least_s: float = 0.0) -> RedisStore:
    """The store that `store_url` names. Connects to nothing yet.

    Args:
        settings: Settings.
        least_s: Seconds that a call may take at least, whatever `tuning.stores.timeout_s` says.

    Raises:
        LoopGuardSettingsError: The address is empty or cannot be used, or the extra `redis` is
            missing.
    """
    with needing("store_url (LOOPGUARD_STORE_URL)", "redis", "redis"):
        from otel_loopguard.stores.redis import RedisStore  # noqa: PLC0415  # an extra
    return RedisStore(settings, least_s=least_s)


def open_writer(settings: Settings, faults: InternalErrors, log: Log = logger) -> Writer:
    """The writer of a guard, with the store that its settings name.

    Without `digest_key` it warns: each process then has a key of its own. The store cannot keep a
    common one: whoever reads the store could search its digests for arguments.

    Raises:
        LoopGuardSettingsError: As of `open_store`.
    """
    if not settings.digest_key:
        logger.warning(
            "store_url is set, and digest_key is not: no other process, and none after a restart, "
            "can go on with what this one saw of a session; set the same digest_key "
            "(LOOPGUARD_DIGEST_KEY, at least 16 bytes) in all of them"
        )
    return Writer(open_store(settings), settings, faults, log)
