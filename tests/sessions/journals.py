"""Guards that keep journals, and what tests need around them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.errors import StoreError
from tests.merged import merged
from tests.stores.memory import MemoryStore

if TYPE_CHECKING:
    from otel_loopguard.sessions import Session

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND


class JournalsInMemory:
    """Stores at once; `down` makes it fail to read."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.batches: list[int] = []
        self.reads = 0
        self.down = False

    def submit(self, session: str, entries: Sequence[tuple[str, bytes]]) -> None:
        self.batches.append(len(entries))
        self.store.append(session, entries)

    def journal(self, session: str, after: str | None = None) -> list[tuple[str, bytes]]:
        self.reads += 1
        if self.down:
            msg = "down"
            raise StoreError(msg)
        return self.store.journal(session, after)


def guard(journals: object, **settings: object) -> LoopGuard:
    """A live guard that keeps journals; all have one key."""
    named: dict[str, object] = {
        "digest_key": "the key of the tests",
        "tuning": {"journal": {"read_s": 0.05, "flush_s": 0.05}},
    }
    return LoopGuard(Settings(**merged(named, settings)), journal_store=journals)


def call(number: int, tool: str = "search", args: object = "x", outcome: object = None) -> Step:
    """A call of two seconds right behind the one before; by default always the same."""
    start = EPOCH + number * 2 * SECOND
    said = "No results in the whole of the library." if outcome is None else outcome
    return Step(
        Kind.TOOL, tool, args={"q": args}, outcome=said, start=start, end=start + 2 * SECOND
    )


def news(number: int) -> str:
    """A text that nobody has seen before."""
    rng = random.Random(number)
    return " ".join("".join(rng.choices("abcdefghijklmnop", k=9)) for _ in range(9))


def until(holds: Callable[[], object], limit_s: float = 60) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.005)


def session_of(found: LoopGuard, key: str = "run") -> Session:
    """The session of a key, made if need be."""
    found.bind(1, key)
    session = found._sessions.find(key)
    assert session is not None
    return session


def restarted(journals: object, calls: int, **settings: object) -> tuple[LoopGuard, Session]:
    """A new guard whose session has taken in so many calls of before."""
    new = guard(journals, **settings)
    session = session_of(new)
    until(lambda: session.journal and session.journal.before.calls == calls)
    return new, session
