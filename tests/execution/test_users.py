"""What users prefer and answered: in memory, in a store, and from a store that has strange data."""

import json
from collections.abc import Callable

import orjson
import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Choice
from otel_loopguard.execution.users import Users
from tests.stores.memory import MemoryStore
from tests.tables import rows

SYNC, BACKGROUND = Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND


class Keeping:
    """A writer that asks at once, or waits until it is let go, or is down."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.put = store, store.put
        self.waits = self.down = False
        self.waiting: list[Callable[[], None]] = []

    def ask(self, read, then, failed=None) -> bool:  # type: ignore[no-untyped-def]
        if not self.down:
            self.waiting.append(lambda: then(read(self.store)))
        if not self.waits:
            self.go()
        return not self.down

    def go(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def users(store: MemoryStore | None = None, **given: object) -> Users:
    return Users(Settings(**given), None if store is None else Keeping(store))  # type: ignore[arg-type]


def test_the_settings_are_what_everybody_prefers() -> None:
    """The defaults, and what a process sets otherwise; one user changes their own only."""
    known = users(tuning={"execution": {"prompt_s": 5}})
    known.prefer("bob", {"auto_background_enabled": False})
    known.prefer("bob", {"prompt_threshold_s": 3})
    found = [
        (own.prompt_threshold_s, own.auto_background_threshold_s, own.auto_background_enabled)
        for own in map(known.preferences, ("ada", "bob"))
    ]
    assert found == [(5, 45, True), (3, 45, False)]


@pytest.mark.parametrize(("changes", "told"), rows(__file__, "refused"))
def test_a_bad_preference_is_refused(changes: str, told: str) -> None:
    """With name and value, and nothing is changed; to ask comes before to go to the background."""
    known = users()
    with pytest.raises(ValueError, match=f"^{told}"):
        known.prefer("ada", json.loads(changes))
    assert known.preferences("ada") == known.preferences("")
    both = {"prompt_threshold_s": 90, "auto_background_threshold_s": 120}
    assert known.prefer("ada", both).prompt_threshold_s == 90


def test_who_wants_no_answers_remembered_is_asked_anew() -> None:
    """Answers vote again once they are wanted; a refusal is no way to run a call."""
    known = users()
    known.answered("ada", ("crawl",), BACKGROUND)
    known.answered("ada", ("crawl",), Choice.DENY)
    known.prefer("ada", {"remember_choices": False})
    for _ in range(3):
        known.answered("ada", ("crawl",), SYNC)
    assert known.remembered("ada", ("crawl",)) is None
    known.prefer("ada", {"remember_choices": True})
    assert known.remembered("ada", ("crawl",)) is BACKGROUND


def test_preferences_and_answers_outlive_the_process(store: MemoryStore) -> None:
    """What was set here is there for the next process, and only that: settings may change."""
    one = users(store)
    one.prefer("ada", {"prompt_threshold_s": 3})
    one.answered("ada", ("crawl",), BACKGROUND)
    other = users(store, tuning={"execution": {"background_s": 100}})
    found = other.preferences("ada")
    assert (found.prompt_threshold_s, found.auto_background_threshold_s) == (3, 100)
    assert other.remembered("ada", ("crawl",)) is BACKGROUND
    assert store.get("preference", "user:ada") == b'{"prompt_threshold_s":3.0}'


def test_nobody_waits_for_the_store(store: MemoryStore) -> None:
    """The defaults are used until the store has answered; what was set meanwhile is kept."""
    store.put("preference", "user:ada", b'{"prompt_threshold_s": 3, "remember_choices": false}')
    keeping = Keeping(store)
    keeping.waits = True
    known = Users(Settings(), keeping)  # type: ignore[arg-type]
    assert known.preferences("ada").prompt_threshold_s == 15
    known.prefer("ada", {"prompt_threshold_s": 7})
    keeping.go()
    found = known.preferences("ada")
    assert (found.prompt_threshold_s, found.remember_choices) == (7, False)
    kept = orjson.loads(store.get("preference", "user:ada") or b"")
    assert kept == {"prompt_threshold_s": 7, "remember_choices": False}


def test_a_store_that_is_down_is_not_asked_again_at_once(store: MemoryStore) -> None:
    """Memory goes on alone, and every call would otherwise ask again."""
    keeping = Keeping(store)
    keeping.down = True
    known = Users(Settings(), keeping)  # type: ignore[arg-type]
    known.prefer("ada", {"prompt_threshold_s": 3})
    keeping.down = False
    assert known.preferences("ada").prompt_threshold_s == 3
    assert store.get("preference", "user:ada") is None


@pytest.mark.parametrize(("told", "kind", "text"), rows(__file__, "strange"))
def test_what_is_not_understood_is_not_overwritten(
    store: MemoryStore, kind: str, text: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning with the key, defaults for what was not understood, and the bytes stay."""
    raw = text.encode("latin-1")
    for known in (users(store), users(store)):
        known.answered("ada", ("crawl",), SYNC)
        known.prefer("ada", {"auto_background_enabled": False})
        (key,) = (key for stored, key in store._values if stored == kind)
        store.put(kind, key, raw)
    known.prefer("ada", {"notify_on_completion": False})
    found = known.preferences("ada")
    assert (found.auto_background_enabled, found.notify_on_completion) == (False, False)
    assert found.prompt_threshold_s == (3 if b"red" in raw else 15)
    assert store.get(kind, key) == raw
    (warning,) = caplog.messages
    assert repr(key) in warning
    assert told in warning


def test_memory_is_bounded() -> None:
    """The user unused for longest goes."""
    known = users()
    for number in range(1001):
        known.prefer(str(number), {"prompt_threshold_s": 3})
    found = [known.preferences(str(number)).prompt_threshold_s for number in (0, 1, 1000)]
    assert found == [15, 3, 3]
