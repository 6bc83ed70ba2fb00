"""The transcripts that are being written: which there are, and what is new in them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.replay import FollowedRows, FollowedStep, FollowedTranscript
from otel_loopguard.replay.opencode_database import is_session
from otel_loopguard.replay.transcripts.folders import (
    TranscriptHead,
    modified,
    project_of,
    transcript_files,
    usual_folders,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.replay.file import Broken

_SESSIONS: Final = 256
"""Sessions that are followed at once, by their newest lines; one takes about 90 kB, and one that
is written again later is read again from its beginning."""
_KEYS: Final = 1_000
"""Sessions that one transcript may tell of: one, as a rule."""
_SUB_AGENTS: Final = 10_000
"""Sub-agents whose sessions are known, for those that they start themselves; about 2 MB."""
_MOVED_S: Final = 1.0
"""The clock of a file system may be this far behind."""
_WALK_SHARE: Final = 20
"""A walk through the folders takes at most one twentieth of the time: 2,000 files take 40 ms."""


class FollowedSession:
    """The transcripts of one session: its own, and those of its sub-agents.

    Attributes:
        agent: Name of the coding agent.
        keys: Keys of what the transcripts tell of: one, as a rule.
        transcripts: What is followed, by path.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.keys: BoundedDict[str, None] = BoundedDict(_KEYS)
        self.transcripts: dict[Path, FollowedTranscript] = {}

    @property
    def cwd(self) -> str:
        """Folder that the agent works in; empty while that is not known."""
        said = next((one.cwd for one in self.transcripts.values() if one.cwd), "")
        return said or project_of(next(iter(self.transcripts)))

    @property
    def project(self) -> str:
        """Name of that folder; of one that gemini-cli does not say, as it calls it."""
        parts = next(iter(self.transcripts)).parts
        chats = (above for above, name in pairwise(parts) if name == "chats")
        return Path(self.cwd).name or next(chats, "")

    @property
    def modified(self) -> float:
        """When a line was last written, seconds since the epoch; 0 if no file is there."""
        return max(map(modified, self.transcripts), default=0.0)

    def look(self) -> Iterator[tuple[str, FollowedStep]]:
        """What is new, with the key of its session, in the order in which it ended."""
        for _, found, key in merge(*map(_timed, self.transcripts.values()), key=itemgetter(0)):
            name = found.session if key is None else key
            self.keys[name] = None
            yield name, found


def _timed(one: FollowedTranscript) -> Iterator[tuple[int, FollowedStep, str | None]]:
    """Steps by their ends, in the order of their file, with the key of the session above."""
    now = 0
    for found in one.look():
        now = max(now, found.step.end or 0)
        yield now, found, one.head.above


class FollowedFolders:
    """The transcripts below folders that have been written since this was made.

    Of those that were there before, nothing is read until a line is added to them; then they are
    read from their beginning, as old. Whole documents and compressed files, which nobody adds lines
    to, are left alone.

    Args:
        folders: The folders; those where agents keep their transcripts if there are none.
        broken: Told file, line number and reason of every line that was passed over.
        forget: Called with the key of each session that is read anew from its beginning.

    Attributes:
        kept: Keys of sessions that are followed on, however long nothing is written in them.
    """

    def __init__(
        self, folders: Sequence[Path], broken: Broken, forget: Callable[[str], object]
    ) -> None:
        self.kept: set[str] = set()
        self._folders = folders
        self._broken = broken
        self._forget = forget
        self._sessions: dict[tuple[str, str], FollowedSession] = {}
        self._above: BoundedDict[tuple[str, str], str] = BoundedDict(_SUB_AGENTS)
        self._walked = math.inf  # when the last walk began, seconds since the epoch
        self._next_walk = 0.0
        self._sizes: dict[Path, int] = {}  # of the files that are there, as far as they were read
        self._walk()

    def look(self) -> Iterator[FollowedSession]:
        """The sessions that are followed, once new transcripts are known."""
        if time.monotonic() >= self._next_walk:
            self._walk()
        for session in list(self._sessions.values()):
            if any(one.replaced for one in session.transcripts.values()):
                for key in session.keys:
                    self._forget(key)
                for one in session.transcripts.values():
                    one.begin_anew()
            yield session

    def _walk(self) -> None:
        """Finds the files that are new or have grown, and follows them."""
        began, before = time.monotonic(), self._walked
        self._walked = time.time()
        followed = {path for one in self._sessions.values() for path in one.transcripts}
        there: set[Path] = set()
        for folder in self._folders or [folder for _, folder in usual_folders()]:
            for path, size, changed in transcript_files(folder):
                if path.suffix != ".jsonl" and not is_session(path):
                    continue
                there.add(path)
                # What is new here, and was not written since the last walk, was moved here.
                moved = changed < before - _MOVED_S
                known = self._sizes.setdefault(path, size if moved else 0)
                if size != known and path not in followed:
                    self._follow(path, known)
        for path in self._sizes.keys() - there:
            del self._sizes[path]
        self._next_walk = time.monotonic() + _WALK_SHARE * (time.monotonic() - began)

    def _follow(self, path: Path, before: int) -> None:
        """Follows a file, unless its first lines do not tell, yet, that it is a transcript."""
        head = TranscriptHead.of(path)
        if head is None or head.agent == "atif":
            return
        if head.above is not None:
            self._above[head.agent, head.key] = head.above
            head.above = self._top(head.agent, head.above)
        place = head.agent, head.above or head.key
        session = self._sessions.setdefault(place, FollowedSession(head.agent))
        kind = FollowedRows if is_session(path) else FollowedTranscript
        session.transcripts[path] = kind(head, before, self._broken)
        if len(self._sessions) > _SESSIONS:
            self._leave(min(self._sessions, key=lambda one: self._sessions[one].modified))

    def _leave(self, place: tuple[str, str]) -> None:
        """Stops following a session; when it goes on it is read anew, as old."""
        if self.kept.isdisjoint(self._sessions[place].keys):
            gone = self._sessions.pop(place)
            for key in gone.keys:
                self._forget(key)
            self._sizes.update((path, one.size) for path, one in gone.transcripts.items())

    def _top(self, agent: str, key: str) -> str:
        """The session that a sub-agent works for in the end."""
        seen: set[str] = set()
        while (agent, key) in self._above and key not in seen:
            seen.add(key)
            key = self._above[agent, key]
        return key
