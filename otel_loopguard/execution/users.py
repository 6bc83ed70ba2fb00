"""Preferences and answers of users.

Stored data that was not understood is used as far as it was, and never overwritten.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import orjson

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Choice
from otel_loopguard.settings.preferences import Preferences

if TYPE_CHECKING:
    from otel_loopguard.stores import Store

_Value = TypeVar("_Value")
_AGAIN_S: Final = 30
"""Seconds after which a store that failed is asked for the same key again."""
_WARNED: Final = 256


class BackgroundStore(Protocol):
    """What reads and writes a store off the hot path: the writer of a guard."""

    def ask(
        self,
        read: Callable[[Store], Any],
        then: Callable[[Any], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Queues a read with a callback for the result; False if too much waits."""
        ...

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Has a value written; False if it was dropped."""
        ...


class _Entry(Generic[_Value]):
    """One value, and whether what the store has was read (`known`) and understood."""

    __slots__ = ("asked", "foreign", "known", "unsaved", "value")

    def __init__(self) -> None:
        self.value: _Value | None = None
        self.asked = 0.0
        self.known = False
        self.foreign = False
        self.unsaved = False


class StoredCache(Generic[_Value]):
    """The newest `most` values of one kind. Thread-safe; no caller waits for the store.

    `read` returns a value and a sentence for each invalid part, and raises nothing; `merge`
    puts the value of the store and that of memory together.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self, kind: str, most: int, store: BackgroundStore | None,
        read: Callable[[bytes], tuple[_Value, Sequence[str]]],
        write: Callable[[_Value], bytes],
        merge: Callable[[_Value, _Value], _Value],
    ) -> None:  # fmt: skip
        self._kind = kind
        self._store = store
        self._read = read
        self._write = write
        self._merge = merge
        self._warned: set[str] = set()
        self._entries: BoundedDict[str, _Entry[_Value]] = BoundedDict(most)
        self.forked()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock; the values stay."""
        self._lock = new_lock()

    def get(self, key: str) -> _Value | None:
        """The value of a key as it is known here; the store is asked for it in the background."""
        if self._store is None:
            entry = self._entries.get(key)
            return None if entry is None else entry.value
        with self._lock:
            entry = self._entry(key)
        self._ask(key, entry)
        return entry.value

    def set(self, key: str, value: _Value) -> None:
        """Keeps a value and has it stored, as soon as what the store has is known."""
        with self._lock:
            entry = self._entry(key)
            entry.value = value
            entry.unsaved = True
        self._ask(key, entry)
        self._save(key, entry)

    def _entry(self, key: str) -> _Entry[_Value]:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry[_Value]()
        else:
            self._entries.move_to_end(key)
        return entry

    def _ask(self, key: str, entry: _Entry[_Value]) -> None:
        """Asks the store for a value, unless it answered, or was asked a moment ago."""
        if self._store is None or entry.known:
            return
        now = time.monotonic()
        with self._lock:
            if entry.asked and now - entry.asked < _AGAIN_S:
                return
            entry.asked = now
        kind = self._kind
        self._store.ask(lambda store: store.get(kind, key), lambda raw: self._loaded(key, raw))

    def _loaded(self, key: str, raw: bytes | None) -> None:
        """Adds what the store has of a key, on whichever thread read it."""
        problems: Sequence[str] = ()
        stored: _Value | None = None
        if raw is not None:
            stored, problems = self._read(raw)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.known:
                return
            entry.known = True
            entry.foreign = bool(problems)
            if stored is not None:
                own = entry.value
                entry.value = stored if own is None else self._merge(stored, own)
        if problems and key not in self._warned and len(self._warned) < _WARNED:
            self._warned.add(key)
            logger.warning(
                "the %s of %r in the store was not understood (%s): defaults are used for that, "
                "and it is not overwritten",
                self._kind, key, "; ".join(problems),
            )  # fmt: skip
        self._save(key, entry)

    def _save(self, key: str, entry: _Entry[_Value]) -> None:
        """Has a value written that is not yet; what was not understood is left alone."""
        with self._lock:
            value = entry.value
            if not (entry.unsaved and entry.known) or entry.foreign or value is None:
                return
            entry.unsaved = False
        if self._store is not None:
            self._store.put(self._kind, key, self._write(value))


_ANSWERS: Final = 5
"""Newest answers about the same tools that are remembered."""
_USERS: Final = 1000
"""Users whose preferences and answers are kept in memory; a store keeps all."""
_PER_USER: Final = 8
"""Sets of tools that answers are kept of in memory, per user on average."""
_OPTIONS: Final = {
    choice.value: choice
    for choice in (Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER, Choice.PROMPT_USER)
}
_Answers = tuple[Choice, ...]


class _Kept(NamedTuple):
    """What is known of one user: what they set, by name, and what follows with the settings."""

    own: dict[str, Any]
    preferences: Preferences


def _loads(raw: bytes, kind: type[Any], name: str) -> tuple[Any, list[str]]:
    """Stored JSON of a kind; or an empty one, and why."""
    try:
        found: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return kind(), [f"no JSON: {error}"]
    if isinstance(found, kind):
        return found, []
    return kind(), [f"expected a JSON {name}, got {type(found).__name__}"]


def _read_answers(raw: bytes) -> tuple[_Answers, list[str]]:
    found, problems = _loads(raw, list, "list")
    known: list[Choice] = []
    for answer in found[-_ANSWERS:]:
        if isinstance(answer, str) and answer in _OPTIONS:
            known.append(_OPTIONS[answer])
        else:
            problems.append(f"{answer!r:.50}: no such choice")
    return tuple(known), problems


class Users:
    """Preferences and remembered answers of the users of one guard. Thread-safe, from memory."""

    def __init__(self, store: BackgroundStore | None = None) -> None:
        self._defaults = Preferences()
        self._preferences: StoredCache[_Kept] = StoredCache(
            "preference", _USERS, store, self._read,
            lambda kept: orjson.dumps(kept.own, default=list),
            lambda there, here: _Kept(
                {**there.own, **here.own}, there.preferences.changed(here.own)
            ),
        )  # fmt: skip
        self._answers: StoredCache[_Answers] = StoredCache(
            "choice", _USERS * _PER_USER, store, _read_answers,
            lambda answers: orjson.dumps([choice.value for choice in answers]),
            lambda there, here: (*there, *here)[-_ANSWERS:],
        )  # fmt: skip

    def forked(self) -> None:
        """In the child of a fork: the locks are made anew."""
        self._preferences.forked()
        self._answers.forked()

    def preferences(self, user: str) -> Preferences:
        """What a user prefers, as far as it is known here; else what the settings say."""
        kept = self._preferences.get(_key(user))
        return self._defaults if kept is None else kept.preferences

    def prefer(self, user: str, changes: Mapping[str, object]) -> Preferences:
        """Changes what a user prefers.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
        known = self._preferences.get(_key(user)) or _Kept({}, self._defaults)
        preferences = known.preferences.changed(changes)
        least, most = preferences.prompt_threshold_s, preferences.auto_background_threshold_s
        if least > most and {"prompt_threshold_s", "auto_background_threshold_s"} & changes.keys():
            msg = (
                f"prompt_threshold_s = {least:g} must not be above auto_background_threshold_s = "
                f"{most:g}, from where a call goes to the background: change both"
            )
            raise ValueError(msg)
        own = {**known.own, **preferences.row(changes)}
        self._preferences.set(_key(user), _Kept(own, preferences))
        return preferences

    def remembered(self, user: str, tools: tuple[str, ...]) -> Choice | None:
        """What a user mostly answered for the same tools, of the newest 5; None without answers.

        Of two answers that were given equally often it is the newer one. None, too, of a user who
        does not want answers remembered, whenever they were given.
        """
        given = self._answers.get(_key(user, tools))
        if not given or not self.preferences(user).remember_choices:
            return None
        counts = Counter(given)
        return max(reversed(given), key=counts.__getitem__)

    def answered(self, user: str, tools: tuple[str, ...], choice: Choice) -> None:
        """Remembers an answer, unless the user does not want that; a refusal is no way to run."""
        if choice.value not in _OPTIONS or not self.preferences(user).remember_choices:
            return
        key = _key(user, tools)
        before = self._answers.get(key) or ()
        self._answers.set(key, (*before, choice)[-_ANSWERS:])

    def _read(self, raw: bytes) -> tuple[_Kept, list[str]]:
        """Preferences as a store has them: a JSON object of those that the user set."""
        own, problems = _loads(raw, dict, "object")
        known = self._defaults
        for name, value in own.items():
            try:
                known = known.changed({name: value})
            except ValueError as error:  # noqa: PERF203
                problems.append(str(error))
        return _Kept(own, known), problems


@lru_cache(maxsize=1024)
def _key(user: str, tools: tuple[str, ...] | None = None) -> str:
    if tools is None:
        return f"user:{user}"
    names = "\0".join(tools).encode("utf-8", "surrogatepass")
    return f"user:{user}:{hashlib.blake2b(names, digest_size=8).hexdigest()}"
