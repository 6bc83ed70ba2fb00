"""What is known of users: what they prefer, and what they answered about which tools.

Source: FEATURES A6.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

import orjson

from otel_loopguard.core import Choice
from otel_loopguard.policy.cache import Binding, Cache, Found, Keeping
from otel_loopguard.policy.preferences import (
    Kept,
    Preferences,
    default_preferences,
    read_preferences,
    written_preferences,
)

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

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
    """Preferences and remembered answers of the users of one guard. Thread-safe, from memory.

    Args:
        settings: Settings of the guard: what everybody prefers, how many users are kept.
        keeping: Keeps both beyond this process; None: nobody does.
    """

    def __init__(self, settings: Settings, keeping: Keeping | None = None) -> None:
        self._defaults = default_preferences(settings)
        most = settings.execution_users
        told = Binding("preference", self._read, _write, _merge)
        self._kept: Cache[Kept] = Cache(told, most, keeping)
        answers = Binding("choice", _read_answers, _write_answers, _merge_answers)
        self._answers: Cache[_Answers] = Cache(answers, most * _PER_USER, keeping)

    def forked(self) -> None:
        """In the child of a fork: the locks are made anew."""
        self._kept.forked()
        self._answers.forked()

    def preferences(self, user: str) -> Preferences:
        """What a user prefers, as far as it is known here; the settings for nobody in particular.

        Args:
            user: Id of the user; may be empty.
        """
        kept = self._kept.get(_place(user))
        return self._defaults if kept is None else kept.preferences

    def prefer(self, user: str, changes: Mapping[str, object]) -> Preferences:
        """Changes what a user prefers.

        Args:
            user: Id of the user; may be empty: for everybody who has no id.
            changes: New values by name.

        Returns:
            What the user prefers now.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
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

        Args:
            user: Id of the user; may be empty.
            tools: Their names, each once, in order.
        """
        given = self._answers.get(_place(user, tools))
        if not given:
            return None
        counts = Counter(reversed(given))
        return max(reversed(given), key=counts.__getitem__)

    def answered(self, user: str, tools: tuple[str, ...], choice: Choice) -> None:
        """Remembers an answer, unless the user does not want that; a refusal is no way to run.

        Args:
            user: Id of the user; may be empty.
            tools: Names of the tools, each once, in order.
            choice: What the user chose.
        """
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
