"""What is known of users: what they prefer, and what they answered.

Source: FEATURES A6. What was not understood is used as far as it was, and never overwritten.

Source: FEATURES A6.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

import orjson

from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.core import Choice
from otel_loopguard.policy.preferences import (
    Kept,
    Preferences,
    default_preferences,
    read_preferences,
    written_preferences,
)

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Store

_Value = TypeVar("_Value")
_AGAIN_S: Final = 30
"""Seconds after which a store that failed is asked for the same key again."""

_WARNED: Final = 256


class Keeping(Protocol):
    """What reads and writes a store off the hot path: the writer of a guard."""

    def ask(
        self,
        read: Callable[[Store], Any],
        then: Callable[[Any], None],
        failed: Callable[[], None] | None = None,
    ) -> bool:
        """Has something read, and hands over what came of it; False if too much waits."""
        ...

    def put(self, kind: str, key: str, value: bytes, ttl_s: float | None = None) -> bool:
        """Has a value written; False if it was dropped."""
        ...


@dataclass(frozen=True)  # a NamedTuple cannot be generic on Python 3.10
class Found(Generic[_Value]):
    """What the bytes of a store came to.

    Attributes:
        value: What was understood.
        problems: What was not, one sentence each.
    """

    value: _Value
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binding(Generic[_Value]):
    """How values of one kind are read and written.

    Attributes:
        kind: Kind of the store (`preference`, `choice`).
        read: Turns bytes into a value; raises nothing.
        write: Turns a value into bytes.
        merge: Puts the value of memory (first) and that of the store together.
    """

    kind: str
    read: Callable[[bytes], Found[_Value]]
    write: Callable[[_Value], bytes]
    merge: Callable[[_Value, _Value], _Value]


class _Entry(Generic[_Value]):
    """One value, and whether the store's word on it was heard (`known`) and understood."""

    __slots__ = ("asked", "foreign", "known", "unsaved", "value")

    def __init__(self) -> None:
        self.value: _Value | None = None
        self.asked = 0.0
        self.known = False
        self.foreign = False
        self.unsaved = False


class Cache(Generic[_Value]):
    """The newest `most` values of one kind. Thread-safe; no caller waits for the store."""

    def __init__(self, binding: Binding[_Value], most: int, keeping: Keeping | None = None) -> None:
        self._binding = binding
        self._most = most
        self._keeping = keeping
        self._warned: set[str] = set()
        self._entries: OrderedDict[str, _Entry[_Value]] = OrderedDict()
        self.forked()

    def forked(self) -> None:
        """In the child of a fork: another thread may have held the lock; the values stay."""
        self._lock = new_lock()

    def get(self, key: str) -> _Value | None:
        """The value of a key as it is known here; the store is asked for it in the background."""
        entry = self._entries.get(key)
        if self._keeping is None:
            return None if entry is None else entry.value
        with self._lock:
            entry = self._entry(key)
            asks = not entry.known and self._due(entry)
        if asks:
            self._ask(key)
        return entry.value

    def set(self, key: str, value: _Value) -> None:
        """Keeps a value and has it stored, as soon as what the store has is known."""
        with self._lock:
            entry = self._entry(key)
            entry.value = value
            entry.unsaved = True
            asks = not entry.known and self._due(entry)
        if asks:
            self._ask(key)
        self._save(key, entry)

    def _entry(self, key: str) -> _Entry[_Value]:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry[_Value]()
            if len(self._entries) > self._most:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        return entry

    def _due(self, entry: _Entry[_Value]) -> bool:
        """Whether it is time to ask the store; then it counts as asked."""
        if self._keeping is None:
            return False
        now = time.monotonic()
        if entry.asked and now - entry.asked < _AGAIN_S:
            return False
        entry.asked = now
        return True

    def _ask(self, key: str) -> None:
        if self._keeping is not None:
            kind = self._binding.kind
            self._keeping.ask(lambda store: store.get(kind, key), lambda raw: self._take(key, raw))

    def _take(self, key: str, raw: bytes | None) -> None:
        """Takes in what the store has of a key, on whichever thread read it."""
        found = None if raw is None else self._binding.read(raw)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.known:
                return
            entry.known = True
            if found is not None:
                own = entry.value
                entry.value = found.value if own is None else self._binding.merge(own, found.value)
                entry.foreign = bool(found.problems)
        if found is not None and found.problems:
            self._warn(key, found.problems)
        self._save(key, entry)

    def _save(self, key: str, entry: _Entry[_Value]) -> None:
        """Has a value written that is not yet; what was not understood is left alone."""
        with self._lock:
            value = entry.value
            if not (entry.unsaved and entry.known) or entry.foreign or value is None:
                return
            entry.unsaved = False
        if self._keeping is not None:
            self._keeping.put(self._binding.kind, key, self._binding.write(value))

    def _warn(self, key: str, problems: tuple[str, ...]) -> None:
        if key in self._warned or len(self._warned) >= _WARNED:
            return
        self._warned.add(key)
        logger.warning(
            "the %s of %r in the store was not understood (%s): defaults are used for that, and "
            "it is not overwritten",
            self._binding.kind, key, "; ".join(problems),
        )  # fmt: skip


