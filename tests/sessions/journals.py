"""Guards that keep journals, and what tests need around them."""

import random
from collections.abc import Sequence

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Decision, Step
from otel_loopguard.errors import StoreError
from otel_loopguard.sessions import Session
from tests.calls import call as tool_call
from tests.merged import merged
from tests.stores.memory import MemoryStore
from tests.stores.servers import wait_for as until  # noqa: F401  # what all journals wait by

KEYED: dict[str, object] = {
    "digest_key": "the key of the tests",
    "tuning": {"journal": {"read_s": 0.05, "flush_s": 0.05}},
}


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
            raise StoreError("down")
        return self.store.journal(session, after)


def guard(
    journals: object, found: list[Decision] | None = None, *, manual: bool = False,
    **settings: object,
) -> LoopGuard:  # fmt: skip
    """A live guard that keeps journals; its decisions are put into a list. All have one key."""
    return LoopGuard(
        Settings(**merged(KEYED, settings)),
        journal_store=journals,  # type: ignore[arg-type]
        manual_journals=manual,
        on_decision=lambda _, one: None if found is None else found.append(one),
    )


def call(number: int, tool: str = "search", args: object = "x", outcome: object = None) -> Step:
    """A call of two seconds right behind the one before; by default always the same."""
    said = "No results in the whole of the library." if outcome is None else outcome
    return tool_call(tool, {"q": args}, said, at=number * 2, took=2)


def new(number: int) -> Step:
    """A call that has nothing to do with any other."""
    return call(number, args=number, outcome=news(number))


def news(number: int) -> str:
    """A text that nobody has seen before."""
    rng = random.Random(number)
    return " ".join("".join(rng.choices("abcdefghijklmnop", k=9)) for _ in range(9))


def session_of(found: LoopGuard, key: str = "run") -> Session:
    """The session of a key, made if need be."""
    found.bind(1, key)
    session = found._sessions.find(key)
    assert session is not None
    return session
