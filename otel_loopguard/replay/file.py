"""A recorded file as lines of bytes: a path or `-`, plain or gzip, one line in memory at a time."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISREG
from typing import IO, TYPE_CHECKING, Final

from otel_loopguard.errors import RecordingError

if TYPE_CHECKING:
    import zlib
else:
    try:
        # It has the interface of zlib, and reads gzip in two fifths of the time.
        from isal import isal_zlib as zlib
    except ImportError:
        import zlib

LIMIT: Final = 256 * 1024 * 1024
"""Bytes of the longest line, or of a document over many lines, that is read."""

FREE: Final = 16 * 1024 * 1024
"""Bytes that a compressed file may hold, however small it is."""

RATIO: Final = 200
"""How many times its own size a compressed file may hold beyond that. Recorded runs hold 5 to 20
times their size, and gzip makes 1,000 of nothing but repeats."""

_CHUNK: Final = 1024 * 1024  # bytes at once; more is not faster
_SLICE: Final = 8192
"""Compressed bytes at once: zlib copies what follows a member, and a member may have 20 bytes."""
_BLANK: Final = 100_000
"""Blank lines in a row, after which the rest is not read: compressed, millions are a kilobyte."""
_HEAD: Final = 8192  # bytes that tell text from binary: a header of a binary file has zeros
_JSON: Final = re.compile(rb"^[^\S\n]*[{\[]", re.MULTILINE)
_GZIP: Final = b"\x1f\x8b"
_MARK: Final = b"\xef\xbb\xbf"

Broken = Callable[[str, int, str], None]
"""Called with file, line number (from 1) and reason for each line skipped in part or whole."""


class _Damaged(Exception):  # noqa: N818  # ends the reading, not the program
    """The rest of the file cannot be read."""


class RecordedFile:
    """Lines of one file."""

    def __init__(self, path: str, broken: Broken) -> None:
        self.name = path if path == "-" else Path(path).name
        self.done = 0  # bytes read so far
        self.empty = True  # no line was given so far, and none was passed over
        self.torn = False  # the line given last has no end
        self._number = 0
        self._path = path
        self._broken = broken
        self.size = None if path == "-" else self._measured()  # None for a pipe, too

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, each with its number from 1.

        A line over the limit is reported and passed over; damage to a compressed file is reported,
        after what came before it was given. A file that is binary is reported and not read.
        """
        parts: list[bytes] = []
        size = blank = 0
        try:
            for piece, ended in self._pieces():
                size += len(piece)
                if size <= LIMIT:
                    parts.append(piece)
                else:
                    parts.clear()
                if not ended:
                    continue
                line = self._line(parts, size)
                parts, size = [], 0
                if line:
                    blank = 0
                    yield self._number, line
                elif (blank := blank + 1) == _BLANK:
                    why = f"{_BLANK:,} blank lines in a row, the rest is not read"
                    self.report(self._number, why)
                    return
        except _Damaged as damage:
            self.report(self._number + 1, str(damage))
            return
        self.torn = True
        if line := self._line(parts, size):
            yield self._number, line

    def report(self, number: int, why: str) -> None:
        """Reports something about a line."""
        self.empty = False
        self._broken(self._path, number, why)

    def _measured(self) -> int | None:
        path = self._path
        try:
            found = Path(path).stat()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise unreadable(path, reason) from error
        kind = found.st_mode
        if S_ISDIR(kind) or S_ISCHR(kind) or S_ISBLK(kind):
            what = "a folder" if S_ISDIR(kind) else "a device"
            raise unreadable(path, f"it is {what}, expected a file, a pipe or -")
        if not os.access(path, os.R_OK):
            raise unreadable(path, "permission denied")
        return found.st_size if S_ISREG(kind) else None

    def _line(self, parts: list[bytes], size: int) -> bytes:
        """The next line; empty if it is blank or too long."""
        self._number += 1
        if size > LIMIT:
            why = f"the line has {size:,} bytes, more than the limit of {LIMIT:,}"
            self.report(self._number, why)
            return b""
        line = b"".join(parts)
        if self._number == 1:
            line = line.removeprefix(_MARK)
        if not line or line.isspace():
            return b""
        self.empty = False
        return line

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Pieces of lines, each with whether its line ends."""
        for chunk in self._chunks():
            *ended, rest = chunk.split(b"\n")
            for piece in ended:
                yield piece, True
            yield rest, False

    def _chunks(self) -> Iterator[bytes]:
        raw = self._raw()
        head = b""
        for chunk in raw:
            head += chunk
            if len(head) >= len(_GZIP):
                break
        chunks: Iterable[bytes] = chain((head,), raw)
        if head.startswith(_GZIP):
            chunks = _inflate(chunks)
        begun = False
        for chunk in filter(None, chunks):
            # Zero bytes may also stand between the lines of a text file that a crash has torn.
            if not begun and b"\0" in chunk[:_HEAD] and not _JSON.search(chunk[:_HEAD]):
                raise _Damaged("the file is binary, expected JSON text")
            begun = True
            yield chunk

    def _raw(self) -> Iterator[bytes]:
        """The bytes of the file as they are, in chunks."""
        try:
            if self._path == "-":
                yield from self._read(sys.stdin.buffer)
            else:
                with Path(self._path).open("rb") as stream:
                    yield from self._read(stream)
        except OSError as error:
            raise unreadable(self._path, error.strerror or error) from error

    def _read(self, stream: IO[bytes]) -> Iterator[bytes]:
        # `read1` returns what a pipe has: `read` would wait for a whole chunk.
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        while chunk := read(_CHUNK):
            self.done += len(chunk)
            yield chunk


def unreadable(name: object, why: object) -> RecordingError:
    """The error of a file, or of another source, that cannot be read."""
    return RecordingError(f"{name}: cannot be read: {why}")


def untold(_file: str, _number: int, _why: str) -> None:
    """Tells nobody: what is broken in a file is told elsewhere."""


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of consecutive gzip members, never more than a chunk at once."""
    engine, inside = zlib.decompressobj(31), False
    read = given = 0
    for compressed in (
        chunk[place : place + _SLICE] for chunk in chunks for place in range(0, len(chunk), _SLICE)
    ):
        read += len(compressed)
        waiting = compressed
        while waiting:
            # Padding with zeros after a member is allowed (RFC 1952, as gzip reads it).
            waiting = waiting if inside else waiting.lstrip(b"\0")
            inside = inside or bool(waiting)
            try:
                chunk = engine.decompress(waiting, _CHUNK)
            except zlib.error:
                raise _Damaged("the compressed data is damaged from here on") from None
            given += len(chunk)
            if given > max(FREE, RATIO * read):
                raise _Damaged(
                    f"the compressed data holds more than {RATIO} times its own size, the rest is "
                    "not read; if it is what you expect, decompress it first"
                )
            yield chunk
            waiting = engine.unconsumed_tail
            if engine.eof:
                waiting = engine.unused_data
                engine, inside = zlib.decompressobj(31), False
    if inside:
        yield engine.flush()
        raise _Damaged("the compressed data ends too early")
