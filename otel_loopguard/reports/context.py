"""What a session has learned, as far as it helps later (C17); never leaves the process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from otel_loopguard.excerpts import excerpt

Topic = Literal["insight", "file", "pattern", "avoided"]
"""What an entry is: a key insight, an important file, a learned pattern, an avoided approach."""

_TOPICS: Final = get_args(Topic)
_CHARS: Final = 200
_SAID: Final = 3
_OFFERED: Final[tuple[tuple[Topic, str], ...]] = (
    ("insight", "Known so far"),
    ("pattern", "Learned"),
    ("file", "Files changed most"),
    ("avoided", "Tried in vain"),
)


@dataclass(frozen=True, slots=True)
class Context:
    """The long-term context of a session, at one moment. It has content of calls.

    Attributes:
        insights: Key insights, the newest last.
        files: Important files, the most often written or named first.
        patterns: Learned patterns, the newest last.
        avoided: Approaches that were denied or that the application named, the newest last.
    """

    insights: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()


class Memory:
    """Keeps the long-term context of one session. Not thread-safe: the guard's lock is held.

    Each kind has at most `context_entries` (12) entries of at most 200 characters; the oldest goes
    first, of files the one named least.

    Args:
        entries: Entries kept of each kind.
    """

    __slots__ = ("_entries", "_known")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._known: dict[Topic, dict[str, int]] = {}

    def note(self, topic: Topic, text: str) -> None:
        """Keeps an entry; one that is known becomes the newest, and counts once more.

        Args:
            topic: `insight`, `file`, `pattern` or `avoided`.
            text: What to keep; of longer text the first 200 characters.

        Raises:
            ValueError: There is no such topic.
        """
        if topic not in _TOPICS:
            msg = f"topic must be one of {', '.join(_TOPICS)}, got {topic!r}"
            raise ValueError(msg)
        line = excerpt(text, _CHARS)
        if not line or not self._entries:
            return
        known = self._known.setdefault(topic, {})
        known[line] = known.pop(line, 0) + 1
        if len(known) > self._entries:
            self._forget(topic, known, line)

    def context(self) -> Context:
        """What is kept, as it is now."""
        files = self._known.get("file") or dict[str, int]()
        return Context(
            insights=tuple(self._known.get("insight", ())),
            files=tuple(sorted(files, key=lambda path: -files[path])),
            patterns=tuple(self._known.get("pattern", ())),
            avoided=tuple(self._known.get("avoided", ())),
        )

    def offer(self) -> str:
        """What a hint may add for the model: up to three entries of each kind; may be empty."""
        if not self._known:
            return ""
        now = self.context()
        found: dict[Topic, tuple[str, ...]] = {
            "insight": now.insights[-_SAID:],
            "pattern": now.patterns[-_SAID:],
            "file": now.files[:_SAID],
            "avoided": now.avoided[-_SAID:],
        }
        said = (f"{word}: {'; '.join(found[topic])}." for topic, word in _OFFERED if found[topic])
        return " ".join(said)

    @staticmethod
    def _forget(topic: Topic, known: dict[str, int], newest: str) -> None:
        if topic != "file":
            del known[next(iter(known))]
            return
        # Not the newest: a file that comes in late could never stay.
        del known[min((path for path in known if path != newest), key=known.__getitem__)]
