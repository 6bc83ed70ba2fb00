"""What users prefer and answered: in memory, in a store, and from a store that has strange data."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Choice
from otel_loopguard.execution.users import Users
from tests.stores.memory import MemoryStore

if TYPE_CHECKING:
    from otel_loopguard.stores.redis import RedisStore

SYNC, BACKGROUND = Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND


class Keeping:
    """A writer whose questions wait until they are let go."""

    def __init__(self, store: RedisStore, *, waits: bool = False, down: bool = False) -> None:
        self.store = store
        self.waits = waits
        self.down = down
        self.waiting: list[Callable[[], None]] = []

    def ask(self, read, then, failed=None) -> bool:  # type: ignore[no-untyped-def]
        if self.down:
            return False
        self.waiting.append(lambda: then(read(self.store)))
        if not self.waits:
            self.go()
        return True

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        self.store.put(kind, key, value, ttl_s)
        return True

    def go(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def users(keeping: Any = None, **given: object) -> Users:
    return Users(Settings(**given), keeping)


def test_the_settings_are_what_everybody_prefers() -> None:
    """The defaults, and what a process sets otherwise; one user changes their own only."""
    known = users(tuning={"execution": {"prompt_s": 5}})
    known.prefer("bob", {"auto_background_enabled": False})
    known.prefer("bob", {"prompt_threshold_s": 3})
    bob = known.preferences("bob")
    assert (bob.auto_background_enabled, bob.prompt_threshold_s) == (False, 3)
    assert dict(known.preferences("ada")) == {
        "auto_background_threshold_s": 45,
        "prompt_threshold_s": 5,
        "auto_background_enabled": True,
        "remember_choices": True,
        "parallel_execution_preferred": True,
        "default_choice": None,
        "notify_on_completion": True,
        "notification_channels": (),
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"prompt_treshold_s": 3}, "prompt_treshold_s = 3: there is no such preference"),
        ({"prompt_threshold_s": -1}, "prompt_threshold_s = -1: Input should be greater than 0"),
        ({"default_choice": "later"}, "default_choice = 'later'"),
        ({"auto_background_enabled": "perhaps"}, "auto_background_enabled = 'perhaps'"),
    ],
    ids=["unknown", "below 0", "no choice", "no bool"],
)
def test_a_bad_preference_is_refused(changes: dict[str, object], told: str) -> None:
    """The error has name and value, and nothing is changed."""
    known = users()
    with pytest.raises(ValueError, match=r"^\w+ = ") as error:
        known.prefer("ada", changes)
    assert told in str(error.value)
    assert known.preferences("ada") == known.preferences("")


def test_who_wants_no_answers_remembered_is_asked_anew() -> None:
    """Answers given before do not vote either; they do again once they are wanted.

    A refusal is no way to run a call.
    """
    known = users()
    known.answered("ada", ("crawl",), BACKGROUND)
    known.answered("ada", ("crawl",), Choice.DENY)
    known.prefer("ada", {"remember_choices": False})
    for _ in range(3):
        known.answered("ada", ("crawl",), SYNC)
    assert known.remembered("ada", ("crawl",)) is None
    known.prefer("ada", {"remember_choices": True})
    assert known.remembered("ada", ("crawl",)) is BACKGROUND


def test_preferences_and_answers_outlive_the_process() -> None:
    """What was set here is there for the next process, and only that: settings may change."""
    store = MemoryStore()
    one = users(Keeping(store))
    one.prefer("ada", {"prompt_threshold_s": 3})
    one.answered("ada", ("crawl",), BACKGROUND)
    other = users(Keeping(store), tuning={"execution": {"background_s": 100}})
    found = other.preferences("ada")
    assert (found.prompt_threshold_s, found.auto_background_threshold_s) == (3, 100)
    assert other.remembered("ada", ("crawl",)) is BACKGROUND
    assert orjson.loads(store.get("preference", "user:ada") or b"") == {"prompt_threshold_s": 3}


def test_nobody_waits_for_the_store() -> None:
    """The defaults are used until the store has answered; what was set meanwhile is kept."""
    store = MemoryStore()
    store.put("preference", "user:ada", b'{"prompt_threshold_s": 3, "remember_choices": false}')
    keeping = Keeping(store, waits=True)
    known = users(keeping)
    assert known.preferences("ada").prompt_threshold_s == 15
    known.prefer("ada", {"prompt_threshold_s": 7})
    keeping.go()
    found = known.preferences("ada")
    assert (found.prompt_threshold_s, found.remember_choices) == (7, False)
    assert orjson.loads(store.get("preference", "user:ada") or b"") == {
        "prompt_threshold_s": 7, "remember_choices": False,
    }  # fmt: skip


def test_a_store_that_is_down_is_not_asked_again_at_once() -> None:
    """Memory goes on alone, and every call would otherwise ask again."""
    keeping = Keeping(MemoryStore(), down=True)
    known = users(keeping)
    known.prefer("ada", {"prompt_threshold_s": 3})
    keeping.down = False
    assert known.preferences("ada").prompt_threshold_s == 3
    assert keeping.store.get("preference", "user:ada") is None


@pytest.mark.parametrize(
    ("raw", "told", "prompt_s"),
    [
        (b"\xff\x00", "not valid UTF-8", 15),
        (b"[1, 2]", "expected a JSON object, got list", 15),
        (b'{"prompt_threshold_s": 3, "colour": "red"}', "colour = 'red'", 3),
        (b'{"prompt_threshold_s": "soon"}', "prompt_threshold_s = 'soon'", 15),
    ],
    ids=["bytes", "list", "unknown name", "wrong value"],
)
def test_what_is_not_understood_is_not_overwritten(
    raw: bytes, told: str, prompt_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning with the key, defaults for what was not understood, and the bytes stay."""
    store = MemoryStore()
    store.put("preference", "user:ada", raw)
    with caplog.at_level(logging.WARNING):
        known = users(Keeping(store))
        known.preferences("ada")
        assert known.preferences("ada").prompt_threshold_s == prompt_s
        known.prefer("ada", {"remember_choices": False})
    assert not known.preferences("ada").remember_choices
    assert store.get("preference", "user:ada") == raw
    (warning,) = caplog.messages
    assert "'user:ada'" in warning
    assert told in warning


