"""Transcripts that agents are still writing: which there are, and the steps that came since."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import is_map
from otel_loopguard.replay.recording import parse_json
from otel_loopguard.replay.transcripts import Reader, reader_of
from otel_loopguard.replay.transcripts.folders import (
    TranscriptHead,
    modified,
    project_of,
    top_of,
    transcript_files,
    usual_folders,
)
from otel_loopguard.replay.transcripts.opencode import SessionRows, is_session
from otel_loopguard.replay.transcripts.session import merged

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay.file import Broken

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of the longest line that is read, as of the largest event of a hook."""
_NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)
_MARK: Final = 64
"""Bytes before the place that was read last, which tell whether the file is still the same."""
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


class FollowedStep(NamedTuple):
    """A step of a transcript.

    Attributes:
        session: Key of its session, or of the one that this one works for.
        step: The step.
        old: Whether it was there when following began, or was given before the file was replaced.
    """

    session: str
    step: Step
    old: bool


class FollowedTranscript:
    """Reads a transcript on from where the last look ended.

    A line without an end is read once it has one. A file that was truncated, or replaced by
    another one, is read anew. Holds what its reader holds, and one line.

    Args:
        head: What the first lines of the file tell of it.
        before: Bytes that it had when following began.
        broken: Told file, line number and reason of every line that was passed over.

    Attributes:
        head: As given.
        cwd: Folder that the agent works in; empty while that is not known.
        place: Bytes of the file that were read, up to the end of a line.
    """

    def __init__(self, head: TranscriptHead, before: int, broken: Broken) -> None:
        self.head = head
        self.cwd = ""
        self._broken = broken
        self._before = before
        self._told = 0  # end of the newest step that was given, nanoseconds since the epoch
        self._told_before: int | None = None  # the same when the file was replaced
        self._begin()

    @property
    def replaced(self) -> bool:
        """True if the file is no longer the one that was read so far."""
        if self._file is None:
            return False
        try:
            with _opened(self.head.path) as stream:
                found = os.fstat(stream.fileno())
                if (found.st_dev, found.st_ino) != self._file or found.st_size < self.place:
                    return True
                stream.seek(self.place - len(self._mark))
                return stream.read(len(self._mark)) != self._mark
        except OSError:
            return False  # gone, for good or for a moment

    def begin_anew(self) -> None:
        """Reads the file from its beginning at the next look; what was given before is old."""
        self._told_before = self._told
        try:
            self._before = self.head.path.stat().st_size
        except OSError:
            self._before = 0
        self._begin()

    def look(self) -> Iterator[FollowedStep]:
        """The steps that no later line changes, of the lines that were completed since."""
        try:
            with _opened(self.head.path) as stream:
                found = os.fstat(stream.fileno())
                self._file = self._file or (found.st_dev, found.st_ino)
                stream.seek(self.place)
                while (line := stream.readline(_LONGEST)).endswith(b"\n") or len(line) == _LONGEST:
                    yield from self._read(line)
        except OSError as error:
            self._report(f"cannot be read: {error.strerror or error}")

    def _begin(self) -> None:
        self._reader: Reader | None = None
        self._file: tuple[int, int] | None = None  # device and inode
        self.place = self._number = 0
        self._mark = b""
        self._too_long = False

    def _read(self, line: bytes) -> Iterator[FollowedStep]:
        """Takes a line, or a part of one that is too long."""
        self.place += len(line)
        self._mark = (self._mark + line[-_MARK:])[-_MARK:]
        before, self._too_long = self._too_long, not line.endswith(b"\n")
        if self._too_long:
            return
        self._number += 1
        if before:
            self._report(f"the line has more than {_LONGEST:,} bytes")
        else:
            yield from self._take(line)

    def _take(self, line: bytes) -> Iterator[FollowedStep]:
        if not line.strip():
            return
        try:
            value = parse_json(line)
        except (ValueError, RecursionError):
            self._report("invalid JSON")
            return
        if not is_map(value):
            self._report("the line is not an object")
            return
        if self._reader is None:
            kind = reader_of(value)
            if kind is None:
                return  # nothing begins with it
            self._reader = kind(self._report)
        reader = self._reader
        ended = reader.take(value)
        if ended is not None:
            yield from self._given(ended.id, ended.steps)
        session = reader.session
        self.cwd = session.cwd or self.cwd
        yield from self._given(session.id, session.settled())

    def _given(self, session: str, steps: list[Step]) -> Iterator[FollowedStep]:
        for step in steps:
            end = step.end or 0
            old = self.place <= self._before
            if old and self._told_before is not None:
                # Written before the file was replaced, or while nobody looked.
                old = end <= self._told_before
            self._told = max(self._told, end)
            yield FollowedStep(self.head.above or session or self.head.key, step, old)

    def _report(self, why: str) -> None:
        self._broken(str(self.head.path), self._number, why)


def _opened(path: Path) -> IO[bytes]:
    """A file to read. What an agent may have put in its place, a pipe or a device, never ends."""
    stream = open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAIT))  # noqa: SIM115
    if S_ISREG(os.fstat(stream.fileno()).st_mode):
        return stream
    stream.close()
    raise OSError(errno.EINVAL, "it is not a regular file")


class FollowedRows(FollowedTranscript):
    """Likewise a session of opencode, by the rows of its database.

    Args:
        head: What the database tells of it.
        before: Messages that it had when following began.
        broken: Told path, number and reason of every row that was passed over.
    """

    @property
    def replaced(self) -> bool:
        """Never: rows are added; those that a person takes back were judged."""
        return False

    def look(self) -> Iterator[FollowedStep]:
        """The steps of the messages that were completed since."""
        try:
            for line in self._rows.lines(growing=True):
                self._number += 1
                self.place = self._rows.messages
                yield from self._take(line)
        except sqlite3.Error as error:
            self._report(f"cannot be read: {error}")

    def _begin(self) -> None:
        super()._begin()
        self._rows = SessionRows(self.head.path)


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
    def modified(self) -> float:
        """When a line was last written, seconds since the epoch; 0 if no file is there."""
        return max(map(modified, self.transcripts), default=0.0)

    def look(self) -> Iterator[FollowedStep]:
        """The new steps, in the order in which they ended."""
        news = (one.look() for one in self.transcripts.values())
        for found in merged(news, lambda found: found.step.end or 0):
            self.keys[found.session] = None
            yield found


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
            head.above = top_of(self._above, head.agent, head.above)
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
            self._sizes.update((path, one.place) for path, one in gone.transcripts.items())
