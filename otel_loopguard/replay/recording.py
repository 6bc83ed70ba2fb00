"""A recording: what a file holds, spans or labelled runs, whatever its format.

The shape of each line says its format, not the name of the file: a labelled run, one of `_FORMATS`
(`formats.py`, `log_records.py`, `exports.py`), or a line of a coding agent's transcript
(`transcripts/`), which becomes a run once all of it is read. A first line that
only opens a document (`{`, `{"data": [`), and any line that is `{` or `[`, begins a document over
many lines. It is read whole, up to `file.LIMIT` (256 MiB), and another one may follow it, as
`ConsoleSpanExporter` writes them; everything else is read line by line.

Files may be hostile: lines, documents, their depth and the number of their values are bounded
(`_util/bounded.py`), and so is what a compressed file may hold (`file.py`).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard._util import bounded
from otel_loopguard._util.fields import JsonObject, is_list, is_map, kind_of, sequence
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay import exports, file, formats, labelled_runs, log_records, transcripts
from otel_loopguard.replay.file import Broken, RecordedFile
from otel_loopguard.replay.transcripts import folders
from otel_loopguard.replay.transcripts.opencode import RecordedRows, is_session
from otel_loopguard.replay.transcripts.session import merged

if TYPE_CHECKING:
    from otel_loopguard.replay.labelled_runs import Run
    from otel_loopguard.spans.views import RecordedSpan

_FORMATS: Final[tuple[exports.Format, ...]] = (
    (formats.is_otlp, formats.otlp_spans),
    (log_records.is_logs, log_records.log_spans),
    (formats.is_jaeger, formats.jaeger_spans),
    *exports.EXPORTS,  # Phoenix before the console: its spans have a context, too
    (formats.is_console, formats.console_spans),
)
"""Formats of a JSON object with their readers; the first that fits."""

_WRAPPERS: Final = ("data", "trace", "result", "runs", "spans")
_DEPTH: Final = 8  # lists and wrappers around what is recorded: two at most in what was seen
_OPENERS: Final = (b"{", b"[")
_CLOSERS: Final = (b"}", b"]")
_LATER: Final = 16 * 1024 * 1024
"""Bytes of a document further down: a torn line must not collect all that follows it."""
_LINES: Final = 10_000_000
"""Lines of a document: one of 256 MiB with 27 bytes a line has as many."""
_BARREN: Final = 100_000
"""Lines in a row that hold nothing, after which the rest is not read."""
_TRIES: Final = 8
"""Times a document is parsed before its last line; more would cost the square of its length."""
EXPECTED: Final = (
    "expected OTLP, Jaeger or console JSON, an export of Langfuse, LangSmith or Phoenix, labelled"
    " steps or a transcript"
)
"""The formats of a file, for messages."""


class Recording:
    """The spans and runs of a recorded file, in the file's order.

    ::

        for entry in Recording("traces.jsonl.gz", broken):
            ...  # a RecordedSpan or a Run

    Args:
        path: Path of the file, or `-` for standard input. gzip is recognised by its content. A
            session of opencode is `opencode.db/SESSION`.
        broken: Told file, line number and reason of every line that was passed over in part or
            whole. Content never raises.
        sub_agents: Transcripts that make one session with it; those that cannot be read are
            reported as broken.

    Raises:
        RecordingError: At once if there is no such file, it is a folder or may not be read; while
            reading if the file cannot be read further.

    Attributes:
        path: As it was given.
        name: The file's name without folders; `-` for standard input.
        size: Bytes of all files as they lie there; None where that is not known.
    """

    def __init__(self, path: str, broken: Broken, sub_agents: Sequence[Path] = ()) -> None:
        kind = RecordedRows if is_session(Path(path)) else RecordedFile
        self._file = kind(path, broken)
        self._broken = broken
        self._sub_agents = sub_agents
        self._transcript: transcripts.Reader | None = None
        self._number = 0  # of the line that the transcript is read from
        self.path = path
        self.name = self._file.name
        self._beside: list[Recording] = []
        for each in sub_agents:
            with reported(str(each), broken):
                self._beside.append(Recording(str(each), broken))
        sizes = [one.size for one in (self._file, *self._beside)]
        self.size = None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def done(self) -> int:
        """Bytes of `size` that were read so far."""
        return self._file.done + sum(one.done for one in self._beside)

    def reopened(self, broken: Broken) -> Recording:
        """The same files, to be read once more."""
        return Recording(self.path, broken, self._sub_agents)

    def __iter__(self) -> Iterator[RecordedSpan | Run]:
        if not self._beside:
            yield from self._read()
            return
        found = list(_transcripts(self._read()))
        for recording in self._beside:
            with reported(recording.path, self._broken):
                found += _transcripts(recording)
        if found:
            whole = found[0]
            runs = (run.steps for run in found)
            whole.steps = list(merged(runs, lambda step: step.end or 0))
            yield whole

    def _read(self) -> Iterator[RecordedSpan | Run]:
        lines = self._file.lines()
        last = barren = 0  # of the lines that are in no document; lines in a row that hold nothing
        first = True
        while (numbered := next(lines, None)) is not None:
            number, line = numbered
            if number > last and (line.strip() in _OPENERS or (first and _opens_document(line))):
                limit = file.LIMIT if first else min(file.LIMIT, _LATER)
                first = False
                try:
                    value, text, end = _document(number, line, lines, limit)
                except Oversized as error:
                    self._file.report(number, f"the document {error}, the rest is not read")
                    return
                if value is None:
                    last, lines = end, chain(_lines_of(text, number), lines)
                    continue
                entries = self._entries(value, number, 0)
            else:
                first = False
                entries = self._line(number, line)
            barren += 1
            for entry in entries:
                barren = 0
                yield entry
            if self._number == number:
                barren = 0  # a transcript gives what it holds at its end
            if barren >= _BARREN:
                why = f"{barren:,} lines in a row hold nothing, the rest is not read"
                self._file.report(number, f"{why}; {EXPECTED}")
                return
        yield from self._ended(self._transcript and self._transcript.finish())
        if self._file.empty:
            self._file.report(1, f"the file is empty, {EXPECTED}")

    def _line(self, number: int, line: bytes) -> Iterator[RecordedSpan | Run]:
        try:
            value = parse_json(line)
        except (ValueError, RecursionError) as error:
            # The last line of a transcript that is being written.
            if self._transcript is None or not self._file.torn:
                self._file.report(number, _reason(error))
        else:
            yield from self._entries(value, number, 0)

    def _entries(self, value: object, number: int, depth: int) -> Iterator[RecordedSpan | Run]:
        """The spans and runs of a parsed line or document, by its shape."""
        report = partial(self._file.report, number)
        if is_list(value) and depth <= _DEPTH:
            for item in value:
                yield from self._entries(item, number, depth + 1)
            return
        if not is_map(value) or depth > _DEPTH:
            report(f"the line is {kind_of(value)}, {EXPECTED}")
            return
        if depth == 0 and (kind := self._transcript_of(value)) is not None:
            yield from self._take(kind, value, number)
        elif "steps" in value:
            count = len(sequence(value["steps"]))
            most = labelled_runs.MAX_STEPS
            if count > most:
                report(f"a run of {count:,} steps, more than {most:,}, is left out")
                return
            yield labelled_runs.run(value, f"{self.name}:{number}", report)
        elif (reads := span_reader_of(value)) is not None:
            yield from reads(value, report)
        else:
            yield from self._wrapped(value, number, depth)

    def _transcript_of(self, line: JsonObject) -> type[transcripts.Reader] | None:
        """The reader of the transcript that a line belongs to; None if it belongs to none."""
        kind = transcripts.reader_of(line)
        if kind is not None or self._transcript is None or isinstance(line.get("steps"), list):
            return kind
        # Within a transcript lines may be of any kind; spans in one file with it are spans.
        return None if span_reader_of(line) else type(self._transcript)

    def _take(self, kind: type[transcripts.Reader], line: JsonObject, number: int) -> Iterator[Run]:
        """Adds a line of a transcript; yields the session that ended before it."""
        self._number, reader = number, self._transcript
        if reader is None or type(reader) is not kind:
            yield from self._ended(reader and reader.finish())
            reader = self._transcript = kind(lambda why: self._file.report(self._number, why))
        yield from self._ended(reader.take(line))

    def _ended(self, run: Run | None) -> Iterator[Run]:
        """A session that has ended, if one has; without an id it is named by its place."""
        if run is not None:
            run.id = run.id or f"{self.name}:{self._number}"
            yield run

    def _wrapped(self, entry: JsonObject, number: int, depth: int) -> Iterator[RecordedSpan | Run]:
        """The entries under `data` and the like; an empty request rightly has none."""
        names = [name for name in _WRAPPERS if name in entry]
        for name in names:
            if entry[name] is not None:
                yield from self._entries(entry[name], number, depth + 1)
        if entry and not names:
            self._file.report(number, f"holds neither spans nor labelled steps, {EXPECTED}")


def recordings(path: str, broken: Broken) -> list[Recording]:
    """The recordings at a path: a file, or all transcripts below a folder.

    Raises:
        RecordingError: There is no such file, it may not be read, or the folder has no transcript.
    """
    place = Path(path)
    if path == "-":
        return [Recording(path, broken)]
    if not folders.holds_sessions(place):
        return [Recording(path, broken, sub_agents=folders.session_files(place).sub_agents)]
    sessions = folders.sessions_in(place)
    if not sessions:
        msg = f"{path}: the folder holds no transcript of a coding agent: name the files"
        raise RecordingError(msg)
    found: list[Recording] = []
    for files in sessions:
        with reported(str(files.path), broken):
            found.append(Recording(str(files.path), broken, sub_agents=files.sub_agents))
    return found


@contextmanager
def reported(path: str, broken: Broken) -> Generator[None]:
    """Reports that a file cannot be read: with the others the rest goes on."""
    try:
        yield
    except RecordingError as error:
        broken(path, 1, str(error).removeprefix(f"{path}: "))


def _transcripts(entries: Iterable[RecordedSpan | Run]) -> Iterator[transcripts.Transcript]:
    return (entry for entry in entries if isinstance(entry, transcripts.Transcript))


def span_reader_of(value: JsonObject) -> exports.SpanReads | None:
    """The reader of the spans of a JSON object; None if it is in no format of spans."""
    return next((reads for fits, reads in _FORMATS if fits(value)), None)


class Oversized(ValueError):  # noqa: N818  # says what the text is
    """The text is too much to parse."""


def _document(
    number: int, line: bytes, lines: Iterator[tuple[int, bytes]], limit: int
) -> tuple[object, bytearray, int]:
    """Takes lines up to the end of a document that begins with one.

    Returns:
        What it holds, None if it is no document; its text, with blank lines where they were; the
        number of its last line.
    """
    text, last, tries = bytearray(line), number, 0
    for at, more in lines:
        text += b"\n" * (at - last)
        text += more
        last = at
        if len(text) > limit or at - number > _LINES:
            _check(text)
            return None, text, last
        if more.rstrip() in _CLOSERS and tries < _TRIES:
            tries += 1
            if (value := _value(text)) is not None:
                return value, text, last
    return _value(text), text, last


def _lines_of(text: bytearray, number: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a text that are not blank, one at a time: there may be millions."""
    place = 0
    while place <= len(text):
        end = text.find(b"\n", place)
        end = end if end >= 0 else len(text)
        if line := bytes(text[place:end]).strip():
            yield number, line
        number += 1
        place = end + 1


