"""How many tasks wait for a worker: a callable, a Redis list, Celery or RQ on Redis.

Source: FEATURES A7. The layouts are those of the brokers: Celery (kombu) keeps a queue in the list
of its name, and one more list per priority; RQ in `rq:queue:<name>`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.faults import attempt, swallow

if TYPE_CHECKING:
    from otel_loopguard.faults import Faults

_WAIT_S: Final = 0.5
_PRIORITIES: Final = ("\x06\x163", "\x06\x166", "\x06\x169")
_NAMES: Final = {"celery": "celery", "rq": "default"}
_EXPECTED: Final = (
    "module:function, redis://host/0#list, celery+redis://host/0#queue or rq+redis://host/0#queue"
)

Depth = Callable[[], "int | None"]


def queue_depth(place: str, faults: Faults) -> Depth | None:
    """What gives the number of waiting tasks; it may block, and raises nothing.

    Args:
        place: As in the setting `execution_queue`; empty: nowhere.
        faults: Counts when it cannot be asked; the depth is then not known.

    Raises:
        LoopGuardSettingsError: The place cannot be read, or its library is not installed.
    """
    if not place:
        return None
    if "://" in place:
        return _RedisQueue(place, faults)
    module, _, name = place.partition(":")
    if not module or not name:
        raise _unusable(place, f"expected {_EXPECTED}")
    try:
        found: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise _unusable(place, str(error)) from None
    if not callable(found):
        raise _unusable(place, "is not callable")
    return guarded_depth(cast("Callable[[], object]", found), faults)


def guarded_depth(ask: Callable[[], object], faults: Faults) -> Depth:
    """A callable of the application's that gives a depth, so that it may fail.

    Args:
        ask: Gives the number of waiting tasks.
        faults: Counts when it raises, or gives no number from 0 on.
    """

    def depth() -> int | None:
        return attempt(faults, "queue", _number, ask)

    return depth


class _RedisQueue:
    """Length of the lists of a queue on Redis."""

    def __init__(self, place: str, faults: Faults) -> None:
        kind, _, rest = place.partition("+")
        if not rest:
            kind, rest = "", place
        url = urlsplit(rest)
        name = unquote(url.fragment) or _NAMES.get(kind, "")
        if url.scheme not in ("redis", "rediss") or kind not in ("", *_NAMES) or not name:
            raise _unusable(place, f"expected {_EXPECTED}")
        self._keys = _keys(kind, name)
        self._client = _client(place, url._replace(fragment="").geturl())
        self._faults = faults

    def __call__(self) -> int | None:
        with swallow(self._faults, "queue"):
            asked: Any = self._client.pipeline(transaction=False)
            for key in self._keys:
                asked.llen(key)
            return sum(int(length) for length in asked.execute())
        return None


def _keys(kind: str, name: str) -> tuple[str, ...]:
    if kind == "rq":
        return (f"rq:queue:{name}",)
    if kind == "celery":
        return (name, *(f"{name}{priority}" for priority in _PRIORITIES))
    return (name,)


def _client(place: str, url: str) -> Any:
    try:
        redis: Any = importlib.import_module("redis")
    except ImportError:
        raise _unusable(place, "needs: pip install 'otel-loopguard[redis]'") from None
    return redis.Redis.from_url(url, socket_timeout=_WAIT_S, socket_connect_timeout=_WAIT_S)


def _number(ask: Callable[[], object]) -> int:
    found = ask()
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not found >= 0:
        msg = f"a queue depth must be a number from 0 on, got {found!r:.100}"
        raise ValueError(msg)
    return int(found)


def _unusable(place: str, why: str) -> LoopGuardSettingsError:
    shown = place.rpartition("@")[2]  # a password in a URL is not repeated
    return LoopGuardSettingsError(f"execution_queue (LOOPGUARD_EXECUTION_QUEUE) = {shown!r}: {why}")