_THRESHOLDS: Final = ("prompt_threshold_s", "auto_background_threshold_s")
_ANSWERS: Final = 5
"""Newest answers about the same tools that are remembered."""

_PER_USER: Final = 8
"""Sets of tools that answers are kept of in memory, per user on average."""

_OPTIONS: Final = frozenset(
    {Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER, Choice.PROMPT_USER}
)

_Answers = tuple[Choice, ...]


class Users:
    """Preferences and remembered answers of the users of one guard. Thread-safe, from memory."""

    def __init__(self, settings: Settings, keeping: Keeping | None = None) -> None:
        self._defaults = default_preferences(settings)
        most = settings.tuning.execution.users
        told = Binding("preference", self._read, _write, _merge)
        self._kept: Cache[Kept] = Cache(told, most, keeping)
        answers = Binding("choice", _read_answers, _write_answers, _merge_answers)
        self._answers: Cache[_Answers] = Cache(answers, most * _PER_USER, keeping)

    def forked(self) -> None:
        """In the child of a fork: the locks are made anew."""
        self._kept.forked()
        self._answers.forked()

    def preferences(self, user: str) -> Preferences:
        """What a user prefers, as far as it is known here; else what the settings say."""
        kept = self._kept.get(_place(user))
        return self._defaults if kept is None else kept.preferences

    def prefer(self, user: str, changes: Mapping[str, object]) -> Preferences:
        """Changes what a user prefers."""
        known = self._kept.get(_place(user)) or Kept(preferences=self._defaults)
        preferences = known.preferences.changed(changes)
        least, most = preferences.prompt_threshold_s, preferences.auto_background_threshold_s
        if least > most and not changes.keys().isdisjoint(_THRESHOLDS):
            msg = (
                f"prompt_threshold_s = {least:g} must not be above auto_background_threshold_s = "
                f"{most:g}, from where a call goes to the background: change both"
            )
            raise ValueError(msg)
        own = {**known.own, **preferences.model_dump(mode="json", include=set(changes))}
        self._kept.set(_place(user), Kept(preferences=preferences, own=own))
        return preferences

    def remembered(self, user: str, tools: tuple[str, ...]) -> Choice | None:
        """What a user mostly answered for the same tools, of the newest 5; None without answers.

        Of two answers that were given equally often it is the newer one.
        """
        given = self._answers.get(_place(user, tools))
        if not given:
            return None
        counts = Counter(reversed(given))
        return max(reversed(given), key=counts.__getitem__)

    def answered(self, user: str, tools: tuple[str, ...], choice: Choice) -> None:
        """Remembers an answer, unless the user does not want that; a refusal is no way to run."""
        if choice not in _OPTIONS or not self.preferences(user).remember_choices:
            return
        place = _place(user, tools)
        before = self._answers.get(place) or ()
        self._answers.set(place, (*before, choice)[-_ANSWERS:])

    def _read(self, raw: bytes) -> Found[Kept]:
        kept = read_preferences(raw, self._defaults)
        return Found(kept, kept.problems)


@lru_cache(maxsize=1024)
def _place(user: str, tools: tuple[str, ...] | None = None) -> str:
    if tools is None:
        return f"user:{user}"
    names = "\0".join(tools).encode("utf-8", "surrogatepass")
    return f"user:{user}:{hashlib.blake2b(names, digest_size=8).hexdigest()}"


def _write(kept: Kept) -> bytes:
    return written_preferences(kept.own)


def _merge(here: Kept, there: Kept) -> Kept:
    """What was set here goes before what the store had."""
    own = {**there.own, **here.own}
    changes = {name: value for name, value in here.own.items() if name in own}
    return Kept(preferences=there.preferences.changed(changes), own=own)


def _read_answers(raw: bytes) -> Found[_Answers]:
    try:
        found: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Found((), (f"no JSON: {error}",))
    if not isinstance(found, list):
        return Found((), (f"expected a JSON list, got {type(found).__name__}",))
    names = {choice.value: choice for choice in _OPTIONS}
    given = cast("list[object]", found)[-_ANSWERS:]
    unknown = [f"{one!r:.50}: no such choice" for one in given if one not in list(names)]
    known = [names[one] for one in given if isinstance(one, str) and one in names]
    return Found(tuple(known), tuple(unknown))


def _write_answers(answers: _Answers) -> bytes:
    return orjson.dumps([choice.value for choice in answers])


def _merge_answers(here: _Answers, there: _Answers) -> _Answers:
    return (*there, *here)[-_ANSWERS:]