@pytest.mark.parametrize("raw", [b"{}", b"[3]", b"x", b'["now"]'], ids=str)
def test_strange_answers_are_left_alone(raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As preferences are: a warning, no vote, and nothing is overwritten."""
    store = MemoryStore()
    users(Keeping(store)).answered("ada", ("crawl",), SYNC)
    (key,) = (key for kind, key in store._values if kind == "choice")
    store.put("choice", key, raw)
    users(Keeping(store)).answered("ada", ("crawl",), SYNC)
    assert store.get("choice", key) == raw
    assert len(caplog.messages) == 1


def test_the_usual_answer_is_remembered() -> None:
    """The most frequent of the newest five, of two the newer; per user and set of tools."""
    known = users()
    assert known.remembered("ada", ("a",)) is None
    for choice in (SYNC, BACKGROUND, SYNC):
        known.answered("ada", ("a",), choice)
    assert known.remembered("ada", ("a",)) is SYNC
    known.answered("ada", ("a",), BACKGROUND)
    assert known.remembered("ada", ("a",)) is BACKGROUND
    assert known.remembered("ada", ("a", "b")) is None
    assert known.remembered("bob", ("a",)) is None


def test_memory_is_bounded() -> None:
    """The user unused for longest goes."""
    known = users()
    for number in range(1001):
        known.prefer(str(number), {"prompt_threshold_s": 3})
    found = [known.preferences(str(number)).prompt_threshold_s for number in (0, 1, 1000)]
    assert found == [15, 3, 3]


def test_thresholds_that_cross_are_refused() -> None:
    """A call cannot be asked about for longer than it takes to go to the background."""
    known = Users(Settings())
    with pytest.raises(ValueError, match=r"prompt_threshold_s = 90 .* = 45"):
        known.prefer("ada", {"prompt_threshold_s": 90})
    with pytest.raises(ValueError, match=r"prompt_threshold_s = 15 .* = 3"):
        known.prefer("ada", {"auto_background_threshold_s": 3})
    changed = known.prefer("ada", {"prompt_threshold_s": 90, "auto_background_threshold_s": 120})
    assert changed.prompt_threshold_s == 90
