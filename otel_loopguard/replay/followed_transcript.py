"""A transcript that its agent is still writing: the steps that came since the last look."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.replay.fields import is_map
from otel_loopguard.replay.opencode_database import SessionRows
from otel_loopguard.replay.recording import parse_json
from otel_loopguard.replay.transcripts import Reader, reader_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay.file import Broken
    from otel_loopguard.replay.transcripts.folders import TranscriptHead

_CHUNK: Final = 1024 * 1024  # more at once is not faster
_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of a line that are kept while its end is not written, as of the largest event of a hook."""
_MARK: Final = 64
"""Bytes before the place that was read last, which tell whether the file is still the same."""


class FollowedStep(NamedTuple):
    """A step of a transcript.

    Attributes:
        session: Id of its session, as the transcript says.
        step: The step.
        old: Whether it was there when following began, or was given before the file was replaced.
    """

    session: str
    step: Step
    old: bool


class FollowedTranscript:
    """Reads a transcript on from where the last look ended.

    A line without an end waits for the rest of it. A file that was truncated, or replaced by
    another one, is read anew. Holds what its reader holds, and one line.

    Args:
        head: What the first lines of the file tell of it.
        before: Bytes that it had when following began.
        broken: Told file, line number and reason of every line that was passed over.

    Attributes:
        head: As given.
        cwd: Folder that the agent works in; empty while that is not known.
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
    def size(self) -> int:
        """Bytes of the file that were read."""
        return self._place

    @property
    def replaced(self) -> bool:
        """Whether the file is no longer the one that was read so far."""
        try:
            with self.head.path.open("rb") as stream:
                return self._is_other(stream)
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
            with self.head.path.open("rb") as stream:
                found = os.fstat(stream.fileno())
                self._file = self._file or (found.st_dev, found.st_ino)
                stream.seek(self._place)
                while chunk := stream.read(_CHUNK):
                    for line in self._lines(chunk):
                        yield from self._take(line)
        except OSError as error:
            self._report(f"cannot be read: {error.strerror or error}")

    def _begin(self) -> None:
        self._reader: Reader | None = None
        self._file: tuple[int, int] | None = None  # device and inode
        self._place = self._number = 0
        self._line_end = 0
        self._mark = b""
        self._rest = bytearray()
        self._too_long = False

    def _is_other(self, stream: IO[bytes]) -> bool:
        if self._file is None:
            return False
        found = os.fstat(stream.fileno())
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self._place:
            return True
        stream.seek(self._place - len(self._mark))
        return stream.read(len(self._mark)) != self._mark

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        """The lines that end in a chunk."""
        begun = self._place
        self._place += len(chunk)
        self._mark = (self._mark + chunk[-_MARK:])[-_MARK:]
        place = 0
        while (end := chunk.find(b"\n", place)) >= 0:
            self._number += 1
            self._line_end = begun + end + 1
            if self._too_long:
                self._report(f"the line has more than {_LONGEST:,} bytes")
            else:
                yield bytes(self._rest) + chunk[place:end]
            self._rest.clear()
            self._too_long = False
            place = end + 1
        self._rest += chunk[place:]
        if len(self._rest) > _LONGEST:
            self._rest.clear()
            self._too_long = True

    def _take(self, line: bytes) -> Iterator[FollowedStep]:
        if not line.strip():
            return
        try:
            value = parse_json(line)
        except (ValueError, RecursionError):
            self._report("no valid JSON")
            return
        if not is_map(value):
            self._report("the line is no object")
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
        self.cwd = reader.cwd or self.cwd
        yield from self._given(reader.session_id, reader.settled())

    def _given(self, session: str, steps: list[Step]) -> Iterator[FollowedStep]:
        for step in steps:
            end = step.end or 0
            old = self._line_end <= self._before
            if old and self._told_before is not None:
                # Written before the file was replaced, or while nobody looked.
                old = end <= self._told_before
            self._told = max(self._told, end)
            yield FollowedStep(session or self.head.key, step, old)

    def _report(self, why: str) -> None:
        self._broken(str(self.head.path), self._number, why)


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
                self._place = self._line_end = self._rows.messages
                yield from self._take(line)
        except sqlite3.Error as error:
            self._report(f"cannot be read: {error}")

    def _begin(self) -> None:
        super()._begin()
        self._rows = SessionRows(self.head.path)
