"""What two exchanges have in common, and what came of the work between them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from otel_loopguard.core import Exchange
    from otel_loopguard.settings import Settings

_FEW: Final = 3
_FULL: Final = 64
_ITEMS: Final = 16
_TEMPLATE: Final = 0.7
_SHORTER: Final = 0.9
_ADDED: Final = 0.2
_RETURNS: Final = 64


class Topics:
    """Tells whether two exchanges are about the same, by the words that both have.

    Same: `exchange_overlap` (0.4) of their different words are common to both. Not the same, and
    what protects healthy teams:

    - an instruction that grew a tenth shorter and adds little (a fifth of its words): a list that
      is being worked off;
    - both have a number that the other has not: the next item of a list;
    - 0.7 of the words are common and both have a name that the other has not: one form, filled in
      for the next item.

    An exchange of which fewer than three words are known is about nothing that could be compared.

    Args:
        settings: Settings of the guard.

    Source: `notes/evidence.md`, lesson 6; FEATURES B1.
    """

    __slots__ = ("_overlap",)

    def __init__(self, settings: Settings) -> None:
        self._overlap = settings.exchange_overlap

    def same(self, before: Exchange, now: Exchange) -> bool:
        """Whether what was said before and what is said now is about the same."""
        if len(before.words) < _FEW or len(now.words) < _FEW:
            return False
        common = _overlap(set(before.words), set(now.words))
        if common < self._overlap or _shrinks(before, now):
            return False
        if _differ(before.numbers, now.numbers):
            return False
        return not (common >= _TEMPLATE and _differ(before.names, now.names))


def news_between(before: Exchange, now: Exchange) -> float:
    """Mean novelty of what came back between two exchanges, 0 to 1.

    What was not captured may all be new, and counts as such. 0 if nothing came back.
    """
    unseen = now.unseen - before.unseen
    came = now.answers - before.answers + unseen
    return (now.news - before.news + unseen) / came if came else 0.0


def what_came(news: float) -> str:
    """Says how much of what came back was new.

    Args:
        news: Mean novelty, 0 to 1.
    """
    share = round(100 * news)
    return f"{share} % of what came back was new" if share else "nothing new came back"


class Moment(Protocol):
    """When something was: an exchange, or a part of a cycle."""

    @property
    def step(self) -> int:
        """Number of its step within the session."""
        ...

    @property
    def time(self) -> int:
        """Nanoseconds since the epoch; 0 without times."""
        ...


class Return(NamedTuple):
    """One exchange that goes on with a cycle.

    Attributes:
        step: Step of the exchange that it returns to.
        time: Its time, nanoseconds since the epoch; 0 without times.
        gained: 1 less the novelty of what came back in between.
        silent: Whether it was passed on without a word and without a call.
    """

    step: int
    time: int
    gained: float
    silent: bool


class Returns:
    """The exchanges that go on with a cycle, all of which lie within the window; 64 at most.

    Args:
        window: The window.
    """

    __slots__ = ("_kept", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kept: deque[Return] = deque(maxlen=_RETURNS)

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, before: Exchange, now: Exchange) -> None:
        """An exchange returns to an earlier one; what lies too far back from it is over."""
        gained = 1.0 - news_between(before, now)
        self._kept.append(Return(before.step, before.time, gained, now.silent))
        while self._kept and not self._window.holds(self._kept[0], now):
            self._kept.popleft()

    def clear(self) -> None:
        """The cycle was left."""
        self._kept.clear()

    @property
    def gained(self) -> float:
        """How many there are, each less what came back."""
        return sum(one.gained for one in self._kept)

    @property
    def silent(self) -> int:
        """How many were passed on without a word and without a call."""
        return sum(one.silent for one in self._kept)

    @property
    def news(self) -> float:
        """Mean novelty of what came back, 0 to 1."""
        return 1.0 - self.gained / len(self._kept) if self._kept else 1.0


class Window:
    """How far back a cycle reaches.

    The whole of it counts, from the exchange that began it: `exchange_window_s` (600) by the times
    of the steps; `exchange_window_steps` (100) where one of
    the two has none.

    Args:
        settings: Settings of the guard.

    Source: FEATURES B1.
    """

    __slots__ = ("_nanoseconds", "_steps")

    def __init__(self, settings: Settings) -> None:
        self._nanoseconds = int(settings.exchange_window_s * 1e9)
        self._steps = settings.exchange_window_steps

    def holds(self, before: Moment, now: Moment) -> bool:
        """Whether an earlier exchange is near enough to one now."""
        if before.time and now.time:
            return now.time - before.time <= self._nanoseconds
        return now.step - before.step <= self._steps


def _overlap(one: set[int], other: set[int]) -> float:
    """Share of the different words that both have; of long texts as their samples tell it."""
    union = one | other
    if len(one) >= _FULL or len(other) >= _FULL:
        union = set(sorted(union)[:_FULL])
    return len(one & other & union) / len(union)


def _shrinks(before: Exchange, now: Exchange) -> bool:
    if now.size >= _SHORTER * before.size or len(before.words) >= _FULL:
        return False
    added = len(set(now.words).difference(before.words))
    return added <= _ADDED * len(now.words)


def _differ(one: frozenset[int], other: frozenset[int]) -> bool:
    """Whether each has something that the other has not, as far as both are known whole."""
    if len(one) >= _ITEMS or len(other) >= _ITEMS:
        return False
    return bool(one - other) and bool(other - one)
