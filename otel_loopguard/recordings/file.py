"""A recorded file as lines of bytes: a path or `-`, plain or gzip, one line in memory at a time."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Final

from otel_loopguard.errors import RecordingError

LIMIT: Final = 256 * 1024 * 1024
"""Bytes of the longest line, or of a document over many lines, that is read."""

_CHUNK: Final = 1024 * 1024
_HEAD: Final = 8192
_GZIP: Final = b"\x1f\x8b"
_MARK: Final = b"\xef\xbb\xbf"

Broken = Callable[[str, int, str], None]
"""Told file, line number (from 1) and reason of each line passed over in part or whole."""


class _Damaged(Exception):  # noqa: N818  # ends the reading, not the program
    """The rest of the file cannot be read."""


class RecordedFile:
    """Lines of one file.

    Attributes:
        name: The file's name without folders; `-` for standard input.
        size: Bytes of the file as it lies there; None where that is not known (a pipe).
        done: How many of these were read so far.
        empty: Whether no line was given so far, and none was passed over.

    Raises:
        RecordingError: There is no such file, it is a folder, or it may not be read.
    """

    def __init__(self, path: str, broken: Broken, limit: int = LIMIT) -> None:
        self.name = path if path == "-" else Path(path).name
        self.size = None if path == "-" else _size(path)
        self.done = 0
        self.empty = True
        self._number = 0
        self._path = path
        self._broken = broken
        self._limit = limit

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, each with its number from 1.

        A line over the limit is reported and passed over; damage to a compressed file is reported,
        after what came before it was given. A file that is binary is reported and not read.
        """
        parts: list[bytes] = []
        size = 0
        for piece, ended in self._pieces():
            size += len(piece)
            if size <= self._limit:
                parts.append(piece)
            else:
                parts.clear()
            if ended:
                yield from self._line(parts, size)
                parts, size = [], 0
        yield from self._line(parts, size)

    def report(self, number: int, why: str) -> None:
        """Reports something about a line."""
        self.empty = False
        self._broken(self._path, number, why)

    def _line(self, parts: list[bytes], size: int) -> Iterator[tuple[int, bytes]]:
        self._number += 1
        if size > self._limit:
            why = f"the line has {size:,} bytes, more than the limit of {self._limit:,}"
            self.report(self._number, why)
            return
        line = b"".join(parts)
        if self._number == 1:
            line = line.removeprefix(_MARK)
        if line and not line.isspace():
            self.empty = False
            yield self._number, line

    def _pieces(self) -> Iterator[tuple[bytes, bool]]:
        """Pieces of lines, each with whether the line ends with it."""
        try:
            for chunk in self._chunks():
                *complete, rest = chunk.split(b"\n")
                for piece in complete:
                    yield piece, True
                yield rest, False
        except _Damaged as damage:
            self.report(self._number + 1, str(damage))

    def _chunks(self) -> Iterator[bytes]:
        raw = self._raw()
        head = b""
        for chunk in raw:
            head += chunk
            if len(head) >= len(_GZIP):
                break
        chunks = _chain(head, raw)
        if head.startswith(_GZIP):
            chunks = _inflate(chunks)
        for place, chunk in enumerate(chunks):
            if not place and _binary(chunk):
                msg = "the file is binary, expected JSON text"
                raise _Damaged(msg)
            yield chunk

    def _raw(self) -> Iterator[bytes]:
        try:
            if self._path == "-":
                yield from self._read(sys.stdin.buffer)
            else:
                with Path(self._path).open("rb") as stream:
                    yield from self._read(stream)
        except OSError as error:
            msg = f"{self._path}: cannot be read: {error.strerror or error}"
            raise RecordingError(msg) from error

    def _read(self, stream: IO[bytes]) -> Iterator[bytes]:
        # A pipe gives what it has: `read` would wait until a whole chunk is there.
        read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        while chunk := read(_CHUNK):
            self.done += len(chunk)
            yield chunk


def _size(path: str) -> int | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        msg = f"{path}: cannot be read: {reason}"
        raise RecordingError(msg) from error
    if S_ISDIR(found.st_mode):
        msg = f"{path}: cannot be read: it is a folder, expected a file"
        raise RecordingError(msg)
    if not os.access(path, os.R_OK):
        msg = f"{path}: cannot be read: permission denied"
        raise RecordingError(msg)
    return found.st_size if S_ISREG(found.st_mode) else None


def _binary(chunk: bytes) -> bool:
    """Whether the beginning of a file has zero bytes and nothing that begins as JSON does.

    A text file that was torn by a crash may have zero bytes between its lines.
    """
    head = chunk[:_HEAD]
    return b"\0" in head and not any(
        line.lstrip().startswith((b"{", b"[")) for line in head.split(b"\n")
    )


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from rest


def _inflate(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """What gzip members one after another hold; never more than a chunk of it at once."""
    engine, inside = zlib.decompressobj(31), False
    for compressed in chunks:
        waiting = compressed
        while waiting:
            inside = True
            try:
                yield engine.decompress(waiting, _CHUNK)
            except zlib.error:
                msg = "the compressed data is damaged from here on"
                raise _Damaged(msg) from None
            waiting = engine.unconsumed_tail
            if engine.eof:
                # Padding with zeros after a member is allowed (RFC 1952, as gzip reads it).
                waiting = engine.unused_data.lstrip(b"\0")
                engine, inside = zlib.decompressobj(31), False
    if inside:
        yield engine.flush()
        msg = "the compressed data ends too early"
        raise _Damaged(msg)
