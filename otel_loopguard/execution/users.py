"""Preferences and answers of users.

Stored data that was not understood is used as far as it was, and never overwritten.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import logger
from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Choice  # pydantic reads it
from otel_loopguard.settings._group import Group

if TYPE_CHECKING:
    from pydantic import ValidationError

    from otel_loopguard.settings import Settings
    from otel_loopguard.settings._types import Seconds, StrictBool
    from otel_loopguard.stores import Writer


class Preferences(Group):
    """Preferences of one user; what nobody set is as the settings say."""

    auto_background_threshold_s: Seconds = 45.0
    """Seconds from which a call goes to the background."""
    prompt_threshold_s: Seconds = 15.0
    """Seconds below which a call runs at once."""
    auto_background_enabled: StrictBool = True
    """Lets calls go there without a question."""
    remember_choices: StrictBool = True
    """Lets earlier answers vote on the same tools."""
    parallel_execution_preferred: StrictBool = True
    """Runs a batch in parallel where it may."""
    default_choice: Choice | None = None
    """Choice if votes tie; None: the user is asked."""
    notify_on_completion: StrictBool = True
    """Announces the end of a background call."""
    notification_channels: tuple[str, ...] = ()
    """Channels for that."""

    def changed(self, changes: Mapping[str, object]) -> Preferences:
        """These preferences with some of them changed.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
        try:
            checked = Preferences(**changes)
        except ValueError as error:  # pydantic's; naming its class would import it
            problems = cast("ValidationError", error).errors(include_url=False)
            raise ValueError("; ".join(map(_problem, problems))) from None
        return self.model_copy(update=vars(checked))


def default_preferences(settings: Settings) -> Preferences:
    """Preferences of users who set none."""
    tuning = settings.tuning.execution
    own: dict[str, Any] = {
        "prompt_threshold_s": tuning.prompt_s,
        "auto_background_enabled": tuning.background_s > 0,
    }
    if tuning.background_s:
        own["auto_background_threshold_s"] = tuning.background_s
    return Preferences().model_copy(update=own)


def _problem(found: Any) -> str:
    name = ".".join(map(str, found["loc"]))
    what = "there is no such preference" if found["type"] == "extra_forbidden" else found["msg"]
    return f"{name} = {found['input']!r:.100}: {what}"


# Seconds after which a store that failed is asked for the same key again: every admission asks.
_AGAIN_S: Final = 30
# Users whose preferences are kept in memory, about a kilobyte each.
_USERS: Final = 1000
# Sets of tools per user, on average, whose answers are kept.
_SETS: Final = 8
# Newest answers about the same tools that are remembered: three of them change the usual one.
_ANSWERS: Final = 5
_OPTIONS: Final = {
    choice.value: choice
    for choice in (Choice.EXECUTE_SYNC, Choice.AUTO_BACKGROUND, Choice.DEFER, Choice.PROMPT_USER)
}