def _value(text: bytearray) -> object:
    try:
        return parse_json(text)
    except Oversized:
        raise
    except (ValueError, RecursionError):
        return None


def _check(text: bytes | bytearray) -> None:
    why = bounded.oversized(text)
    if why:
        raise Oversized(why)


def parse_json(line: bytes | bytearray) -> object:
    """Parses JSON; also with lone surrogates, NaN, invalid UTF-8, which strict parsers refuse."""
    if len(line) > bounded.MAX_RECORDED_VALUES:  # else it cannot have more values
        _check(line)
    try:
        return orjson.loads(line)  # refuses what is nested deeper than `DEPTH`
    except orjson.JSONDecodeError:
        _check(line)
        return json.loads(line.decode("utf-8", "surrogateescape"))


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        if error.pos == 0:
            return f"the line is no JSON, {EXPECTED}"
        return f"invalid JSON at column {error.colno}: {error.msg}"
    if isinstance(error, Oversized):
        return f"the line {error}"
    if isinstance(error, RecursionError):
        return "nested too deep"
    return "invalid JSON: a number that is too long"


def _opens_document(line: bytes) -> bool:
    """True if a first line is the head of a document: it ends open, and so is none by itself."""
    ends_open = line.rstrip().endswith((b"{", b"[", b",", b":"))
    return ends_open and bounded.oversized(line) is None