class _Entry:
    """A value, and whether the store's was read (`known`), and was not understood (`foreign`)."""

    __slots__ = ("asked", "foreign", "known", "unsaved", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.asked = 0.0
        self.known = self.foreign = self.unsaved = False


class _Cache:
    """The newest JSON objects or lists of one kind. Thread-safe; no caller waits for the store.

    `problems` returns a sentence for each invalid part of a stored value, and takes it out.
    """

    def __init__(
        self, kind: str, most: int, store: Writer | None, problems: Callable[[Any], list[str]]
    ) -> None:
        self._kind = kind
        self._store = store
        self._problems = problems
        self._entries: BoundedDict[str, _Entry] = BoundedDict(most)
        self._lock = new_lock()

    def get(self, key: str) -> Any:
        """The value of a key as it is known here; the store is asked for it in the background."""
        if self._store is None:
            entry = self._entries.get(key)
            return None if entry is None else entry.value
        return self._asked(key).value

    def set(self, key: str, value: object) -> None:
        """Keeps a value and has it stored, as soon as what the store has is known."""
        self._save(key, self._asked(key, value))

    def _asked(self, key: str, value: object = None) -> _Entry:
        """The entry of a key, with a new value if there is one.

        The store is asked for it, unless it answered, or was asked a moment ago.
        """
        now = time.monotonic()
        with self._lock:
            entry = self._entries.get(key) or _Entry()
            self._entries[key] = entry
            if value is not None:
                entry.value, entry.unsaved = value, True
            if entry.known or (entry.asked and now - entry.asked < _AGAIN_S):
                return entry
            entry.asked = now
        if self._store is not None:
            kind = self._kind
            self._store.ask(lambda store: store.get(kind, key), lambda raw: self._loaded(key, raw))
        return entry

    def _loaded(self, key: str, raw: bytes | None) -> None:
        """Merges the store's value of a key; on the thread that read it."""
        stored, problems = None, list[str]()
        if raw is not None:
            try:
                stored = orjson.loads(raw)
                problems = self._problems(stored)
            except (orjson.JSONDecodeError, TypeError) as error:
                stored, problems = None, [str(error)]
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry.known:
                return
            entry.known, entry.foreign = True, bool(problems)
            if stored is not None:
                entry.value = _merged(stored, entry.value)
        if problems:
            logger.warning(
                "the %s of %r in the store was not understood (%s): defaults are used for that, "
                "and it is not overwritten",
                self._kind, key, "; ".join(problems),
            )  # fmt: skip
        self._save(key, entry)

    def _save(self, key: str, entry: _Entry) -> None:
        """Queues a value that is not stored yet; never overwrites one that was not understood."""
        with self._lock:
            if not (entry.unsaved and entry.known) or entry.foreign:
                return
            entry.unsaved = False
        if self._store is not None:
            self._store.put(self._kind, key, orjson.dumps(entry.value))


def _merged(stored: Any, own: Any) -> Any:
    """The value of the store and that of memory together; the newest answers of both."""
    if own is None:
        return stored
    if isinstance(own, dict):
        return {**stored, **cast("dict[str, Any]", own)}
    return [*stored, *own][-_ANSWERS:]


class Users:
    """Preferences and remembered answers of the users of one guard. Thread-safe, from memory."""

    def __init__(self, settings: Settings, store: Writer | None = None) -> None:
        self._defaults = default_preferences(settings)
        # By user, what they set by name; the newest answers by user and tools.
        self._own = _Cache("preference", _USERS, store, self._unusable)
        self._answers = _Cache("choice", _USERS * _SETS, store, _unusable_answers)
        self._made: BoundedDict[str, tuple[object, Preferences]] = BoundedDict(_USERS)

    def preferences(self, user: str) -> Preferences:
        """A user's preferences as far as they are known here, else those of the settings."""
        own = self._own.get(f"user:{user}")
        if not own:
            return self._defaults
        made = self._made.get(user)
        if made is None or made[0] is not own:
            made = self._made[user] = own, self._defaults.changed(own)
        return made[1]

    def prefer(self, user: str, changes: Mapping[str, object]) -> Preferences:
        """Changes what a user prefers.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
        preferences = self.preferences(user).changed(changes)
        least, most = preferences.prompt_threshold_s, preferences.auto_background_threshold_s
        if least > most and {"prompt_threshold_s", "auto_background_threshold_s"} & changes.keys():
            raise ValueError(
                f"prompt_threshold_s = {least:g} must not be above auto_background_threshold_s = "
                f"{most:g}, from where a call goes to the background: change both"
            )
        key = f"user:{user}"
        own: dict[str, object] = self._own.get(key) or {}
        self._own.set(key, {**own, **{name: getattr(preferences, name) for name in changes}})
        return preferences

    def remembered(self, user: str, tools: tuple[str, ...]) -> Choice | None:
        """Returns a user's most frequent answer for the same tools, of the newest 5; None if none.

        A tie goes to the newer answer. None also for a user who does not want answers remembered.
        """
        given: list[str] | None = self._answers.get(_key(user, tools))
        if not given or not self.preferences(user).remember_choices:
            return None
        return Choice(max(reversed(given), key=Counter(given).__getitem__))

    def answered(self, user: str, tools: tuple[str, ...], choice: Choice) -> None:
        """Remembers an answer, unless the user does not want that; a refusal is no way to run."""
        if choice.value in _OPTIONS and self.preferences(user).remember_choices:
            key = _key(user, tools)
            self._answers.set(key, [*(self._answers.get(key) or ()), choice.value][-_ANSWERS:])

    def _unusable(self, stored: object) -> list[str]:
        """Returns what is wrong with stored preferences, a JSON object of those that are set."""
        if not is_map(stored):
            raise TypeError(f"expected a JSON object, got {type(stored).__name__}")
        problems: list[str] = []
        for name in tuple(stored):
            try:
                self._defaults.changed({name: stored[name]})
            except ValueError as error:  # noqa: PERF203
                problems.append(str(error))
                del stored[name]
        return problems


def _unusable_answers(stored: object) -> list[str]:
    if not is_list(stored):
        raise TypeError(f"expected a JSON list, got {type(stored).__name__}")
    problems = [f"{one!r:.50}: no such choice" for one in stored if one not in _OPTIONS]
    stored[:] = [one for one in stored if one in _OPTIONS]
    return problems


@lru_cache(maxsize=1024)
def _key(user: str, tools: tuple[str, ...]) -> str:
    names = "\0".join(tools).encode("utf-8", "surrogatepass")
    return f"user:{user}:{hashlib.blake2b(names, digest_size=8).hexdigest()}"
